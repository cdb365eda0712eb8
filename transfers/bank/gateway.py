"""The gateway to the bank: the interface, what is said over it, and what a caller may conclude from each answer.

A payment is known to both sides by its reference: ours to choose, one per order, the same at every try. Whoever calls
holds no database transaction open, for a call takes up to `BANK_TIMEOUT_SECONDS`. The gateway never tries twice by
itself: when to ask again is the order's business.
"""

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string

_REFERENCE = re.compile("[A-Za-z0-9_-]{1,64}", re.ASCII)


class Direction(StrEnum):
    """Which way the money goes, as the book sees it."""

    IN = "IN"
    OUT = "OUT"


class PaymentStatus(StrEnum):
    """What the bank says of a payment. The last two are final; a settled one may still be returned."""

    ACCEPTED = "ACCEPTED"
    SETTLED = "SETTLED"
    REFUSED = "REFUSED"


class NoticeEvent(StrEnum):
    """What the bank tells unasked."""

    SETTLED = "SETTLED"
    REFUSED = "REFUSED"
    RETURNED = "RETURNED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What the bank is to do. Sent again, it is the same in every field."""

    reference: str
    direction: Direction
    amount: int  # minor units, positive
    currency: str
    destination: str | None = field(repr=False)  # where the money is to go; None for money in
    description: str = field(repr=False)

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: the reference cannot stand in an address, or the amount is not positive.
        """
        if not _REFERENCE.fullmatch(self.reference) or self.amount <= 0:
            raise ValueError("This is no instruction for a bank.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Money of a settled payment that went back, in whole or part."""

    return_id: str  # the bank's, once per payment
    amount: int  # minor units, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """What the bank says of a payment that it has taken. The first four fields are those of the instruction."""

    reference: str
    direction: Direction
    amount: int  # minor units
    currency: str
    status: PaymentStatus
    reason: str | None  # why it was refused, in the bank's words
    returns: tuple[Return, ...]
    updated_at: datetime  # the bank's time


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What the bank tells unasked, well-formed and signed; that it fits an order has still to be looked at."""

    notice_id: str  # the bank's; a notice sent again has the same
    reference: str
    event: NoticeEvent
    amount: int  # minor units, positive; of RETURNED, what went back
    currency: str
    return_id: str | None  # of RETURNED, and of no other
    reason: str | None
    occurred_at: datetime  # the bank's time


class BankError(Exception):
    """No payment came of a call; which of the three is it? The text is a sentence without destination or secret."""


class Refused(BankError):
    """The bank will not take this instruction, now or later, and has not taken it before: the money stays here.

    Args:
        reason: the bank's own words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoAnswer(BankError):
    """Nobody knows whether the bank has taken it.

    No connection, a timeout, a reset; an error of a server or a proxy; our key not accepted; an answer that is broken,
    or about another payment or amount. The caller may conclude nothing: the money stays where it is, and the bank is
    asked by `query` until it answers.
    """


class UnknownReference(BankError):
    """The bank was asked, and does not know the reference.

    That is no refusal: an instruction that seemed lost may still be on its way. The caller may send it again, with the
    same reference, and must not give the money back.
    """


class BankGateway(Protocol):
    """A way to a bank. Its methods are called by several threads at a time."""

    def submit(self, instruction: Instruction) -> Payment:
        """Ask the bank to do it. Sent again with the same reference, it is answered again and done once.

        An answer, whatever its status, says that the bank has it in its book: SETTLED and REFUSED are final.

        Raises:
            Refused: the bank will never take it.
            NoAnswer: nobody knows whether it was taken.
        """
        ...

    def query(self, instruction: Instruction) -> Payment:
        """Ask what has become of it. The whole instruction is needed, since an answer has to fit it.

        Raises:
            UnknownReference: the bank does not know it; it may be sent again.
            NoAnswer: the bank could not be asked.
        """
        ...

    def verify(self, *, headers: Mapping[str, str], body: bytes) -> Notice:
        """Read a notice that somebody sent to our door.

        Args:
            headers: the request's; looked up without regard to case, as Django's are.
            body: as it came, before any parser.

        Raises:
            SignatureInvalid: it is not from the bank, or not from now.
            InvalidRequest: it is from the bank, and not a notice; `fields` names what is wrong.
            InvalidJSON: it is from the bank, and no JSON.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSettings:
    """How the bank is reached; what every gateway is made from."""

    url: str
    api_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(repr=False)  # any of them may have signed a notice
    timeout_seconds: float  # of a whole call
    callback_window_seconds: int  # how old a notice may be, or how far ahead of our clock


def gateway() -> BankGateway:
    """The gateway of this process, with its open connections; made at the first call, and anew after a fork."""
    options = BankSettings(
        url=settings.BANK_URL,
        api_key=settings.BANK_API_KEY,
        webhook_secrets=tuple(settings.BANK_WEBHOOK_SECRETS),
        timeout_seconds=settings.BANK_TIMEOUT_SECONDS,
        callback_window_seconds=settings.BANK_CALLBACK_WINDOW_SECONDS,
    )
    return _kept(os.getpid(), settings.BANK_GATEWAY, options)


@functools.lru_cache(maxsize=1)
def _kept(_pid: int, path: str, options: BankSettings) -> BankGateway:
    return cast("BankGateway", import_string(path)(options))
