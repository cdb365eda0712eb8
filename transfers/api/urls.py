"""Addresses of accounts, of all that moves their money, and of what is told of it, under /v1/."""

from django.urls import path, register_converter

from transfers.api.bank_orders import BankCallbackViewSet, DepositViewSet, WithdrawalViewSet
from transfers.api.events import EventSchemaViewSet, NotificationViewSet
from transfers.api.holds import HoldViewSet
from transfers.api.views import (
    AccountViewSet,
    OperationViewSet,
    PayeeViewSet,
    ReversalViewSet,
    TransferCommandViewSet,
    TransferViewSet,
)
from wallet_project.kernel.converters import NumberConverter, UUIDConverter

register_converter(NumberConverter, "number")
register_converter(UUIDConverter, "transaction")

urlpatterns = [
    path("transfers", TransferCommandViewSet.as_view({"post": "create"})),
    path("transfers/<transaction:transaction_id>", TransferViewSet.as_view({"get": "retrieve"})),
    path("accounts", AccountViewSet.as_view({"get": "list", "post": "create"})),
    path("accounts/<number:account_id>", AccountViewSet.as_view({"get": "retrieve"})),
    path("accounts/<number:account_id>/close", AccountViewSet.as_view({"post": "close"})),
    path("accounts/<number:account_id>/balance", AccountViewSet.as_view({"get": "balance"})),
    path("accounts/<number:account_id>/entries", AccountViewSet.as_view({"get": "entries"})),
    path("payees", PayeeViewSet.as_view({"get": "list"})),
    path("transactions/<transaction:transaction_id>/reversals", ReversalViewSet.as_view({"post": "create"})),
    path("holds", HoldViewSet.as_view({"get": "list", "post": "create"})),
    path("holds/<transaction:hold_id>", HoldViewSet.as_view({"get": "retrieve"})),
    path("holds/<transaction:hold_id>/capture", HoldViewSet.as_view({"post": "capture"})),
    path("holds/<transaction:hold_id>/void", HoldViewSet.as_view({"post": "void"})),
    path("deposits", DepositViewSet.as_view({"post": "create"})),
    path("deposits/<transaction:deposit_id>", DepositViewSet.as_view({"get": "retrieve"})),
    path("withdrawals", WithdrawalViewSet.as_view({"post": "create"})),
    path("withdrawals/<transaction:withdrawal_id>", WithdrawalViewSet.as_view({"get": "retrieve"})),
    path("bank/callbacks", BankCallbackViewSet.as_view({"post": "create"})),
    path("notifications", NotificationViewSet.as_view({"get": "list"})),
    path("events/schemas", EventSchemaViewSet.as_view({"get": "list"})),
    path("operations", OperationViewSet.as_view({"get": "list"})),
]
