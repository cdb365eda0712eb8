"""Deposits and withdrawals; and the bank's own door."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import caller_of
from transfers.api.answers import respond_with
from transfers.bank.payments import NoticeSerializer
from transfers.bank_selectors import order_body
from transfers.models import BankOrder
from transfers.services import deposit, take_notice, withdraw
from wallet_project.kernel.api import demand_json, idempotency_key, read_bytes
from wallet_project.kernel.fields import AmountField, IdField, LineField, StrictSerializer, TextField
from wallet_project.kernel.views import ApiViewSet

LONGEST_DESTINATION = 64


class DepositSerializer(StrictSerializer):
    account_id = IdField(help_text="A wallet of the caller's.")
    amount = AmountField(help_text="In the currency's smallest unit: đồng, cents.")
    reference = TextField(max_length=140, required=False, help_text="What for; the bank sees it, too.")


class WithdrawalSerializer(StrictSerializer):
    account_id = IdField(help_text="A wallet of the caller's.")
    amount = AmountField(help_text="In the currency's smallest unit: đồng, cents.")
    destination = LineField(
        max_length=LONGEST_DESTINATION,
        help_text="Where the bank is to pay it to, as the bank names it: one "
        "line without blanks at its ends, and without characters that nobody sees.",
    )
    reference = TextField(max_length=140, required=False, help_text="What for; the bank sees it, too.")


DEPOSIT = DepositSerializer()
WITHDRAWAL = WithdrawalSerializer()
NOTICE = NoticeSerializer()  # for the document alone: the gateway reads notices


class DepositViewSet(ApiViewSet):
    """Money that the bank is asked to bring."""

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        return respond_with(deposit(caller=caller_of(request), key=key, **DEPOSIT.parse(self.body)))

    def retrieve(self, request: Request, deposit_id: UUID) -> Response:
        owner_id = caller_of(request).user_id
        return Response(order_body(deposit_id, kind=BankOrder.Kind.DEPOSIT, owner_id=owner_id))


class WithdrawalViewSet(ApiViewSet):
    """Money that the bank is asked to pay out."""

    def create(self, request: Request) -> Response:
        key = idempotency_key(request)
        return respond_with(withdraw(caller=caller_of(request), key=key, **WITHDRAWAL.parse(self.body)))

    def retrieve(self, request: Request, withdrawal_id: UUID) -> Response:
        owner_id = caller_of(request).user_id
        return Response(order_body(withdrawal_id, kind=BankOrder.Kind.WITHDRAWAL, owner_id=owner_id))


class BankCallbackViewSet(ApiViewSet):
    """The bank's door. Its signature is over the bytes, so they are kept as they came, and it is all the credential."""

    authentication_classes = ()
    permission_classes = ()

    received: bytes

    def read_body(self, request: Request) -> None:
        self.received = read_bytes(request._request)
        demand_json(request._request)

    def create(self, request: Request) -> Response:
        return Response({"outcome": take_notice(headers=request.headers, body=self.received)})
