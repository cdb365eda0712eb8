"""Money of completed orders that goes back: withdrawals that the bank sent back, deposits that it took back.

Building blocks. The order's row is locked; the accounts are too, so that what a wallet has is known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from accounts.models import Account, Freeze
from accounts.selectors import system_user_id
from accounts.services import add_freeze
from ledger.commands import Command, Leg
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from transfers.bank.gateway import Return
from transfers.models import BankNotice, BankOrder, BankReturn
from transfers.services.bank_moves import Kind, alert, command_of
from wallet_project.kernel.money import MAX_AMOUNT

Type = JournalTransaction.Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A return that the bank has told of, and how."""

    return_id: str
    amount: int
    cause: str
    happened_at: datetime | None

    @classmethod
    def of(cls, item: Return, *, cause: str, happened_at: datetime | None) -> "Told":
        return cls(return_id=item.return_id, amount=item.amount, cause=cause, happened_at=happened_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The shards of the system's accounts that returns of one order go through."""

    clearing: int
    other: int  # of SUSPENSE for a withdrawal, of RECEIVABLE for a deposit

    @classmethod
    def draw(cls, order: BankOrder) -> "Shards":
        currency = order.account.currency
        return cls(
            clearing=draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency=currency),
            other=draw_system_shard(kind=_other_kind(order), currency=currency),
        )


def _other_kind(order: BankOrder) -> str:
    return Account.Kind.RECEIVABLE if order.kind == Kind.DEPOSIT else Account.Kind.SUSPENSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """A return with its transaction to be: how much of it the wallet gives or gets; the rest is the other shard's."""

    told: Told
    command: Command
    of_wallet: int

    @property
    def of_other(self) -> int:
        return self.told.amount - self.of_wallet


def waiting_returns(order: BankOrder) -> list[Told]:
    """What was told of before the order was completed, oldest first."""
    notices = BankNotice.objects.filter(order=order, outcome=BankNotice.Outcome.WAITING, event="RETURNED")
    return [
        Told(return_id=row.return_id, amount=row.amount, cause="NOTICE", happened_at=row.occurred_at)
        for row in notices.order_by("pk")
    ]


def fresh_returns(order: BankOrder, told: Iterable[Told]) -> list[Told]:
    """Those that have not been counted yet, as far as the order's amount goes; staff are told of what goes beyond it,
    and of a return that has another amount than it had before.
    """
    known = dict(BankReturn.objects.filter(order=order).values_list("return_id", "amount"))
    left = order.amount - order.returned
    fresh = []
    for item in told:
        if item.return_id in known:
            if known[item.return_id] != item.amount:
                alert(order, "BANK_RETURN_DIFFERS", f"Return {item.return_id} is now {item.amount}.")
            continue
        if item.amount > left:
            alert(order, "BANK_RETURN_EXCEEDS", f"Return {item.return_id} of {item.amount}: only {left} is left.")
            continue
        known[item.return_id] = item.amount
        left -= item.amount
        fresh.append(item)
    return fresh


def plan_returns(
    order: BankOrder, fresh: Sequence[Told], *, wallet: Account, balance: int, shards: Shards
) -> list[Going]:
    """The transactions of returns, one after the other.

    Args:
        wallet: the order's, as it is under its lock.
        balance: what will be in it when the first return is made, in minor units.
    """
    planned = []
    for told in fresh:
        plan = _plan_chargeback if order.kind == Kind.DEPOSIT else _plan_return
        going = plan(order, told, wallet=wallet, balance=balance, shards=shards)
        balance += -going.of_wallet if order.kind == Kind.DEPOSIT else going.of_wallet
        planned.append(going)
    return planned


def _plan_return(order: BankOrder, told: Told, *, wallet: Account, balance: int, shards: Shards) -> Going:
    """Back into the wallet; whole into SUSPENSE, if that cannot take it."""
    takes = wallet.status == Account.Status.ACTIVE and balance + told.amount <= MAX_AMOUNT
    taker = Leg(account_id=wallet.pk, amount=told.amount) if takes else _other_leg(order, told.amount, shards)
    command = command_of(
        order,
        Type.RETURN,
        _clearing_leg(-told.amount, shards),
        taker,
        key=_key(order, told),
        to_account_id=wallet.pk if takes else None,
    )
    return Going(told=told, command=command, of_wallet=told.amount if takes else 0)


def _plan_chargeback(order: BankOrder, told: Told, *, wallet: Account, balance: int, shards: Shards) -> Going:
    """What the wallet has goes back; the rest is what its owner owes us."""
    taken = min(balance, told.amount) if wallet.status == Account.Status.ACTIVE else 0
    owed = told.amount - taken
    legs = [Leg(account_id=wallet.pk, amount=-taken)] if taken else []
    legs += [_other_leg(order, -owed, shards)] if owed else []
    command = command_of(
        order,
        Type.CHARGEBACK,
        *legs,
        _clearing_leg(told.amount, shards),
        key=_key(order, told),
        from_account_id=wallet.pk,
        facts={"owed": owed},
    )
    return Going(told=told, command=command, of_wallet=taken)


def _clearing_leg(amount: int, shards: Shards) -> Leg:
    return Leg(account_id=shards.clearing, amount=amount, kind=Account.Kind.BANK_CLEARING)


def _other_leg(order: BankOrder, amount: int, shards: Shards) -> Leg:
    return Leg(account_id=shards.other, amount=amount, kind=_other_kind(order))


def _key(order: BankOrder, told: Told) -> str:
    # The bank's id may be as long as a key.
    return f"order:return:{uuid5(order.pk, told.return_id)}"


def record_returns(order: BankOrder, made: Mapping[UUID, Going]) -> None:
    """Count returns whose transactions are in the book, and do what they ask for beyond that."""
    for transaction_id, going in made.items():
        BankReturn.objects.create(
            order=order,
            return_id=going.told.return_id,
            amount=going.told.amount,
            cause=going.told.cause,
            transaction_id=transaction_id,
            happened_at=going.told.happened_at,
        )
    order.refresh_from_db(fields=["returned"])
    rest = sum(going.of_other for going in made.values())
    if rest and order.kind == Kind.DEPOSIT:
        _stop_debtor(order, owed=rest)
    elif rest:
        alert(order, "MONEY_IN_SUSPENSE", f"{rest} came back for a wallet that cannot take it.")


def _stop_debtor(order: BankOrder, *, owed: int) -> None:
    alert(order, "CHARGEBACK_OWED", f"The bank took a deposit back; {owed} of it had been spent.")
    wallet = Account.objects.get(pk=order.account_id)
    stands = Freeze.objects.filter(account_id=wallet.pk, cause=Freeze.Cause.CHARGEBACK, thaw=None).exists()
    if wallet.status == Account.Status.ACTIVE and not stands:
        reason = f"The bank took deposit {order.pk} back; {owed} of it had been spent."
        add_freeze(account_id=wallet.pk, cause=Freeze.Cause.CHARGEBACK, reason=reason, made_by_id=system_user_id())


def parties_of(order: BankOrder, shards: Shards) -> Collection[int]:
    """The accounts that returns of an order touch."""
    return {order.account_id, shards.clearing, shards.other}
