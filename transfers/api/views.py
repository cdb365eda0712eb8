"""Accounts, payees, transfers, reversals, and what became of a key."""

from typing import Any
from uuid import UUID

from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import UnconfirmedTokenAuthentication, caller_of
from transfers.api.answers import respond, respond_with
from transfers.api.serializers import (
    BalanceQuery,
    CloseAccountSerializer,
    HistoryQuery,
    OpenAccountSerializer,
    OperationQuery,
    PayeeQuery,
    ReversalSerializer,
    TransferSerializer,
)
from transfers.selectors import (
    account_body,
    accounts_page,
    balance_body,
    history_page,
    operation_body,
    payee_body,
    posted_body,
    representation_body,
    transfer_body,
    wallet,
)
from transfers.services import close_account, open_account, reverse, transfer
from wallet_project.kernel.api import idempotency_key, prefers_representation
from wallet_project.kernel.query import PageQuery, read_query
from wallet_project.kernel.views import ApiViewSet, PerCaller

OPEN_ACCOUNT = OpenAccountSerializer()
CLOSE_ACCOUNT = CloseAccountSerializer()
TRANSFER = TransferSerializer()
REVERSAL = ReversalSerializer()
PAYEE = PayeeQuery()
PAGE = PageQuery()
BALANCE = BalanceQuery()
HISTORY = HistoryQuery()
OPERATION = OperationQuery()


class AccountViewSet(ApiViewSet):
    """The caller's wallets."""

    bodiless = frozenset({"close"})

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        answer = open_account(caller=caller_of(request), key=key, **OPEN_ACCOUNT.parse(self.body))
        return respond_with(answer)

    def list(self, request: Request) -> Response:
        query = PAGE.parse(read_query(request))
        return Response(accounts_page(owner_id=caller_of(request).user_id, **query))

    def retrieve(self, request: Request, account_id: int) -> Response:
        return Response(account_body(wallet(account_id, owner_id=caller_of(request).user_id)))

    def close(self, request: Request, account_id: int) -> Response:
        key = idempotency_key(request)
        answer = close_account(
            caller=caller_of(request), key=key, account_id=account_id, **CLOSE_ACCOUNT.parse(self.body)
        )
        return respond_with(answer)

    def balance(self, request: Request, account_id: int) -> Response:
        query = BALANCE.parse(read_query(request))
        return Response(balance_body(account_id, owner_id=caller_of(request).user_id, **query))

    def entries(self, request: Request, account_id: int) -> Response:
        query = HISTORY.parse(read_query(request))
        return Response(history_page(account_id, owner_id=caller_of(request).user_id, **query))


class PayeeLookUps(PerCaller):
    """Who could look up as often as they like could find out everybody's name."""

    scope = "payee"
    setting = "PAYEE_LOOKUPS_PER_USER"


class PayeeViewSet(ApiViewSet):
    """Whom to pay."""

    throttle_classes = (PayeeLookUps,)

    def list(self, request: Request) -> Response:
        return Response(payee_body(**PAYEE.parse(read_query(request))))


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
        if not prefers_representation(request):
            return respond(posted_body(posted.transaction_id), status=201, replayed=posted.replayed)
        body = representation_body(posted.transaction_id, owner_id=caller_of(request).user_id)
        answer = respond(body, status=201, replayed=posted.replayed)
        answer["Preference-Applied"] = "return=representation"
        return answer


class MayReverse(BasePermission):
    """Staff with the right to reverse."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(request.user.is_staff and request.user.has_perm("ledger.reverse_journaltransaction"))


class ReversalViewSet(ApiViewSet):
    """What staff take back."""

    permission_classes = (IsAuthenticated, MayReverse)

    def create(self, request: Request, transaction_id: UUID) -> Response:
        key = idempotency_key(request)
        fields = REVERSAL.parse(self.body)
        posted = reverse(caller=caller_of(request), key=key, transaction_id=transaction_id, **fields)
        return respond(posted_body(posted.transaction_id), status=201, replayed=posted.replayed)


class OperationViewSet(ApiViewSet):
    """What became of a key of the caller's, for a phone that lost the answer."""

    def list(self, request: Request) -> Response:
        query = OPERATION.parse(read_query(request))
        return Response(operation_body(owner_id=caller_of(request).user_id, **query))
