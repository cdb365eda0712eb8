"""What workers do with orders: find those whose next step is due, ask the bank, and write down what it said.

A worker claims an order in one transaction, calls the bank in none, and records the answer in another. It may be killed
at any line, and two may work on one order: the next step stands in the database, and the bank knows one reference.
"""

import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from transfers.bank.gateway import (
    Direction,
    Instruction,
    NoAnswer,
    Payment,
    PaymentStatus,
    Refused,
    UnknownReference,
    gateway,
)
from transfers.models import BankOrder, BankOrderChange, Cause
from transfers.services.bank_moves import Kind, Status, alert, alert_stuck, move
from transfers.services.bank_outcomes import Effect, News, apply_news, lock_order
from transfers.services.bank_returns import Told
from wallet_project.kernel import clock
from wallet_project.kernel.db import lock_rows, run_in_transaction
from wallet_project.kernel.errors import DomainError, Unavailable

logger = logging.getLogger(__name__)

# Of one look: what a worker does until it looks again.
SWEEP_BATCH = 50
_RETRY_SECONDS = 5  # after the first try without an answer; doubled after each further one
_RETRY_MOST_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a worker has taken upon itself."""

    order_id: UUID
    instruction: Instruction
    submits: bool  # or else it asks
    may_submit: bool  # if the bank does not know the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The bank did not answer, or does not know an order that is done.

    Args:
        reason: in a sentence.
        submitted: whether the bank may have got the instruction just now.
        final: whether there is no use in asking again.
    """

    reason: str
    submitted: bool = False
    final: bool = False


def due_orders() -> list[UUID]:
    """The orders whose next step is due, the longest due first; as many as one look takes."""
    due = BankOrder.objects.filter(next_step_at__lte=clock.now()).order_by("next_step_at")
    return list(due.values_list("pk", flat=True)[:SWEEP_BATCH])


def advance(order_id: UUID) -> None:
    """Do an order's next step, if it is due and nobody else is at it.

    Raises:
        RuntimeError: a transaction is open; the bank is not called in one.
    """
    step = run_in_transaction(lambda: _claim(order_id))
    if step is None:
        return
    heard = _call(step)
    try:
        run_in_transaction(lambda: _record(order_id, heard))
    except Unavailable:
        raise
    except DomainError as refusal:
        detail = f"What the bank says cannot be booked: {refusal.detail}"
        run_in_transaction(lambda: alert_stuck(lock_order(order_id), detail))


def _claim(order_id: UUID) -> Step | None:
    due = BankOrder.objects.filter(pk=order_id, next_step_at__lte=clock.now())
    found = lock_rows(due, skip_locked=True)
    if not found:
        return None
    (order,) = found
    submits = order.status == Status.PENDING
    if submits:
        # Committed before the bank hears of it: from here on it is asked first.
        move(order, Status.SUBMITTED, cause=Cause.SUBMIT)
    order.attempts += 1
    # By then this worker has its answer, or is dead.
    _schedule(order, max(_patience(), _backoff(order.attempts)))
    return Step(
        order_id=order.pk,
        instruction=_instruction(order),
        submits=submits,
        may_submit=order.is_open,
    )


def _instruction(order: BankOrder) -> Instruction:
    return Instruction(
        reference=order.bank_reference,
        direction=Direction.IN if order.kind == Kind.DEPOSIT else Direction.OUT,
        amount=order.amount,
        currency=order.account.currency,
        destination=order.destination or None,
        description=order.reference or f"{order.get_kind_display()} {order.bank_reference}",
    )


def _call(step: Step) -> News | Silence:
    """Ask the bank; an instruction that it does not know is sent, again with the same reference."""
    submitted = step.submits
    try:
        if submitted:
            return _said(gateway().submit(step.instruction))
        try:
            return _said(gateway().query(step.instruction))
        except UnknownReference:
            if not step.may_submit:
                return Silence(reason="The bank does not know a payment that it has settled.", final=True)
            submitted = True
            return _said(gateway().submit(step.instruction))
    except Refused as refusal:
        return News(status=PaymentStatus.REFUSED, cause=Cause.ANSWER, detail=refusal.reason)
    except NoAnswer as error:
        return Silence(reason=str(error), submitted=submitted)


def _said(payment: Payment) -> News:
    returns = [Told.of(item, cause=Cause.ANSWER, happened_at=payment.updated_at) for item in payment.returns]
    return News(
        status=payment.status,
        returns=returns,
        cause=Cause.ANSWER,
        detail=payment.reason or "",
        happened_at=payment.updated_at,
    )


def _record(order_id: UUID, heard: News | Silence) -> None:
    order = lock_order(order_id)
    if isinstance(heard, Silence):
        return _record_silence(order, heard)
    before = order.status
    if apply_news(order, heard) is Effect.CONTRADICTION:
        alert(order, "BANK_CONTRADICTION", f"The order is {order.status}, and the bank says {heard.status}.")
    if order.is_open:
        order.attempts = order.attempts if order.status == before else 1
        _schedule(order, min(settings.BANK_ASK_SECONDS * 2 ** (order.attempts - 1), _ask_most_seconds()))
    elif order.next_step_at is not None:
        _schedule(order, None)
    return None


def _record_silence(order: BankOrder, silence: Silence) -> None:
    logger.warning("order %s: no answer from the bank: %s", order.pk, silence.reason)
    if silence.submitted and order.status == Status.SUBMITTED:
        first = not BankOrderChange.objects.filter(order=order, to_status=Status.UNKNOWN).exists()
        move(order, Status.UNKNOWN, cause=Cause.NO_ANSWER, detail=silence.reason)
        if first:
            alert(order, "BANK_ORDER_UNKNOWN", f"The bank may have got it, or not: {silence.reason}")
    if silence.final and not order.is_open:
        alert(order, "BANK_CONTRADICTION", silence.reason)
        _schedule(order, None)
    elif order.next_step_at is not None:  # Or else a notice has come meanwhile.
        _schedule(order, _backoff(order.attempts))


def _schedule(order: BankOrder, seconds: float | None) -> None:
    order.next_step_at = None if seconds is None else _in(seconds)
    order.save(update_fields=["attempts", "next_step_at"])


def _in(seconds: float) -> datetime:
    # Not all at one moment, after the bank was away.
    return clock.now() + timedelta(seconds=seconds * random.uniform(0.9, 1.1))  # noqa: S311  It guards nothing.


def _patience() -> float:
    """Longer than a question and an instruction may take together."""
    return float(3 * settings.BANK_TIMEOUT_SECONDS)


def _backoff(attempts: int) -> float:
    return float(min(_RETRY_SECONDS * 2 ** min(attempts - 1, 20), _RETRY_MOST_SECONDS))


def _ask_most_seconds() -> float:
    return float(max(settings.BANK_ASK_SECONDS, _RETRY_MOST_SECONDS))
