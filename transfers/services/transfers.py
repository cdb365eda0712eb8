"""Transfers between wallets, and money from the outside for demo data and tests."""

from collections.abc import Mapping
from typing import Any

from accounts.models import Account
from accounts.selectors import system_user_id
from accounts.services import Caller
from ledger.commands import Command, Leg, MoneyEvent, Posted, Refused, fingerprint_of
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from ledger.services import post
from wallet_project.kernel.db import run_in_transaction


def transfer(
    *,
    caller: Caller,
    key: str,
    from_account_id: int,
    to_account_id: int,
    amount: int,
    reference: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Posted:
    """Move money from a wallet of the caller's to any open wallet, now.

    Args:
        key: the caller's idempotency key.
        amount: minor units, 1 to 2^53 - 1.

    Raises:
        DomainError: refused, and nothing is left behind: TokenInvalid, IdempotencyKeyReused, SameAccount,
            AccountNotFound, AccountClosed, AccountFrozen, CurrencyMismatch, InsufficientFunds, BalanceLimitExceeded,
            Unavailable.
        OperationalError: the database is away, or a lock was not had in time; the same key may be sent again.
    """
    parameters = {
        "fromAccountId": from_account_id,
        "toAccountId": to_account_id,
        "amount": amount,
        "reference": reference,
        "metadata": metadata,
    }
    return post_one(
        Command(
            initiator_id=caller.user_id,
            stamp=caller.stamp,
            key=key,
            fingerprint=fingerprint_of("transfer", parameters),
            type=JournalTransaction.Type.TRANSFER,
            legs=(
                Leg(account_id=from_account_id, amount=-amount, owner_id=caller.user_id),
                Leg(account_id=to_account_id, amount=amount),
            ),
            event=MoneyEvent(
                topic="wallet.transfers",
                key_account_id=from_account_id,
                from_account_id=from_account_id,
                to_account_id=to_account_id,
            ),
            reference=reference or "",
            metadata=metadata,
        )
    )


def fund(*, account_id: int, amount: int, key: str) -> Posted:
    """Credit a wallet from the bank's clearing account, as a deposit by the service itself. For demo data and tests.

    Raises:
        DomainError: refused, as in `transfer`.
    """
    account = Account.objects.wallets().get(pk=account_id)
    clearing = draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency=account.currency)
    return post_one(
        Command(
            initiator_id=system_user_id(),
            key=key,
            fingerprint=fingerprint_of("fund", {"accountId": account_id, "amount": amount}),
            type=JournalTransaction.Type.DEPOSIT,
            legs=(
                Leg(account_id=clearing, amount=-amount, kind=Account.Kind.BANK_CLEARING),
                Leg(account_id=account_id, amount=amount),
            ),
            event=MoneyEvent(
                topic="wallet.deposits",
                key_account_id=account_id,
                from_account_id=None,
                to_account_id=account_id,
            ),
        )
    )


def post_one(command: Command) -> Posted:
    """Post one command in a transaction of its own.

    Raises:
        DomainError: the command's refusal.
    """
    (outcome,) = run_in_transaction(lambda: post([command]))
    if isinstance(outcome, Refused):
        raise outcome.error
    return outcome
