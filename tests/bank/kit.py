"""Instructions for a bank, and what became of a call."""

import uuid
from collections.abc import Callable
from typing import Any

from transfers.bank.gateway import BankError, Direction, Instruction, Payment


def instruction(words: str | None = None, **changes: Any) -> Instruction:
    """A withdrawal of 1000 đồng, to a destination that tells the bank these words."""
    values: dict[str, Any] = {
        "reference": str(uuid.uuid4()),
        "direction": Direction.OUT,
        "amount": 1_000,
        "currency": "VND",
        "destination": f"sandbox:{words}" if words else "VCB 0071000123456",
        "description": "Tiền nhà tháng 6",
    }
    return Instruction(**{**values, **changes})


def outcome(call: Callable[[Instruction], Payment], of: Instruction) -> Payment | type[BankError]:
    """What a call said: a payment, or which of the three errors."""
    try:
        return call(of)
    except BankError as error:
        return type(error)
