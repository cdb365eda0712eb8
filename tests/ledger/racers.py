"""What the processes of a race run: plain values in, plain values out (tests/races.py)."""

from collections import Counter
from functools import partial
from itertools import cycle, islice

from accounts.services import Caller
from tests.races import at_once, outcome_of
from transfers.services import transfer


def pay_many(
    *,
    user_id: int,
    stamp: str,
    from_account_id: int,
    to_account_ids: list[int],
    amount: int,
    count: int,
    threads: int,
    key: str,
) -> dict[str, int]:
    """Send transfers to each account in turn, divided among threads; counts what became of them.

    Each has a key of its own that begins with `key`.
    """
    payees = list(islice(cycle(to_account_ids), count))

    def pay(mine: list[int]) -> Counter[str]:
        return Counter(
            outcome_of(
                partial(
                    transfer,
                    caller=Caller(user_id=user_id, stamp=stamp),
                    key=f"{key}:{number}",
                    from_account_id=from_account_id,
                    to_account_id=payees[number],
                    amount=amount,
                )
            )
            for number in mine
        )

    shares = [list(range(start, count, threads)) for start in range(threads)]
    return dict(sum(at_once([partial(pay, share) for share in shares]), Counter()))


def pay_once(
    *, user_id: int, stamp: str, from_account_id: int, to_account_id: int, amount: int, key: str, threads: int
) -> list[str]:
    """Send one transfer under one key from many threads at once; the ids of the transactions they were told."""

    def pay() -> str:
        return str(
            transfer(
                caller=Caller(user_id=user_id, stamp=stamp),
                key=key,
                from_account_id=from_account_id,
                to_account_id=to_account_id,
                amount=amount,
            ).transaction_id
        )

    return at_once([pay] * threads)
