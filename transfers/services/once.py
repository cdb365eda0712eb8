"""Commands whose answer is kept with their key: the work is done once, and a retry gets its answer again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accounts.selectors import confirm_caller
from accounts.services import Caller
from ledger.keys import find_key, record_key
from wallet_project.kernel.db import run_in_transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a command, first given or replayed word for word."""

    status: int
    body: dict[str, Any]
    replayed: bool


def answer_once(
    *,
    caller: Caller,
    key: str,
    fingerprint: bytes,
    status: int,
    work: Callable[[], dict[str, Any]],
    lock: Callable[[], object] = lambda: None,
) -> Answer:
    """Do the work once per key, in a transaction of its own: its answer is written with it.

    Args:
        lock: takes the locks that the work needs. They come before the key is looked up: who waited for the same
            command finds what it left.

    Raises:
        TokenInvalid: the caller is disabled or has changed the password.
        IdempotencyKeyReused: the key belongs to another command of the caller's.
        DomainError: what the work raises; then nothing is left behind, the key included.
    """

    def attempt() -> Answer:
        lock()
        confirm_caller(caller)
        known = find_key(initiator_id=caller.user_id, key=key)
        if known is not None:
            known.must_match(fingerprint)
            return Answer(status=known.status or status, body=known.response, replayed=True)
        body = work()
        record_key(initiator_id=caller.user_id, key=key, fingerprint=fingerprint, status=status, response=body)
        return Answer(status=status, body=body, replayed=False)

    return run_in_transaction(attempt)
