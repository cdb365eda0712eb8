"""What the bank writes, read strictly: a member that is missing, unknown or of another type spoils the whole."""

from typing import Any

from rest_framework import serializers

from transfers.bank.gateway import (
    Direction,
    Instruction,
    NoAnswer,
    Notice,
    NoticeEvent,
    Payment,
    PaymentStatus,
    Return,
)
from wallet_project.kernel import strict_json
from wallet_project.kernel.errors import FieldError, InvalidRequest, Malformed
from wallet_project.kernel.fields import AmountField, CodeField, MomentField, StrictSerializer, TextField

_MAX_ID = 64
_MAX_REASON = 500
_CURRENCY_LETTERS = 3


class ReturnsField(serializers.Field[tuple[Return, ...], Any, Any, Any]):
    """The returns of a payment, each `{returnId, amount}`."""

    default_error_messages = {
        "invalid": "This must be a list of returns.",
        "repeated": "A return stands there twice.",
    }

    def to_internal_value(self, data: Any) -> tuple[Return, ...]:
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            self.fail("invalid")
        returns = tuple(Return(**_RETURN.parse(item)) for item in data)
        if len({item.return_id for item in returns}) < len(returns):
            self.fail("repeated")
        return returns


class ReturnSerializer(StrictSerializer):
    return_id = TextField(max_length=_MAX_ID)
    amount = AmountField()


class PaymentSerializer(StrictSerializer):
    reference = TextField(max_length=_MAX_ID)
    direction = CodeField(choices=list(Direction))
    amount = AmountField()
    currency = TextField(min_length=_CURRENCY_LETTERS, max_length=_CURRENCY_LETTERS)
    status = CodeField(choices=list(PaymentStatus))
    reason = TextField(max_length=_MAX_REASON, allow_null=True)
    returns = ReturnsField()
    updated_at = MomentField()


class NoSerializer(StrictSerializer):
    """The bank's no: to an instruction, or to a question about a reference that it does not know."""

    reference = TextField(max_length=_MAX_ID)
    reason = TextField(max_length=_MAX_REASON)


class NoticeSerializer(StrictSerializer):
    notice_id = TextField(max_length=_MAX_ID)
    reference = TextField(max_length=_MAX_ID)
    event = CodeField(choices=list(NoticeEvent))
    amount = AmountField()
    currency = TextField(min_length=_CURRENCY_LETTERS, max_length=_CURRENCY_LETTERS)
    return_id = TextField(max_length=_MAX_ID, allow_null=True)
    reason = TextField(max_length=_MAX_REASON, allow_null=True)
    occurred_at = MomentField()


_RETURN = ReturnSerializer()
_PAYMENT = PaymentSerializer()
_NO = NoSerializer()
_NOTICE = NoticeSerializer()


def write_instruction(instruction: Instruction) -> bytes:
    """The body of a submit; the reference stands in the path."""
    return strict_json.dumps(
        {
            "direction": instruction.direction,
            "amount": instruction.amount,
            "currency": instruction.currency,
            "destination": instruction.destination,
            "description": instruction.description,
        }
    )


def read_payment(body: bytes, *, of: Instruction) -> Payment:
    """The bank's answer about the payment that an instruction asked for.

    Raises:
        NoAnswer: it cannot be read, is about another payment, or says what cannot be.
    """
    payment = _payment(_answer(body, _PAYMENT))
    for name in ("reference", "direction", "amount", "currency"):
        if getattr(payment, name) != getattr(of, name):
            raise NoAnswer(f"The bank's answer has another {name} than the order.")
    returned = sum(item.amount for item in payment.returns)
    if returned > payment.amount or (returned and payment.status is not PaymentStatus.SETTLED):
        raise NoAnswer("The bank's answer returns what was not settled.")
    return payment


def read_no(body: bytes, *, of: Instruction) -> str:
    """The reason that the bank gives for its no.

    Raises:
        NoAnswer: it is not the bank that said so, or not about this payment; a proxy says 404, too.
    """
    answer = _answer(body, _NO)
    if answer["reference"] != of.reference:
        raise NoAnswer("The bank's answer has another reference than the order.")
    reason: str = answer["reason"]
    return reason


def read_notice(body: bytes) -> Notice:
    """A notice, from a body whose signature was checked.

    Raises:
        InvalidJSON: it is no JSON that two readers understand alike.
        InvalidRequest: it is no notice; `fields` names what is wrong.
    """
    values = _object(body, _NOTICE)
    event = NoticeEvent(values["event"])
    if (event is NoticeEvent.RETURNED) != (values["return_id"] is not None):
        fault = FieldError(field="returnId", code="invalid", detail="RETURNED has one, and nothing else has.")
        raise InvalidRequest(f"{fault.field}: {fault.detail}", fields=[fault])
    return Notice(**{**values, "event": event})


def _payment(values: dict[str, Any]) -> Payment:
    typed = {"direction": Direction(values["direction"]), "status": PaymentStatus(values["status"])}
    return Payment(**{**values, **typed})


def _answer(body: bytes, serializer: StrictSerializer) -> dict[str, Any]:
    try:
        return _object(body, serializer)
    except Malformed as error:
        raise NoAnswer("The bank's answer is not what was agreed on.") from error


def _object(body: bytes, serializer: StrictSerializer) -> dict[str, Any]:
    value = strict_json.loads(body)
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be an object.")
    return serializer.parse(value)
