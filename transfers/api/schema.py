"""Wallets, payees, transfers, reversals and what is told of them, described for the OpenAPI document."""

from typing import Any

from accounts.errors import AccountNotFound
from ledger.errors import (
    AccountClosed,
    AccountFrozen,
    AlreadyReversed,
    BalanceLimitExceeded,
    CurrencyMismatch,
    InsufficientFunds,
    LimitExceeded,
    NotReversible,
    ReversalExceedsOriginal,
    SameAccount,
    TransactionNotFound,
)
from transfers.api import bank_order_schema, hold_schema, views
from transfers.api.events import PAGE as NOTIFICATION_PAGE
from transfers.api.schema_words import (
    ACCOUNT,
    BALANCE,
    ENTRY,
    NOTIFICATION,
    OPERATION,
    PAYEE,
    POSTED,
    REPRESENTATION,
    SCHEMAS,
    TRANSFER,
    a_page_of,
)
from wallet_project.kernel.errors import IllegalState, InvalidCursor, PermissionDenied
from wallet_project.kernel.openapi import Answer, Chapter, Operation, ref

WALLETS, MONEY, REST, SERVICE = "Wallets", "Money", "Keys and events", "Service"

ACCOUNTS = {
    "POST /v1/accounts": Operation(
        id="openAccount",
        tag=WALLETS,
        summary="Open a wallet",
        description="A user may have several in each currency.",
        body=views.OPEN_ACCOUNT,
        example={"currency": "VND", "name": "Savings"},
        answers={
            201: Answer(description="The wallet, empty.", schema=ref("Account"), example={**ACCOUNT, "balance": 0})
        },
        command=True,
    ),
    "GET /v1/accounts": Operation(
        id="listAccounts",
        tag=WALLETS,
        summary="The caller's wallets",
        description="Newest first.",
        query=views.PAGE,
        answers={200: Answer(description="A page.", schema=ref("AccountPage"), example=a_page_of(ACCOUNT))},
        errors=[InvalidCursor],
    ),
    "GET /v1/accounts/{accountId}": Operation(
        id="getAccount",
        tag=WALLETS,
        summary="One wallet",
        description="Somebody else's answers like one that does not exist.",
        answers={200: Answer(description="The wallet.", schema=ref("Account"), example=ACCOUNT)},
        errors=[AccountNotFound],
    ),
    "POST /v1/accounts/{accountId}/close": Operation(
        id="closeAccount",
        tag=WALLETS,
        summary="Close a wallet",
        description="For ever. It must be empty and not frozen, and no hold, deposit or "
        "withdrawal of it under way. The body may be left out.",
        body=views.CLOSE_ACCOUNT,
        example={},
        bodiless=True,
        answers={
            200: Answer(
                description="The wallet, closed.",
                schema=ref("Account"),
                example={**ACCOUNT, "balance": 0, "availableBalance": 0, "status": "CLOSED"},
            )
        },
        errors=[AccountNotFound, IllegalState],
        command=True,
    ),
    "GET /v1/accounts/{accountId}/balance": Operation(
        id="getBalance",
        tag=WALLETS,
        summary="A balance, now or at a moment",
        description="A moment that has not come yet is 400.",
        query=views.BALANCE,
        answers={200: Answer(description="The balance.", schema=ref("Balance"), example=BALANCE)},
        errors=[AccountNotFound],
    ),
    "GET /v1/accounts/{accountId}/entries": Operation(
        id="listEntries",
        tag=WALLETS,
        summary="History",
        description="One item per transaction, newest first, each once even while items are added. `from` and `to` are "
        "half-open.",
        query=views.HISTORY,
        answers={200: Answer(description="A page.", schema=ref("EntryPage"), example=a_page_of(ENTRY))},
        errors=[AccountNotFound, InvalidCursor],
    ),
}

TRANSFERS = {
    "GET /v1/payees": Operation(
        id="findPayee",
        tag=MONEY,
        summary="Whom to pay",
        description="A user's first open wallet in a currency, with their name masked: enough to recognise somebody "
        "by, not to find out who there is. 30 look-ups a minute.",
        query=views.PAYEE,
        answers={200: Answer(description="The payee.", schema=ref("Payee"), example=PAYEE)},
        errors=[AccountNotFound],
        throttled=True,
    ),
    "POST /v1/transfers": Operation(
        id="transfer",
        tag=MONEY,
        summary="Move money now",
        description="From a wallet of the caller's to any wallet in the same currency. Answered only when it is in the "
        "book. With `Prefer: return=representation` the answer is the whole transfer as it was made, with the balance "
        "of the paying wallet right after it; a replay tells the very same.",
        body=views.TRANSFER,
        example={"fromAccountId": 1001, "toAccountId": 2002, "amount": 100_000, "reference": "lunch"},
        headers=["Prefer"],
        answers={
            201: Answer(
                description="The money has moved.",
                schema={"anyOf": [ref("TransferRepresentation"), ref("Posted")]},
                examples={"plain": POSTED, "representation": REPRESENTATION},
                headers=["Preference-Applied"],
            )
        },
        errors=[
            *(SameAccount, AccountNotFound, AccountClosed, AccountFrozen, CurrencyMismatch, LimitExceeded),
            *(InsufficientFunds, BalanceLimitExceeded),
        ],
        command=True,
    ),
    "GET /v1/transfers/{transactionId}": Operation(
        id="getTransfer",
        tag=MONEY,
        summary="One transaction",
        description="Any transaction that touches a wallet of the caller's, whatever its type; the payer of a hold "
        "also sees its captures.",
        answers={200: Answer(description="The transaction.", schema=ref("Transfer"), example=TRANSFER)},
        errors=[TransactionNotFound],
    ),
    "POST /v1/transactions/{transactionId}/reversals": Operation(
        id="reverse",
        tag=MONEY,
        summary="Take a transfer or a capture back",
        description="For staff with the right to. The money goes from the payee's wallet back to the payer's, whole or "
        "in part, never more than came. A frozen payee is no obstacle; a payee who has spent it is.",
        body=views.REVERSAL,
        example={"amount": 40_000, "reason": "sent to the wrong person"},
        answers={201: Answer(description="The money is back.", schema=ref("Posted"), example=POSTED)},
        errors=[
            *(PermissionDenied, TransactionNotFound, NotReversible, AlreadyReversed, ReversalExceedsOriginal),
            *(AccountClosed, InsufficientFunds, BalanceLimitExceeded),
        ],
        command=True,
    ),
}

OTHERS: dict[str, Operation] = {
    "GET /v1/operations": Operation(
        id="getOperation",
        tag=REST,
        summary="What became of a key",
        description="For an app that lost an answer. It only looks: 404 means *not known yet*, for the first try may "
        "still be on its way; the only safe step is the same command with the same key.",
        query=views.OPERATION,
        answers={200: Answer(description="The original answer.", schema=ref("Operation"), example=OPERATION)},
        errors=[TransactionNotFound],
    ),
    "GET /v1/notifications": Operation(
        id="listNotifications",
        tag=REST,
        summary="What the caller was told",
        description="Of money that came and went, newest first.",
        query=NOTIFICATION_PAGE,
        answers={200: Answer(description="A page.", schema=ref("NotificationPage"), example=a_page_of(NOTIFICATION))},
        errors=[InvalidCursor],
    ),
    "GET /v1/events/schemas": Operation(
        id="getEventSchemas",
        tag=REST,
        summary="JSON Schemas of the events",
        description="For services that consume them from Kafka.",
        answers={200: Answer(description="By event type.", schema=ref("EventSchemas"), example={"schemas": {}})},
        reads_database=False,
    ),
}

OPERATIONS: dict[str, Any] = {
    **ACCOUNTS,
    **TRANSFERS,
    **hold_schema.operations(MONEY),
    **bank_order_schema.operations(MONEY, service=SERVICE),
    **OTHERS,
}
CHAPTER = Chapter(operations=OPERATIONS, schemas={**SCHEMAS, **hold_schema.SCHEMAS, **bank_order_schema.SCHEMAS})
