"""What commands and lists accept."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from ledger.models import JournalTransaction
from wallet_project.kernel.api import is_idempotency_key
from wallet_project.kernel.fields import (
    AmountField,
    IdField,
    MetadataField,
    MomentField,
    StrictSerializer,
    TextField,
)
from wallet_project.kernel.query import PageQuery


class CodeField(TextField):
    """One of a fixed set of words, written exactly so."""

    default_error_messages = {"invalid_choice": "This must be one of {choices}."}

    def __init__(self, *, choices: list[str], **kwargs: Any) -> None:
        self.choices = choices
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if text not in self.choices:
            self.fail("invalid_choice", choices=", ".join(self.choices))
        return text


class OpenAccountSerializer(StrictSerializer):
    currency = CodeField(choices=settings.CURRENCIES)
    name = TextField(max_length=100, required=False)


class TransferSerializer(StrictSerializer):
    from_account_id = IdField()
    to_account_id = IdField()
    amount = AmountField()
    reference = TextField(max_length=140, required=False)
    metadata = MetadataField(required=False, allow_null=True)


class BalanceQuery(StrictSerializer):
    at = MomentField(required=False)


class HistoryQuery(PageQuery):
    from_ = MomentField(source="since", or_date=True, required=False)
    to = MomentField(source="until", or_date=True, required=False)
    type = CodeField(
        choices=[type_ for type_ in JournalTransaction.Type if type_ is not JournalTransaction.Type.CONSOLIDATION],
        required=False,
        allow_blank=False,
    )


def key_form(text: str) -> None:
    """A validator.

    Raises:
        ValidationError: the text cannot be an idempotency key.
    """
    if not is_idempotency_key(text):
        raise serializers.ValidationError("This is no idempotency key.", "invalid")


class OperationQuery(StrictSerializer):
    idempotency_key = TextField(source="key", validators=[key_form])
