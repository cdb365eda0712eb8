"""Holds: money that is set aside for a merchant, then taken, at once or in parts, or given back.

Whoever touches a hold locks its row first, then the accounts; so what is left of it stays true until COMMIT.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.errors import AccountNotFound
from accounts.models import Account, Freeze
from accounts.selectors import confirm_caller, system_user_id
from accounts.services import Caller
from ledger.commands import Command, Leg, MoneyEvent, Posted, Refused, fingerprint_of
from ledger.errors import AccountClosed, AccountFrozen, CaptureExceedsHold, CurrencyMismatch, SameAccount
from ledger.holdings import Holding, find_holding
from ledger.keys import find_key
from ledger.models import JournalTransaction
from ledger.selectors import draw_system_shard
from ledger.services import post
from transfers.errors import CONSTRAINTS, HoldNotFound
from transfers.hold_selectors import captured_body, hold_body, reserved_body
from transfers.models import Hold
from transfers.services.once import Answer, answer_once
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows, run_in_transaction, translated
from wallet_project.kernel.errors import FieldError, IllegalState, InvalidRequest

TOPIC = "wallet.holds"

Status = Hold.Status
Type = JournalTransaction.Type

# The columns that the application may name.
_INSERT = (
    "INSERT INTO hold (transaction_id, account_id, to_account_id, expires_at, created_at) VALUES (%s, %s, %s, %s, %s)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signed:
    """Who sends a command, under which key, and what it says."""

    caller: Caller
    key: str
    fingerprint: bytes


def reserve(
    *,
    caller: Caller,
    key: str,
    account_id: int,
    amount: int,
    to_account_id: int | None = None,
    expires_at: datetime | None = None,
) -> Answer:
    """Set money of a wallet of the caller's aside, for a payee if one is named.

    Args:
        amount: minor units, 1 to 2^53 - 1.
        to_account_id: who alone may take it; None: the caller says at the capture who gets it.
        expires_at: when it comes back by itself, at most 30 days ahead; None: in 7 days.

    Raises:
        InvalidRequest: `expires_at` has passed, or is too far ahead.
        DomainError: refused, and nothing is left behind: TokenInvalid, IdempotencyKeyReused, SameAccount,
            AccountNotFound, AccountClosed, AccountFrozen, CurrencyMismatch, LimitExceeded, InsufficientFunds.
    """
    parameters = {
        "accountId": account_id,
        "amount": amount,
        "toAccountId": to_account_id,
        "expiresAt": None if expires_at is None else clock.rfc3339(expires_at),
    }
    signed = _Signed(caller=caller, key=key, fingerprint=fingerprint_of("reserve", parameters))

    def work() -> Answer:
        fault = _fault_of_expiry(expires_at, now=clock.now())
        if fault is not None and not _is_retry(signed, account_id):
            raise fault
        (posted,) = _post(_opening(signed, account_id, amount, to_account_id))
        if not posted.replayed:
            _make(posted, account_id=account_id, to_account_id=to_account_id, expires_at=expires_at)
        return Answer(status=201, body=reserved_body(posted.transaction_id), replayed=posted.replayed)

    return run_in_transaction(work)


def _fault_of_expiry(expires_at: datetime | None, *, now: datetime) -> InvalidRequest | None:
    if expires_at is None or now < expires_at <= now + Hold.LONGEST_LIFE:
        return None
    code, detail = ("past", "This moment has passed.") if expires_at <= now else ("too_far", "At most 30 days ahead.")
    return _fault("expiresAt", code, detail)


def _fault(field: str, code: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {detail}", fields=[FieldError(field=field, code=code, detail=detail)])


def _is_retry(signed: _Signed, account_id: int) -> bool:
    """Whether the command has succeeded before: what was in time when it was first sent is replayed for ever."""
    lock_rows(Account.objects.owned_by(signed.caller.user_id).filter(pk=account_id))
    known = find_key(initiator_id=signed.caller.user_id, key=signed.key)
    return known is not None and known.fingerprint == signed.fingerprint


def _opening(signed: _Signed, account_id: int, amount: int, to_account_id: int | None) -> Command:
    currency = Account.objects.wallets().filter(pk=account_id).values_list("currency", flat=True).first()
    # For a wallet that is not there any shard will do: `post` says so, after it has looked up the key.
    shard = draw_system_shard(kind=Account.Kind.HOLD, currency=currency or settings.CURRENCIES[0])
    hold_id = clock.new_id()
    return Command(
        initiator_id=signed.caller.user_id,
        stamp=signed.caller.stamp,
        key=signed.key,
        fingerprint=signed.fingerprint,
        type=Type.HOLD,
        legs=(
            Leg(account_id=account_id, amount=-amount, owner_id=signed.caller.user_id),
            Leg(account_id=shard, amount=amount, kind=Account.Kind.HOLD),
        ),
        event=_event(hold_id, account_id, Status.ACTIVE, from_account_id=account_id),
        payee_id=to_account_id,
        transaction_id=hold_id,
    )


def _event(
    hold_id: UUID,
    key_account_id: int,
    status: str,
    *,
    from_account_id: int | None = None,
    to_account_id: int | None = None,
) -> MoneyEvent:
    return MoneyEvent(
        topic=TOPIC,
        key_account_id=key_account_id,
        from_account_id=from_account_id,
        to_account_id=to_account_id,
        facts={"holdId": str(hold_id), "holdStatus": str(status)},
    )


def _make(posted: Posted, *, account_id: int, to_account_id: int | None, expires_at: datetime | None) -> None:
    fault = _fault_of_expiry(expires_at, now=posted.created_at)
    if fault is not None:  # The locks were a long wait.
        raise fault
    expires_at = expires_at or posted.created_at + Hold.DEFAULT_LIFE
    with translated(CONSTRAINTS), connection.cursor() as cursor:
        cursor.execute(_INSERT, [posted.transaction_id, account_id, to_account_id, expires_at, posted.created_at])


def capture(
    *,
    caller: Caller,
    key: str,
    hold_id: UUID,
    amount: int | None = None,
    to_account_id: int | None = None,
    final: bool | None = None,
) -> Answer:
    """Take a part of what is on hold, or the rest; whoever takes all ends the hold.

    Args:
        amount: minor units; None for all that is left.
        to_account_id: who gets it; needed where the hold names nobody.
        final: True: what is left after this goes back to the payer.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `transfer`.
        HoldNotFound: no such hold that the caller may command.
        InvalidRequest: nobody is named to get it, or somebody else than the hold's payee.
        SameAccount, AccountNotFound: it cannot be the payer's own wallet, and must be there.
        IllegalState: the hold has ended, or its time is over.
        CaptureExceedsHold: less is left than was asked for.
        AccountClosed, CurrencyMismatch, BalanceLimitExceeded: the payee's wallet does not allow it.
        AccountFrozen: the caller, who now names the payee, is frozen.
    """
    parameters = {"amount": amount, "toAccountId": to_account_id, "final": final or None}
    signed = _Signed(caller=caller, key=key, fingerprint=fingerprint_of(f"capture:{hold_id}", parameters))

    def work() -> Answer:
        hold = _locked(hold_id, caller)
        confirm_caller(caller)
        known = find_key(initiator_id=caller.user_id, key=key)
        if known is not None:
            known.must_match(signed.fingerprint)
            assert known.transaction_id is not None  # noqa: S101  Equal fingerprints are equal commands; this one posts.
            return Answer(status=201, body=captured_body(known.transaction_id), replayed=True)
        if hold is None:
            raise HoldNotFound(f"There is no hold {hold_id}.")
        captured = _take(signed, hold, amount, to_account_id, final=bool(final))
        return Answer(status=201, body=captured_body(captured.transaction_id), replayed=False)

    return run_in_transaction(work)


def _take(signed: _Signed, hold: Hold, amount: int | None, to_account_id: int | None, *, final: bool) -> Posted:
    holding = _holding(hold)
    payee = _payee(hold, holding, to_account_id)
    _check_state(hold)
    _check_payee(hold, holding, payee)
    taken = _amount(holding, amount)
    ends = final or taken == holding.left
    commands = [_capture(signed, hold, holding, payee.pk, taken, ends=ends)]
    if taken < holding.left and ends:
        commands.append(_release(hold, holding, holding.left - taken, status=Status.CAPTURED))
    captured, *_ = _post(*commands)
    _check_state(hold, now=captured.created_at)
    if ends:
        _end(hold, captured, status=Status.CAPTURED)
    return captured


def _locked(hold_id: UUID, caller: Caller) -> Hold | None:
    found = lock_rows(Hold.objects.commanded_by(caller.user_id).filter(pk=hold_id))
    return found[0] if found else None


def _holding(hold: Hold) -> Holding:
    holding = find_holding(hold.pk)
    assert holding is not None  # noqa: S101  The database has no hold without one.
    return holding


def _payee(hold: Hold, holding: Holding, to_account_id: int | None) -> Account:
    """Who gets the money; with that wallet, all accounts are locked that a capture may touch or ask about."""
    payee_id = hold.to_account_id or to_account_id
    if payee_id is None:
        raise _fault("toAccountId", "required", "The hold names nobody, so the capture must.")
    if to_account_id not in (None, payee_id):
        raise _fault("toAccountId", "other_payee", "The hold is for another wallet.")
    if payee_id == hold.account_id:
        raise SameAccount("The money on hold is the payee's own.")
    needed = (hold.account_id, holding.hold_account_id, payee_id)
    accounts = {account.pk: account for account in lock_rows(Account.objects.filter(pk__in=needed))}
    payee = accounts.get(payee_id)
    if payee is None or payee.kind != Account.Kind.WALLET or payee.parent_id is not None:
        raise AccountNotFound(f"There is no account {payee_id}.")
    return payee


def _check_state(hold: Hold, *, now: datetime | None = None) -> None:
    if hold.status != Status.ACTIVE:
        raise IllegalState(f"The hold is {hold.status}.")
    if (now or clock.now()) >= hold.expires_at:
        # The sweep may not have come by yet.
        raise IllegalState(f"The hold is {Status.EXPIRED}, since {clock.rfc3339(hold.expires_at)}.")


def _check_payee(hold: Hold, holding: Holding, payee: Account) -> None:
    if payee.status == Account.Status.CLOSED:
        raise AccountClosed(f"Account {payee.pk} is closed.")
    if hold.to_account_id is None and Freeze.objects.filter(account_id=hold.account_id, thaw=None).exists():
        raise AccountFrozen(f"Account {hold.account_id} is frozen, and so names nobody who gets its money.")
    if payee.currency != holding.currency:
        raise CurrencyMismatch("The accounts' currencies differ.")


def _amount(holding: Holding, amount: int | None) -> int:
    if amount is not None and amount > holding.left:
        raise CaptureExceedsHold(f"Only {holding.left} is left on hold.")
    return holding.left if amount is None else amount


def _capture(signed: _Signed, hold: Hold, holding: Holding, payee_id: int, amount: int, *, ends: bool) -> Command:
    return Command(
        initiator_id=signed.caller.user_id,
        stamp=signed.caller.stamp,
        key=signed.key,
        fingerprint=signed.fingerprint,
        type=Type.CAPTURE,
        legs=(
            Leg(account_id=holding.hold_account_id, amount=-amount, kind=Account.Kind.HOLD),
            Leg(account_id=payee_id, amount=amount),
        ),
        event=_event(
            hold.pk,
            hold.account_id,
            Status.CAPTURED if ends else Status.ACTIVE,
            from_account_id=hold.account_id,
            to_account_id=payee_id,
        ),
        continues_id=hold.pk,
    )


def void(*, caller: Caller, key: str, hold_id: UUID) -> Answer:
    """Give back what is left of a hold. It may be late: until the sweep comes by, whoever commands it may.

    Raises:
        TokenInvalid, IdempotencyKeyReused: as in `transfer`.
        HoldNotFound: no such hold that the caller may command.
        IllegalState: the hold has ended.
        BalanceLimitExceeded: the payer's wallet cannot take it.
    """

    def work() -> dict[str, Any]:
        hold = _locked(hold_id, caller)
        if hold is None:
            raise HoldNotFound(f"There is no hold {hold_id}.")
        if hold.status != Status.ACTIVE:
            raise IllegalState(f"The hold is {hold.status}.")
        release(hold, status=Status.VOIDED)
        return hold_body(hold)

    return answer_once(
        caller=caller,
        key=key,
        fingerprint=fingerprint_of(f"void:{hold_id}", {}),
        status=200,
        work=work,
        lock=lambda: _locked(hold_id, caller),
    )


def release(hold: Hold, *, status: str) -> Posted:
    """Give back all that is left of an active hold, which ends so; its row is locked.

    Args:
        status: what it ends as.

    Raises:
        BalanceLimitExceeded: the payer's wallet cannot take it.
        TransactionManagementError: no transaction is open.
    """
    holding = _holding(hold)
    (posted,) = _post(_release(hold, holding, holding.left, status=status))
    _end(hold, posted, status=status)
    return posted


def _release(hold: Hold, holding: Holding, amount: int, *, status: str) -> Command:
    """By whatever it is released, it is one command: so it is released once."""
    return Command(
        initiator_id=system_user_id(),
        key=f"hold:{hold.pk}:release",
        fingerprint=fingerprint_of(f"release:{hold.pk}", {}),
        type=Type.RELEASE,
        legs=(
            Leg(account_id=holding.hold_account_id, amount=-amount, kind=Account.Kind.HOLD),
            Leg(account_id=hold.account_id, amount=amount),
        ),
        event=_event(hold.pk, hold.account_id, status, to_account_id=hold.account_id),
        continues_id=hold.pk,
    )


def _post(*commands: Command) -> list[Posted]:
    """All of them or none.

    Raises:
        DomainError: the first one's refusal.
    """
    outcomes = post(commands)
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            raise outcome.error
    return [outcome for outcome in outcomes if isinstance(outcome, Posted)]


def _end(hold: Hold, posted: Posted, *, status: str) -> None:
    hold.status, hold.ended_by_id, hold.ended_at = status, posted.transaction_id, posted.created_at
    hold.save(update_fields=["status", "ended_by", "ended_at"])
