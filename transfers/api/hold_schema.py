"""Holds, described for the OpenAPI document."""

from typing import Any

from accounts.errors import AccountNotFound
from ledger.errors import (
    AccountClosed,
    AccountFrozen,
    BalanceLimitExceeded,
    CaptureExceedsHold,
    CurrencyMismatch,
    InsufficientFunds,
    LimitExceeded,
    SameAccount,
)
from transfers.api import holds
from transfers.api.schema_words import AT, TRANSACTION_ID, a_page_of
from transfers.errors import HoldNotFound
from transfers.models import Hold
from wallet_project.kernel.errors import IllegalState, InvalidCursor
from wallet_project.kernel.openapi import (
    Answer,
    Operation,
    Schema,
    instant,
    money,
    number,
    page_of,
    record,
    ref,
    uuid,
    word,
)

HOLD_ID = "01a22db0-7c3e-7d7c-9a57-2b6c8d1c0f11"
HOLD: dict[str, Any] = {
    "holdId": HOLD_ID,
    "status": "ACTIVE",
    "accountId": 1001,
    "toAccountId": 2002,
    "amount": 100_000,
    "capturedAmount": 0,
    "releasedAmount": 0,
    "expiresAt": "2026-12-07T17:00:00.000000Z",
    "createdAt": AT,
}
CAPTURED = {"transactionId": TRANSACTION_ID, "holdId": HOLD_ID, "status": "ACTIVE"}

_STATUS = word("ACTIVE: money is left. CAPTURED, VOIDED, EXPIRED: none is, for ever.", *Hold.Status)

SCHEMAS: dict[str, Schema] = {
    "Hold": record(
        "Money that is set aside. `amount` is what was set aside, of which `capturedAmount` went to payees and "
        "`releasedAmount` came back.",
        {
            "holdId": uuid("The hold."),
            "status": _STATUS,
            "accountId": number("The payer's wallet, which the money has left."),
            "toAccountId": number("Who alone may take it; null: the capture says who gets it.", null=True),
            "amount": money("What was set aside.", minimum=1),
            "capturedAmount": money("What was taken of it."),
            "releasedAmount": money("What came back of it."),
            "expiresAt": instant("From when on nothing can be taken; what is left comes back within seconds."),
            "createdAt": instant("When it was made."),
        },
    ),
    "HoldPage": page_of("Hold", "holds"),
    "Captured": record(
        "A capture that is in the book.",
        {
            "transactionId": uuid("The capture's transaction."),
            "holdId": uuid("The hold."),
            "status": word("The hold's, right after it: CAPTURED if it ended so.", "ACTIVE", "CAPTURED"),
        },
    ),
}


def operations(tag: str) -> dict[str, Operation]:
    """The calls, as a part of this chapter."""
    return {
        "POST /v1/holds": Operation(
            id="reserve",
            tag=tag,
            summary="Set money aside",
            description="It leaves the wallet's `balance` and stands in its `heldBalance` until it is captured, voided "
            "or expires. With `toAccountId` the payee captures and voids, and the payer only sees it; without, the "
            "payer does all, and names the payee at the capture. A replay tells of the hold as it was made.",
            body=holds.RESERVE,
            example={"accountId": 1001, "amount": 100_000, "toAccountId": 2002},
            answers={201: Answer(description="The hold.", schema=ref("Hold"), example=HOLD)},
            errors=[
                *(SameAccount, AccountNotFound, AccountClosed, AccountFrozen, CurrencyMismatch, LimitExceeded),
                InsufficientFunds,
            ],
            command=True,
        ),
        "GET /v1/holds": Operation(
            id="listHolds",
            tag=tag,
            summary="The caller's holds",
            description="What the caller's wallets have set aside, and what they are promised; newest first.",
            query=holds.HOLDS,
            answers={200: Answer(description="A page.", schema=ref("HoldPage"), example=a_page_of(HOLD))},
            errors=[AccountNotFound, InvalidCursor],
        ),
        "GET /v1/holds/{holdId}": Operation(
            id="getHold",
            tag=tag,
            summary="One hold",
            description="For its payer and its payee; somebody else's answers like one that does not exist.",
            answers={200: Answer(description="The hold.", schema=ref("Hold"), example=HOLD)},
            errors=[HoldNotFound],
        ),
        "POST /v1/holds/{holdId}/capture": Operation(
            id="capture",
            tag=tag,
            summary="Take what is on hold",
            description="A part, or without `amount` all that is left; as often as there is something left, until "
            "`expiresAt`. What takes the last ends the hold, and so does `final`, which sends the rest back. The body "
            "may be left out where the hold names the payee.",
            body=holds.CAPTURE,
            example={"amount": 60_000, "final": True},
            bodiless=True,
            answers={201: Answer(description="The payee has it.", schema=ref("Captured"), example=CAPTURED)},
            errors=[
                *(SameAccount, HoldNotFound, IllegalState, CaptureExceedsHold, AccountClosed, AccountFrozen),
                *(CurrencyMismatch, BalanceLimitExceeded),
            ],
            command=True,
        ),
        "POST /v1/holds/{holdId}/void": Operation(
            id="voidHold",
            tag=tag,
            summary="Give back what is on hold",
            description="All that was not captured. The body may be left out.",
            body=holds.VOID,
            example={},
            bodiless=True,
            answers={
                200: Answer(
                    description="The hold, ended.",
                    schema=ref("Hold"),
                    example={**HOLD, "status": "VOIDED", "releasedAmount": 100_000},
                )
            },
            errors=[HoldNotFound, IllegalState, BalanceLimitExceeded],
            command=True,
        ),
    }
