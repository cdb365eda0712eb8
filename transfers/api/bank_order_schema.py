"""Deposits, withdrawals and the bank's notices, described for the OpenAPI document."""

from typing import Any

from accounts.errors import AccountNotFound
from ledger.errors import (
    AccountClosed,
    AccountFrozen,
    BalanceLimitExceeded,
    InsufficientFunds,
    LimitExceeded,
)
from transfers.api import bank_orders
from transfers.api.schema_words import AT, CURRENCY, TRANSACTION_ID
from transfers.bank.errors import SignatureInvalid
from transfers.errors import BankOrderNotFound
from transfers.models import BankNotice, BankOrder, Cause
from wallet_project.kernel.openapi import (
    Answer,
    Operation,
    Schema,
    instant,
    money,
    number,
    record,
    ref,
    text,
    uuid,
    word,
)

DEPOSIT_ID = "01a22db1-0c7e-7a11-8d2f-5b6c8d1c0f22"
WITHDRAWAL_ID = "01a22db2-4d1f-7b36-9c0d-7f1e2d3c4b5a"


def _change(status: str, cause: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "at": AT, "cause": cause, "reason": None, "transactionId": None, **more}


REQUESTED_DEPOSIT = {"depositId": DEPOSIT_ID, "status": "PENDING"}
REQUESTED_WITHDRAWAL = {"withdrawalId": WITHDRAWAL_ID, "status": "PENDING"}
DEPOSIT: dict[str, Any] = {
    "depositId": DEPOSIT_ID,
    "status": "COMPLETED",
    "accountId": 1001,
    "amount": 500_000,
    "currency": "VND",
    "reference": "savings",
    "returnedAmount": 0,
    "createdAt": AT,
    "history": [
        _change("PENDING", "REQUEST"),
        _change("SUBMITTED", "SUBMIT"),
        _change("COMPLETED", "NOTICE", transactionId=TRANSACTION_ID),
    ],
    "returns": [],
}
WITHDRAWAL: dict[str, Any] = {
    **{name: value for name, value in DEPOSIT.items() if name != "depositId"},
    "withdrawalId": WITHDRAWAL_ID,
    "status": "FAILED",
    "reference": None,
    "history": [
        _change("PENDING", "REQUEST", transactionId=WITHDRAWAL_ID),
        _change("SUBMITTED", "SUBMIT"),
        _change("FAILED", "NOTICE", reason="Account closed", transactionId=TRANSACTION_ID),
    ],
    "destination": "VCB 0071000123456",
}

NOTICE = {
    "noticeId": "N-20261130-0001",
    "reference": WITHDRAWAL_ID.replace("-", ""),
    "event": "SETTLED",
    "amount": 500_000,
    "currency": "VND",
    "returnId": None,
    "reason": None,
    "occurredAt": AT,
}

_STATUS = word(
    "PENDING: asked for. SUBMITTED: being sent to the bank, or with it. UNKNOWN: the bank did not answer, and is asked "
    "until it does. COMPLETED, FAILED: for ever.",
    *BankOrder.Status,
)
_CHANGE = record(
    "A move of an order.",
    {
        "status": _STATUS,
        "at": instant("When."),
        "cause": word("What made it move.", *Cause),
        "reason": text("Why the bank refused, in its own words; null for all else.", null=True),
        "transactionId": uuid("The transaction that moved money of the wallet with it, if one did.", null=True),
    },
)
_RETURN = record(
    "Money of a completed order that went back: of a deposit to the bank, of a withdrawal to the wallet.",
    {"amount": money("What went back.", minimum=1), "at": instant("When.")},
)
_ORDER: dict[str, Schema] = {
    "status": _STATUS,
    "accountId": number("The caller's wallet."),
    "amount": money("What was asked for.", minimum=1),
    "currency": CURRENCY,
    "reference": text("What for.", null=True),
    "returnedAmount": money("How much of it has gone back since it was completed."),
    "createdAt": instant("When it was asked for."),
    "history": {"type": "array", "items": ref("OrderChange"), "description": "All its moves, oldest first."},
    "returns": {"type": "array", "items": ref("OrderReturn"), "description": "What went back, oldest first."},
}

SCHEMAS: dict[str, Schema] = {
    "RequestedDeposit": record(
        "A deposit that was asked for.",
        {"depositId": uuid("The deposit."), "status": word("As it began.", "PENDING")},
    ),
    "RequestedWithdrawal": record(
        "A withdrawal that was asked for.",
        {"withdrawalId": uuid("The withdrawal."), "status": word("As it began.", "PENDING")},
    ),
    "Deposit": record("A deposit as it is now.", {"depositId": uuid("The deposit."), **_ORDER}),
    "Withdrawal": record(
        "A withdrawal as it is now.",
        {
            "withdrawalId": uuid("The withdrawal; also the transaction that took its money out of the wallet."),
            **_ORDER,
            "destination": text("Where the bank pays it to."),
        },
    ),
    "OrderChange": _CHANGE,
    "OrderReturn": _RETURN,
    "NoticeTaken": record(
        "A notice that was taken; the bank need not send it again.",
        {"outcome": word("What came of it.", *BankNotice.Outcome)},
    ),
}


def operations(tag: str, *, service: str) -> dict[str, Operation]:
    """The calls, as a part of this chapter; the bank's own in that of the service."""
    return {
        "POST /v1/deposits": Operation(
            id="deposit",
            tag=tag,
            summary="Ask the bank for money",
            description="Nothing moves now; the money is in the wallet as soon as the bank says that it has paid. A "
            "frozen wallet takes deposits, too.",
            body=bank_orders.DEPOSIT,
            example={"accountId": 1001, "amount": 500_000, "reference": "savings"},
            answers={
                202: Answer(
                    description="The bank will be asked.", schema=ref("RequestedDeposit"), example=REQUESTED_DEPOSIT
                )
            },
            errors=[AccountNotFound, AccountClosed, BalanceLimitExceeded],
            command=True,
        ),
        "GET /v1/deposits/{depositId}": Operation(
            id="getDeposit",
            tag=tag,
            summary="One deposit",
            description="With all its moves. Somebody else's answers like one that does not exist, and so does a "
            "withdrawal.",
            answers={200: Answer(description="The deposit.", schema=ref("Deposit"), example=DEPOSIT)},
            errors=[BankOrderNotFound],
        ),
        "POST /v1/withdrawals": Operation(
            id="withdraw",
            tag=tag,
            summary="Have money paid out by the bank",
            description="It leaves the wallet's `balance` now and stands in its `heldBalance` until the bank has paid, "
            "or is back if it refuses. Whatever happens on the way to the bank, it is paid once.",
            body=bank_orders.WITHDRAWAL,
            example={"accountId": 1001, "amount": 500_000, "destination": "VCB 0071000123456"},
            answers={
                202: Answer(
                    description="The money is on hold, and the bank will be asked.",
                    schema=ref("RequestedWithdrawal"),
                    example=REQUESTED_WITHDRAWAL,
                )
            },
            errors=[AccountNotFound, AccountClosed, AccountFrozen, LimitExceeded, InsufficientFunds],
            command=True,
        ),
        "GET /v1/withdrawals/{withdrawalId}": Operation(
            id="getWithdrawal",
            tag=tag,
            summary="One withdrawal",
            description="With all its moves. Somebody else's answers like one that does not exist, and so does a "
            "deposit.",
            answers={200: Answer(description="The withdrawal.", schema=ref("Withdrawal"), example=WITHDRAWAL)},
            errors=[BankOrderNotFound],
        ),
        "POST /v1/bank/callbacks": Operation(
            id="takeNotice",
            tag=service,
            summary="The bank's notices",
            description="For the bank alone, which signs each with HMAC-SHA256 over its time and its bytes "
            "(docs/bank.md). Any that is signed and well-formed is kept and answered with 200, even if it is a "
            "repetition, of no order of ours, or tells what cannot be; staff are told then.",
            body=bank_orders.NOTICE,
            example=NOTICE,
            headers=["Bank-Timestamp", "Bank-Signature"],
            answers={200: Answer(description="Taken.", schema=ref("NoticeTaken"), example={"outcome": "APPLIED"})},
            errors=[SignatureInvalid],
        ),
    }
