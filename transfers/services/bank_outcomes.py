"""What the bank says of an order becomes a move, money and returns, all in one transaction.

Building blocks, for the worker that asks and for the notices that come; the order's row, which is locked first, makes
one of them wait, and it finds what the other has done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from uuid import UUID

from accounts.models import Account
from ledger.commands import Command, Leg, Refused
from ledger.holdings import find_holding
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from ledger.services import post
from transfers.bank.gateway import PaymentStatus
from transfers.models import LEGAL_MOVES, BankOrder
from transfers.services.bank_moves import Kind, Status, alert, command_of, move
from transfers.services.bank_returns import (
    Going,
    Shards,
    Told,
    fresh_returns,
    parties_of,
    plan_returns,
    record_returns,
    waiting_returns,
)
from wallet_project.kernel.db import demand_transaction, lock_rows

Type = JournalTransaction.Type

_MEANING = {
    PaymentStatus.ACCEPTED: Status.SUBMITTED,
    PaymentStatus.SETTLED: Status.COMPLETED,
    PaymentStatus.REFUSED: Status.FAILED,
}


class Effect(Enum):
    """What news did to an order."""

    APPLIED = auto()
    NOTHING = auto()  # It was known.
    CONTRADICTION = auto()  # The order cannot be what the bank says it is.


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What the bank says of an order.

    Args:
        status: how far it is with it; None if it speaks of returns alone.
        returns: what went back, as far as told.
        cause: a `Cause`: how it was said.
        detail: in its own words.
        happened_at: the bank's time.
    """

    status: PaymentStatus | None
    returns: Sequence[Told] = ()
    cause: str
    detail: str = ""
    happened_at: datetime | None = None


def lock_order(order_id: UUID) -> BankOrder:
    """An order's row, locked; before any account."""
    (order,) = lock_rows(BankOrder.objects.filter(pk=order_id))
    return order


def apply_news(order: BankOrder, news: News) -> Effect:
    """Move an order, whose row is locked, to where the bank says it is, with its money; and count what was returned.

    Raises:
        DomainError: the wallet cannot take the money now, being as full as it may be. Nothing is to be kept of the
            transaction then.
    """
    demand_transaction()
    target = None if news.status is None else _MEANING[news.status]
    if target == order.status or (target == Status.SUBMITTED and not order.is_open):
        target = None  # Known; or said before what we have heard since.
    elif target is not None and target not in LEGAL_MOVES.get(order.status, ()):
        return Effect.CONTRADICTION
    fresh: list[Told] = []
    if Status.COMPLETED in (target, order.status):
        waiting = [] if target is None else waiting_returns(order)
        fresh = fresh_returns(order, [*waiting, *news.returns])
    if target is None and not fresh:
        return Effect.NOTHING
    if target == Status.FAILED and waiting_returns(order):
        alert(order, "BANK_RETURN_OF_FAILED", "The bank told of a return, and then that it never paid.")
    _carry_out(order, target, fresh, news)
    return Effect.APPLIED


def _carry_out(order: BankOrder, target: str | None, fresh: Sequence[Told], news: News) -> None:
    """Post all that is to be posted in one go, then write what it was for."""
    main = None if target is None else _money_of(order, target)
    going = _lock_and_plan(order, fresh, main) if fresh else []
    commands = [*([main] if main else []), *(item.command for item in going)]
    posted = _post(commands) if commands else []
    if target is not None:
        move(
            order,
            target,
            cause=news.cause,
            detail=news.detail,
            transaction_id=posted[0] if main else None,
            happened_at=news.happened_at,
        )
    if going:
        record_returns(order, dict(zip(posted[len(posted) - len(going) :], going, strict=True)))


def _money_of(order: BankOrder, target: str) -> Command | None:
    """The transaction that a move to there makes, if it makes one."""
    match order.kind, target:
        case Kind.DEPOSIT, Status.COMPLETED:
            return command_of(
                order,
                Type.DEPOSIT,
                _clearing_leg(order, -order.amount),
                Leg(account_id=order.account_id, amount=order.amount),
                key=f"order:{order.pk}:complete",
                to_account_id=order.account_id,
            )
        case Kind.WITHDRAWAL, Status.COMPLETED:
            return command_of(
                order,
                Type.SETTLEMENT,
                _hold_leg(order),
                _clearing_leg(order, order.amount),
                key=f"order:{order.pk}:complete",
                from_account_id=order.account_id,
            )
        case Kind.WITHDRAWAL, Status.FAILED:
            return command_of(
                order,
                Type.RELEASE,
                _hold_leg(order),
                Leg(account_id=order.account_id, amount=order.amount),
                key=f"order:{order.pk}:release",
                to_account_id=order.account_id,
            )
    return None


def _clearing_leg(order: BankOrder, amount: int) -> Leg:
    shard = draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency=order.account.currency)
    return Leg(account_id=shard, amount=amount, kind=Account.Kind.BANK_CLEARING)


def _hold_leg(order: BankOrder) -> Leg:
    holding = find_holding(order.pk)
    assert holding is not None  # noqa: S101  The database has no withdrawal without one.
    return Leg(account_id=holding.hold_account_id, amount=-order.amount, kind=Account.Kind.HOLD)


def _lock_and_plan(order: BankOrder, fresh: Sequence[Told], main: Command | None) -> list[Going]:
    """Returns depend on what the wallet has, so all accounts are locked before they are planned, once and sorted."""
    shards = Shards.draw(order)
    legs = () if main is None else main.legs
    ids = {*parties_of(order, shards), *(leg.account_id for leg in legs)}
    accounts = {account.pk: account for account in lock_rows(Account.objects.filter(pk__in=ids))}
    wallet = accounts[order.account_id]
    comes = sum(leg.amount for leg in legs if leg.account_id == wallet.pk)
    return plan_returns(order, fresh, wallet=wallet, balance=wallet.balance + comes, shards=shards)


def _post(commands: Sequence[Command]) -> list[UUID]:
    ids = []
    for outcome in post(commands):
        if isinstance(outcome, Refused):
            raise outcome.error
        ids.append(outcome.transaction_id)
    return ids
