"""Reversals: what a member of staff takes back, through the API or the admin."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from accounts.models import Account
from accounts.selectors import confirm_caller
from accounts.services import Caller
from ledger.commands import Command, Leg, MoneyEvent, Posted, Refused, fingerprint_of
from ledger.errors import TransactionNotFound
from ledger.keys import find_key
from ledger.models import JournalTransaction
from ledger.reversals import Original, find_original
from ledger.services import post
from wallet_project.kernel.db import lock_rows, run_in_transaction
from wallet_project.kernel.errors import DomainError, IllegalState


def reverse(
    *,
    caller: Caller,
    key: str,
    transaction_id: UUID,
    reason: str,
    amount: int | None = None,
    shown_left: int | None = None,
) -> Posted:
    """Take a transaction back, in whole or part: from the payee's wallet to the payer's, whole or not at all.

    Args:
        caller: a member of staff; that they may do this is the interface's to check.
        key: the caller's idempotency key.
        reason: why; becomes the reversal's reference.
        amount: minor units; None for all that is left.
        shown_left: what was left when the caller decided; if that is no longer so, nothing is done.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `transfer`.
        TransactionNotFound: no such transaction.
        NotReversible, AlreadyReversed, ReversalExceedsOriginal: it cannot go back, or not that much of it.
        IllegalState: somebody reversed a part since `shown_left` was shown.
        AccountClosed, InsufficientFunds, BalanceLimitExceeded: the wallets do not allow it.
    """
    fingerprint = fingerprint_of(f"reverse:{transaction_id}", {"amount": amount, "reason": reason})

    def work() -> Posted:
        original = find_original(transaction_id)
        if original is not None:
            # All reversals of one original meet here, so what is read next stays true until COMMIT.
            lock_rows(Account.objects.filter(pk__in=original.account_ids))
            original = find_original(transaction_id)
        confirm_caller(caller)
        known = find_key(initiator_id=caller.user_id, key=key)
        if known is not None:
            known.must_match(fingerprint)
        if original is None:
            raise TransactionNotFound(f"There is no transaction {transaction_id}.")
        if known is None and shown_left not in (None, original.left):
            raise IllegalState(f"{original.left} is left to reverse, no longer {shown_left}.")
        going_back = original.check(amount) if known is None else original.amount
        (outcome,) = post([_command(caller, key, fingerprint, reason, original, going_back)])
        if isinstance(outcome, Refused):
            raise outcome.error
        return outcome

    return run_in_transaction(work)


def _command(caller: Caller, key: str, fingerprint: bytes, reason: str, original: Original, amount: int) -> Command:
    (payer,), (payee,) = original.debited_account_ids, original.credited_account_ids
    return Command(
        initiator_id=caller.user_id,
        stamp=caller.stamp,
        key=key,
        fingerprint=fingerprint,
        type=JournalTransaction.Type.REVERSAL,
        legs=(Leg(account_id=payee, amount=-amount), Leg(account_id=payer, amount=amount)),
        # A reversal's event has its original's key, so that it follows it.
        event=MoneyEvent(topic="wallet.transfers", key_account_id=payer, from_account_id=payee, to_account_id=payer),
        reference=reason,
        reverses_id=original.transaction_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One of several reversals that a member of staff has confirmed; as the arguments of `reverse`."""

    key: str
    transaction_id: UUID
    amount: int
    shown_left: int


def reverse_each(*, caller: Caller, reason: str, wishes: Sequence[Wish]) -> list[Posted | DomainError]:
    """Reverse several transactions, each in a transaction of its own: one that is refused does not stop the others.

    Returns:
        For each wish, in order, the reversal or the refusal.
    """
    return [_reversal_or_refusal(caller=caller, reason=reason, wish=wish) for wish in wishes]


def _reversal_or_refusal(*, caller: Caller, reason: str, wish: Wish) -> Posted | DomainError:
    try:
        return reverse(
            caller=caller,
            key=wish.key,
            transaction_id=wish.transaction_id,
            reason=reason,
            amount=wish.amount,
            shown_left=wish.shown_left,
        )
    except DomainError as refusal:
        return refusal
