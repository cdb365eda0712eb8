"""What commands and lists accept."""

from typing import Any

from django.conf import settings

from ledger.models import JournalTransaction
from wallet_project.kernel.api import KEY_PATTERN, is_idempotency_key
from wallet_project.kernel.fields import (
    AmountField,
    CodeField,
    IdField,
    MetadataField,
    MomentField,
    StrictSerializer,
    TextField,
)
from wallet_project.kernel.query import PageQuery


class OpenAccountSerializer(StrictSerializer):
    currency = CodeField(choices=settings.CURRENCIES, help_text="ISO 4217.")
    name = TextField(max_length=100, required=False, help_text="The owner's own name for it.")


class CloseAccountSerializer(StrictSerializer):
    """Nothing but the account's number in the path."""


class TransferSerializer(StrictSerializer):
    from_account_id = IdField(help_text="A wallet of the caller's.")
    to_account_id = IdField(help_text="Any wallet in the same currency.")
    amount = AmountField(help_text="In the currency's smallest unit: đồng, cents.")
    reference = TextField(max_length=140, required=False, help_text="What for; both sides see it.")
    metadata = MetadataField(
        required=False,
        allow_null=True,
        help_text="An object of the app's own: at most 4096 bytes of compact JSON, nested at most 5 deep.",
    )


class ReversalSerializer(StrictSerializer):
    amount = AmountField(required=False, allow_null=True, help_text="Left out: all that is left.")
    reason = TextField(max_length=140, help_text="Why; the reversal's reference, which both sides see.")


class BalanceQuery(StrictSerializer):
    at = MomentField(required=False, help_text="A moment that has come; entries of that very moment count.")


class HistoryQuery(PageQuery):
    from_ = MomentField(
        source="since", or_date=True, required=False, help_text="An instant, or a date in the business time zone."
    )
    to = MomentField(source="until", or_date=True, required=False, help_text="Likewise; itself not included.")
    type = CodeField(
        choices=[type_ for type_ in JournalTransaction.Type if type_ is not JournalTransaction.Type.CONSOLIDATION],
        required=False,
        allow_blank=False,
        help_text="Items of this type alone.",
    )


class PayeeQuery(StrictSerializer):
    username = TextField(max_length=64, help_text="The payee's username, in full.")
    currency = CodeField(choices=settings.CURRENCIES, help_text="ISO 4217.")


class KeyField(TextField):
    """An idempotency key."""

    json_schema = {"type": "string", "pattern": KEY_PATTERN}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not is_idempotency_key(text):
            self.fail("invalid")
        return text


class OperationQuery(StrictSerializer):
    idempotency_key = KeyField(source="key", help_text="A key of the caller's.")
