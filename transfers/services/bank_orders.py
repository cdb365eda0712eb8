"""Deposits and withdrawals, as they are asked for. Nobody calls the bank here: a worker finds the order by itself."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.errors import AccountNotFound
from accounts.models import Account
from accounts.services import Caller
from ledger.commands import Command, Leg, MoneyEvent, Refused, fingerprint_of
from ledger.errors import AccountClosed, BalanceLimitExceeded
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from ledger.services import post
from transfers.bank_selectors import requested_body
from transfers.models import BankOrder, Cause
from transfers.services.bank_moves import TOPICS, Kind, Status, begin, facts_of
from transfers.services.once import Answer, answer_once
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows, run_in_transaction
from wallet_project.kernel.money import MAX_AMOUNT


def deposit(*, caller: Caller, key: str, account_id: int, amount: int, reference: str | None = None) -> Answer:
    """Ask the bank for money into a wallet of the caller's. Nothing moves before the bank confirms.

    Args:
        amount: minor units, 1 to 2^53 - 1.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `transfer`.
        AccountNotFound: the caller has no such wallet.
        AccountClosed, BalanceLimitExceeded: it cannot take the money. That it is frozen is no obstacle.
    """
    wallet = Account.objects.owned_by(caller.user_id).filter(pk=account_id)

    def work() -> dict[str, Any]:
        order = BankOrder(
            kind=Kind.DEPOSIT,
            account=_able_to_take(amount, wallet.first(), account_id),
            amount=amount,
            reference=reference or "",
            initiator_id=caller.user_id,
        )
        begin(order, cause=Cause.REQUEST)
        return requested_body(Kind.DEPOSIT, order.pk)

    parameters = {"accountId": account_id, "amount": amount, "reference": reference}
    return answer_once(
        caller=caller,
        key=key,
        fingerprint=fingerprint_of("deposit", parameters),
        status=202,
        work=work,
        lock=lambda: lock_rows(wallet.all()),
    )


def _able_to_take(amount: int, wallet: Account | None, account_id: int) -> Account:
    if wallet is None:
        raise AccountNotFound(f"There is no account {account_id}.")
    if wallet.status == Account.Status.CLOSED:
        raise AccountClosed(f"Account {account_id} is closed.")
    if wallet.balance + amount > MAX_AMOUNT:
        raise BalanceLimitExceeded(f"Account {account_id} would exceed the largest balance.")
    return wallet


def withdraw(
    *, caller: Caller, key: str, account_id: int, amount: int, destination: str, reference: str | None = None
) -> Answer:
    """Put money of a wallet of the caller's on hold, for the bank to pay out.

    Args:
        amount: minor units, 1 to 2^53 - 1.
        destination: where the bank is to pay it to.

    Raises:
        DomainError: refused, and nothing is left behind: TokenInvalid, IdempotencyKeyReused, AccountNotFound,
            AccountClosed, AccountFrozen, LimitExceeded, InsufficientFunds.
    """
    parameters = {"accountId": account_id, "amount": amount, "destination": destination, "reference": reference}
    fingerprint = fingerprint_of("withdrawal", parameters)

    def work() -> Answer:
        opening = _opening(caller, key, fingerprint, account_id, amount, reference)
        (posted,) = post([opening])
        if isinstance(posted, Refused):
            raise posted.error
        if not posted.replayed:
            order = BankOrder(
                id=posted.transaction_id,
                kind=Kind.WITHDRAWAL,
                account_id=account_id,
                amount=amount,
                destination=destination,
                reference=reference or "",
                opening_id=posted.transaction_id,
                initiator_id=caller.user_id,
            )
            begin(order, cause=Cause.REQUEST)
        body = requested_body(Kind.WITHDRAWAL, posted.transaction_id)
        return Answer(status=202, body=body, replayed=posted.replayed)

    return run_in_transaction(work)


def _opening(
    caller: Caller, key: str, fingerprint: bytes, account_id: int, amount: int, reference: str | None
) -> Command:
    currency = Account.objects.filter(pk=account_id).values_list("currency", flat=True).first()
    # For a wallet that is not there any shard will do: `post` says so, after it has looked up the key.
    shard = draw_system_shard(kind=Account.Kind.HOLD, currency=currency or settings.CURRENCIES[0])
    order_id = clock.new_id()
    return Command(
        initiator_id=caller.user_id,
        stamp=caller.stamp,
        key=key,
        fingerprint=fingerprint,
        type=JournalTransaction.Type.WITHDRAWAL,
        legs=(
            Leg(account_id=account_id, amount=-amount, owner_id=caller.user_id),
            Leg(account_id=shard, amount=amount, kind=Account.Kind.HOLD),
        ),
        event=MoneyEvent(
            topic=TOPICS[Kind.WITHDRAWAL],
            key_account_id=account_id,
            from_account_id=account_id,
            to_account_id=None,
            facts=facts_of(Kind.WITHDRAWAL, order_id),
        ),
        reference=reference or "",
        transaction_id=order_id,
    )


def ask_again(*, order_ids: Sequence[UUID]) -> list[BankOrder]:
    """Have the bank asked about orders now, by the next sweep: about a completed one, whether it was returned.

    Returns:
        Those about which it will be asked: not the ones that have failed, of which there is nothing more to hear.
    """

    def work() -> list[BankOrder]:
        asked = lock_rows(BankOrder.objects.filter(pk__in=order_ids).exclude(status=Status.FAILED))
        for order in asked:
            order.attempts, order.next_step_at = 0, clock.now()
            order.save(update_fields=["attempts", "next_step_at"])
        return asked

    return run_in_transaction(work)
