"""Use cases. Each opens one durable transaction, makes its domain calls, and returns plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounts.models import Account
from accounts.selectors import confirm_caller, system_user_id
from accounts.services import Caller, open_wallet
from ledger.commands import Command, Leg, MoneyEvent, Posted, Refused, fingerprint_of
from ledger.keys import find_key, record_key
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from ledger.services import post
from transfers.selectors import account_body
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
    fingerprint = fingerprint_of("open_account", {"currency": currency, "name": name})

    def work() -> Answer:
        confirm_caller(caller)
        known = find_key(initiator_id=caller.user_id, key=key)
        if known is not None:
            known.must_match(fingerprint)
            return Answer(status=known.status or 201, body=known.response, replayed=True)
        account = open_wallet(owner_id=caller.user_id, currency=currency, name=name or "")
        body = account_body(account)
        record_key(initiator_id=caller.user_id, key=key, fingerprint=fingerprint, status=201, response=body)
        return Answer(status=201, body=body, replayed=False)

    return run_in_transaction(work)


def post_one(command: Command) -> Posted:
    """Post one command in a transaction of its own.

    Raises:
        DomainError: the command's refusal.
    """
    (outcome,) = run_in_transaction(lambda: post([command]))
    if isinstance(outcome, Refused):
        raise outcome.error
    return outcome
