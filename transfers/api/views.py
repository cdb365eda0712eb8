"""Accounts, transfers, and what became of a key."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import UnconfirmedTokenAuthentication, caller_of
from transfers.api.serializers import (
    BalanceQuery,
    HistoryQuery,
    OpenAccountSerializer,
    OperationQuery,
    TransferSerializer,
)
from transfers.selectors import (
    account_body,
    accounts_page,
    balance_body,
    history_page,
    operation_body,
    posted_body,
    transfer_body,
    wallet,
)
from transfers.services import open_account, transfer
from wallet_project.kernel.api import idempotency_key
from wallet_project.kernel.query import PageQuery, read_query
from wallet_project.kernel.views import ApiViewSet

OPEN_ACCOUNT = OpenAccountSerializer()
TRANSFER = TransferSerializer()
PAGE = PageQuery()
BALANCE = BalanceQuery()
HISTORY = HistoryQuery()
OPERATION = OperationQuery()


class AccountViewSet(ApiViewSet):
    """The caller's wallets."""

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        answer = open_account(caller=caller_of(request), key=key, **OPEN_ACCOUNT.parse(self.body))
        return _answer(answer.body, status=answer.status, replayed=answer.replayed)

    def list(self, request: Request) -> Response:
        query = PAGE.parse(read_query(request))
        return Response(accounts_page(owner_id=caller_of(request).user_id, **query))

    def retrieve(self, request: Request, account_id: int) -> Response:
        return Response(account_body(wallet(account_id, owner_id=caller_of(request).user_id)))

    def balance(self, request: Request, account_id: int) -> Response:
        query = BALANCE.parse(read_query(request))
        return Response(balance_body(account_id, owner_id=caller_of(request).user_id, **query))

    def entries(self, request: Request, account_id: int) -> Response:
        query = HISTORY.parse(read_query(request))
        return Response(history_page(account_id, owner_id=caller_of(request).user_id, **query))


class TransferViewSet(ApiViewSet):
    """Any transaction that touches a wallet of the caller's."""

    def retrieve(self, request: Request, transaction_id: UUID) -> Response:
        return Response(transfer_body(transaction_id, owner_id=caller_of(request).user_id))


class TransferCommandViewSet(ApiViewSet):
    """The call that matters most: no query is made before the work, for `post` confirms the caller after the locks."""

    authentication_classes = (UnconfirmedTokenAuthentication,)

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        posted = transfer(caller=caller_of(request), key=key, **TRANSFER.parse(self.body))
        return _answer(posted_body(posted.transaction_id), status=201, replayed=posted.replayed)


class OperationViewSet(ApiViewSet):
    """What became of a key of the caller's, for a phone that lost the answer."""

    def list(self, request: Request) -> Response:
        query = OPERATION.parse(read_query(request))
        return Response(operation_body(owner_id=caller_of(request).user_id, **query))


def _answer(body: dict[str, object], *, status: int, replayed: bool) -> Response:
    return Response(body, status=status, headers={"Idempotent-Replayed": "true"} if replayed else None)
