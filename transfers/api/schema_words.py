"""What the answers of this app's calls are made of: JSON Schemas, each with an example."""

from typing import Any

from django.conf import settings

from wallet_project.kernel.money import MAX_AMOUNT
from wallet_project.kernel.openapi import (
    Schema,
    instant,
    money,
    number,
    open_word,
    page_of,
    record,
    ref,
    text,
    uuid,
    word,
)

TRANSACTION_ID = "01a22daf-1602-744f-a315-6f0f53d1b7d0"
AT = "2026-11-30T17:00:00.000000Z"

ACCOUNT = {
    "accountId": 1001,
    "name": "Savings",
    "currency": "VND",
    "balance": 250_000,
    "heldBalance": 0,
    "availableBalance": 250_000,
    "status": "ACTIVE",
    "createdAt": AT,
}
BALANCE = {
    "accountId": 1001,
    "currency": "VND",
    "balance": 250_000,
    "heldBalance": 0,
    "availableBalance": 250_000,
    "at": AT,
}
ENTRY = {
    "entryId": 3,
    "transactionId": TRANSACTION_ID,
    "type": "TRANSFER",
    "amount": -100_000,
    "balanceAfter": 250_000,
    "counterpartyAccountId": 2002,
    "reference": "lunch",
    "createdAt": AT,
}
PAYEE = {"accountId": 2002, "name": "b••h"}
POSTED = {"transactionId": TRANSACTION_ID, "status": "COMPLETED"}
TRANSFER: dict[str, Any] = {
    **POSTED,
    "type": "TRANSFER",
    "amount": 100_000,
    "currency": "VND",
    "fromAccountId": 1001,
    "toAccountId": 2002,
    "reference": "lunch",
    "metadata": {"table": 7},
    "createdAt": AT,
    "reversesTransactionId": None,
    "reversalTransactionIds": [],
    "reversedAmount": 0,
}
REPRESENTATION = {**TRANSFER, "balanceAfter": 250_000}
OPERATION = {"status": 201, "body": POSTED}
NOTIFICATION = {
    "notificationId": 9,
    "type": "TRANSFER",
    "transactionId": TRANSACTION_ID,
    "accountId": 1001,
    "amount": -100_000,
    "currency": "VND",
    "text": "You sent ₫100,000.",
    "occurredAt": AT,
    "createdAt": AT,
}


def a_page_of(example: dict[str, Any]) -> dict[str, Any]:
    return {"items": [example], "nextCursor": None}


CURRENCY = word("ISO 4217.", *settings.CURRENCIES)
TYPE = open_word(
    "What it is:", "TRANSFER", "DEPOSIT", "WITHDRAWAL", "HOLD", "CAPTURE", "RELEASE", "RETURN", "REVERSAL", "CHARGEBACK"
)
SIGNED = money("As the wallet's owner sees it: negative is money out.", minimum=-MAX_AMOUNT)
REVERSES = uuid("What this reverses.", null=True)
REVERSALS: Schema = {
    "type": "array",
    "items": {"type": "string", "format": "uuid"},
    "description": "What reversed this, oldest first.",
}

_POSTED: dict[str, Schema] = {
    "transactionId": uuid("The transaction."),
    "status": word("The money has moved.", "COMPLETED"),
}
_TRANSFER: dict[str, Schema] = {
    **_POSTED,
    "type": TYPE,
    "amount": money("What moved.", minimum=1),
    "currency": CURRENCY,
    "fromAccountId": number("Null for the outside and the service.", null=True),
    "toAccountId": number("Null for the outside and the service.", null=True),
    "reference": text("What for; of a reversal, why.", null=True),
    "metadata": {
        "type": ["object", "null"],
        "additionalProperties": True,
        "description": "The app's own, as it was sent.",
    },
    "createdAt": instant("When it was made."),
    "reversesTransactionId": REVERSES,
    "reversalTransactionIds": REVERSALS,
    "reversedAmount": money("How much of it has gone back."),
}
_FIGURES: dict[str, Schema] = {
    "balance": money("What is in the wallet."),
    "heldBalance": money("What has left it for holds and withdrawals under way."),
    "availableBalance": money("What can be spent now: 0 while frozen."),
}

SCHEMAS: dict[str, Schema] = {
    "Account": record(
        "A wallet.",
        {
            "accountId": number("The wallet's number."),
            "name": text("The owner's own name for it.", null=True),
            "currency": CURRENCY,
            **_FIGURES,
            "status": word("FROZEN: it receives, and pays nothing. CLOSED: for ever.", "ACTIVE", "FROZEN", "CLOSED"),
            "createdAt": instant("When it was opened."),
        },
    ),
    "AccountPage": page_of("Account", "wallets"),
    "Balance": record(
        "A balance as it stood at `at`.",
        {
            "accountId": number("The wallet."),
            "currency": CURRENCY,
            "balance": money("What was in the wallet, entries of that very moment included."),
            "heldBalance": money("Null for a past moment.", null=True),
            "availableBalance": money("Null for a past moment.", null=True),
            "at": instant("The moment."),
        },
    ),
    "Entry": record(
        "What one transaction did to one wallet.",
        {
            "entryId": number("The item."),
            "transactionId": uuid("The transaction."),
            "type": TYPE,
            "amount": SIGNED,
            "balanceAfter": money("The wallet's balance right after it.", null=True),
            "counterpartyAccountId": number("The other wallet; null for the outside and the service.", null=True),
            "reference": text("What for.", null=True),
            "createdAt": instant("When."),
            "reversesTransactionId": uuid("What this reverses; on items of the type REVERSAL alone."),
            "reversalTransactionIds": {**REVERSALS, "minItems": 1, "description": "On what was reversed alone."},
        },
        optional=["reversesTransactionId", "reversalTransactionIds"],
    ),
    "EntryPage": page_of("Entry", "history"),
    "Payee": record(
        "Whom to pay.",
        {"accountId": number("Send money here."), "name": text("First and last letter of the username.")},
    ),
    "Posted": record("A transaction that is in the book.", _POSTED),
    "Transfer": record("A transaction as the owner of a wallet sees it.", _TRANSFER),
    "TransferRepresentation": record(
        "A transfer as it was when it was made.",
        {**_TRANSFER, "balanceAfter": money("The paying wallet's balance right after it.")},
    ),
    "Operation": record(
        "The answer that a command was given.",
        {
            "status": {"type": "integer", "minimum": 200, "maximum": 299, "description": "Its HTTP status."},
            "body": {
                "anyOf": [
                    ref("Posted"),
                    ref("Account"),
                    ref("Hold"),
                    ref("Captured"),
                    ref("RequestedDeposit"),
                    ref("RequestedWithdrawal"),
                ],
                "description": "Its body, word for word.",
            },
        },
    ),
    "Notification": record(
        "What a user was told of money that moved.",
        {
            "notificationId": number("The notification."),
            "type": TYPE,
            "transactionId": uuid("The transaction."),
            "accountId": number("The user's wallet."),
            "amount": SIGNED,
            "currency": CURRENCY,
            "text": text("In a sentence."),
            "occurredAt": instant("When the money moved."),
            "createdAt": instant("When this was written."),
        },
    ),
    "NotificationPage": page_of("Notification", "notifications"),
    "EventSchemas": record(
        "The schema of each event's value, by its CloudEvents type.",
        {"schemas": {"type": "object", "additionalProperties": {"type": "object"}}},
    ),
}
