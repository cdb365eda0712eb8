"""The bank's notices: each is kept as it came, in the transaction of what it does."""

from collections.abc import Mapping

from outbox.alerts import raise_alert
from transfers.bank.gateway import Notice, NoticeEvent, PaymentStatus, gateway
from transfers.models import BankNotice, BankOrder, BankReturn, Cause
from transfers.services.bank_moves import Status, alert_stuck, facts_of
from transfers.services.bank_outcomes import Effect, News, apply_news
from transfers.services.bank_returns import Told
from wallet_project.kernel.db import LostRace, lock_rows, run_in_transaction, translated
from wallet_project.kernel.errors import DomainError, Unavailable

Outcome = BankNotice.Outcome

_STATUS = {NoticeEvent.SETTLED: PaymentStatus.SETTLED, NoticeEvent.REFUSED: PaymentStatus.REFUSED}
# What staff have to look at: the bank and we do not agree.
_ALERTS: Mapping[str, str] = {
    Outcome.UNKNOWN_REFERENCE: "The bank tells of a payment that is no order of ours.",
    Outcome.ILLEGAL_MOVE: "The bank tells what cannot be in the order's state.",
    Outcome.MISMATCH: "The bank tells of another amount or currency than the order has.",
}


def take_notice(*, headers: Mapping[str, str], body: bytes) -> str:
    """Take what somebody sent to the bank's door.

    Args:
        headers: the request's.
        body: as it came.

    Returns:
        What came of it, a `BankNotice.Outcome`. Whatever it is, the bank need not send it again.

    Raises:
        SignatureInvalid: it is not from the bank, or not from now.
        InvalidRequest, InvalidJSON: it is from the bank, and no notice.
        Unavailable: it was not taken; the bank is to send it again.
    """
    notice = gateway().verify(headers=headers, body=body)
    try:
        return run_in_transaction(lambda: _take(notice, body))
    except Unavailable:
        raise
    except DomainError as refusal:
        # True, but the wallet is as full as it may be. The order stays open, so the bank is asked until it is not.
        detail = f"What the bank says cannot be booked: {refusal.detail}"
        return run_in_transaction(lambda: _keep_for_later(notice, body, detail))


def _take(notice: Notice, body: bytes) -> str:
    order = _locked_order(notice)
    if _is_repeated(notice):
        return Outcome.REPEATED
    outcome = Outcome.UNKNOWN_REFERENCE if order is None else _apply(notice, order)
    _keep(notice, body, order, outcome)
    if outcome in _ALERTS:
        _alert(notice, order, code=f"BANK_NOTICE_{outcome}", detail=_ALERTS[outcome])
    return outcome


def _locked_order(notice: Notice) -> BankOrder | None:
    """All notices of one order wait for each other here."""
    found = lock_rows(BankOrder.objects.filter(bank_reference=notice.reference))
    return found[0] if found else None


def _is_repeated(notice: Notice) -> bool:
    known = BankNotice.objects.filter(notice_id=notice.notice_id).first()
    if known is None:
        return False
    if _facts(notice) != {name: getattr(known, name) for name in _facts(notice)}:
        _alert(notice, known.order, code="BANK_NOTICE_REUSED", detail="Two notices of the bank's have one id.")
    return True


def _apply(notice: Notice, order: BankOrder) -> str:
    if notice.currency != order.account.currency:
        return Outcome.MISMATCH
    if notice.event == NoticeEvent.RETURNED:
        return _apply_return(notice, order)
    if notice.amount != order.amount:
        return Outcome.MISMATCH
    news = News(
        status=_STATUS[notice.event],
        cause=Cause.NOTICE,
        detail=notice.reason or "",
        happened_at=notice.occurred_at,
    )
    match apply_news(order, news):
        case Effect.APPLIED:
            return Outcome.APPLIED
        case Effect.NOTHING:
            return Outcome.REPEATED
        case Effect.CONTRADICTION:
            return Outcome.ILLEGAL_MOVE


def _apply_return(notice: Notice, order: BankOrder) -> str:
    known_amount = _known_return(notice, order)
    if known_amount is not None:
        return Outcome.REPEATED if known_amount == notice.amount else Outcome.MISMATCH
    if order.status in (Status.SUBMITTED, Status.UNKNOWN) and notice.amount <= order.amount:
        return Outcome.WAITING
    if order.status != Status.COMPLETED or notice.amount > order.amount - order.returned:
        return Outcome.ILLEGAL_MOVE
    assert notice.return_id is not None  # noqa: S101  The gateway reads no such notice without one.
    told = Told(return_id=notice.return_id, amount=notice.amount, cause=Cause.NOTICE, happened_at=notice.occurred_at)
    apply_news(order, News(status=None, returns=[told], cause=Cause.NOTICE, happened_at=notice.occurred_at))
    return Outcome.APPLIED


def _known_return(notice: Notice, order: BankOrder) -> int | None:
    """The amount of the return, if it was counted before, or waits to be."""
    counted = BankReturn.objects.filter(order=order, return_id=notice.return_id)
    waiting = BankNotice.objects.filter(order=order, return_id=notice.return_id, outcome=Outcome.WAITING)
    for found in (counted, waiting):
        amount = found.values_list("amount", flat=True).first()
        if amount is not None:
            return amount
    return None


def _keep(notice: Notice, body: bytes, order: BankOrder | None, outcome: str) -> None:
    with translated({"bank_notice_notice_id_key": LostRace}):
        BankNotice.objects.create(notice_id=notice.notice_id, order=order, body=body, outcome=outcome, **_facts(notice))


def _facts(notice: Notice) -> dict[str, object]:
    return {
        "reference": notice.reference,
        "event": notice.event.value,
        "amount": notice.amount,
        "currency": notice.currency,
        "return_id": notice.return_id or "",
        "reason": notice.reason or "",
        "occurred_at": notice.occurred_at,
    }


def _keep_for_later(notice: Notice, body: bytes, detail: str) -> str:
    order = _locked_order(notice)
    if _is_repeated(notice):
        return Outcome.REPEATED
    _keep(notice, body, order, Outcome.WAITING)
    if order is not None:
        alert_stuck(order, detail)
    return Outcome.WAITING


def _alert(notice: Notice, order: BankOrder | None, *, code: str, detail: str) -> None:
    about = {} if order is None else facts_of(order.kind, order.pk)
    raise_alert(
        code=code,
        detail=detail,
        subject={"noticeId": notice.notice_id, "reference": notice.reference, **about},
        account_id=None if order is None else order.account_id,
    )
