"""Opening and closing wallets: commands that post nothing, and keep their answer with their key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accounts.models import Account, AccountQuerySet
from accounts.selectors import confirm_caller
from accounts.services import Caller, close_wallet, open_wallet
from ledger.commands import fingerprint_of
from ledger.errors import CONSTRAINTS
from ledger.keys import find_key, record_key
from transfers.selectors import account_body
from wallet_project.kernel.db import lock_rows, run_in_transaction, translated


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command that posts nothing at once, first given or replayed word for word."""

    status: int
    body: dict[str, Any]
    replayed: bool


def open_account(*, caller: Caller, key: str, currency: str, name: str | None = None) -> Answer:
    """Open a wallet for the caller, empty.

    Raises:
        TokenInvalid: the caller is disabled or has changed the password.
        IdempotencyKeyReused: the key belongs to another command of the caller's.
    """

    def work() -> dict[str, Any]:
        return account_body(open_wallet(owner_id=caller.user_id, currency=currency, name=name or ""))

    fingerprint = fingerprint_of("open_account", {"currency": currency, "name": name})
    return _once(caller=caller, key=key, fingerprint=fingerprint, status=201, work=work)


def close_account(*, caller: Caller, key: str, account_id: int) -> Answer:
    """Close an empty wallet of the caller's, for ever.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `open_account`.
        AccountNotFound: the caller has no such wallet.
        IllegalState: it is closed already, frozen, not empty, or has money on hold.
    """

    def work() -> dict[str, Any]:
        with translated(CONSTRAINTS):
            return account_body(close_wallet(account_id=account_id, owner_id=caller.user_id))

    fingerprint = fingerprint_of(f"close_account:{account_id}", {})
    wallet = Account.objects.owned_by(caller.user_id).filter(pk=account_id)
    return _once(caller=caller, key=key, fingerprint=fingerprint, status=200, work=work, locked=wallet)


def _once(
    *,
    caller: Caller,
    key: str,
    fingerprint: bytes,
    status: int,
    work: Callable[[], dict[str, Any]],
    locked: AccountQuerySet | None = None,
) -> Answer:
    """Do the work once per key: its answer is written with it, and a retry gets that answer again.

    What the work locks is locked before the key is looked up: who waited for the same command finds what it left.
    """

    def attempt() -> Answer:
        if locked is not None:
            lock_rows(locked.all())
        confirm_caller(caller)
        known = find_key(initiator_id=caller.user_id, key=key)
        if known is not None:
            known.must_match(fingerprint)
            return Answer(status=known.status or status, body=known.response, replayed=True)
        body = work()
        record_key(initiator_id=caller.user_id, key=key, fingerprint=fingerprint, status=status, response=body)
        return Answer(status=status, body=body, replayed=False)

    return run_in_transaction(attempt)
