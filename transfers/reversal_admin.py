"""The admin's page of journal transactions, with what finance does there: reversing, after a look and with a reason."""

from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID, uuid4

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.utils.html import format_html

from accounts.models import User
from accounts.services import Caller, stamp_of
from ledger.admin import JournalTransactionAdmin
from ledger.commands import Posted
from ledger.models import JournalTransaction
from transfers.previews import Preview, preview_reversals
from transfers.services import Wish, reverse_each
from wallet_project.kernel.admin import MOST_AT_ONCE, ReasonForm, link_to
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.money import MAX_AMOUNT, decimal_amount, format_amount, minor_units


class ReversalForm(forms.Form):
    """One transaction of the confirmation page.

    The key makes a second submit of the same page a replay, and `left` binds it to what was shown.
    """

    key = forms.RegexField(r"^admin:[0-9a-f-]{36}\Z", widget=forms.HiddenInput)
    left = forms.IntegerField(min_value=1, max_value=MAX_AMOUNT, widget=forms.HiddenInput)
    # A text, since Django's number fields take what people write as well as 1_0, 1e1 and other alphabets' digits.
    amount = forms.RegexField(
        r"^[0-9]{1,16}([.][0-9]{1,4})?\Z",
        error_messages={"invalid": "Write digits, with a point before decimals."},
        widget=forms.TextInput(attrs={"size": 20, "inputmode": "decimal"}),
    )

    def __init__(self, data: QueryDict | None = None, *, preview: Preview) -> None:
        self.preview = preview
        suggestion = {
            "key": f"admin:{uuid4()}",
            "left": preview.left,
            "amount": decimal_amount(preview.left, preview.currency),
        }
        super().__init__(data, prefix=str(preview.transaction_id), initial=suggestion)

    def clean_amount(self) -> int:
        try:
            amount = minor_units(Decimal(self.cleaned_data["amount"]), self.preview.currency)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        if not 1 <= amount <= MAX_AMOUNT:
            raise forms.ValidationError("This must be more than nothing.")
        return amount

    def wish(self) -> Wish:
        """What was confirmed."""
        data = self.cleaned_data
        return Wish(
            key=data["key"],
            transaction_id=self.preview.transaction_id,
            amount=data["amount"],
            shown_left=data["left"],
        )

    def figures(self) -> dict[str, str]:
        """The preview's amounts as people write them."""
        preview = self.preview
        sides = {"payer": preview.payer, "payee": preview.payee}
        figures = {"amount": preview.amount, "left": preview.left}
        for name, side in sides.items():
            if side is not None:
                figures |= {f"{name}_before": side.before, f"{name}_after": side.after}
        return {name: format_amount(figure, preview.currency) for name, figure in figures.items()}


@admin.register(JournalTransaction)
class ReversibleTransactionAdmin(JournalTransactionAdmin):
    """Journal transactions; whoever has the permission may reverse them."""

    actions = ("reverse_selected",)

    def has_reverse_permission(self, request: HttpRequest) -> bool:
        """What Django asks of an action that names the permission `reverse`."""
        return request.user.has_perm("ledger.reverse_journaltransaction")

    @admin.action(description="Reverse selected transactions …", permissions=["reverse"])
    def reverse_selected(self, request: HttpRequest, queryset: QuerySet[JournalTransaction]) -> HttpResponse | None:
        """Shows what would happen; the same action, sent again from that page, does it."""
        ids = list(queryset.order_by("created_at", "pk").values_list("pk", flat=True)[: MOST_AT_ONCE + 1])
        if len(ids) > MOST_AT_ONCE:
            messages.error(request, f"At most {MOST_AT_ONCE} transactions can be reversed at once; nothing was done.")
            return None
        confirmed = "confirmed" in request.POST
        reason = ReasonForm(request.POST if confirmed else None)
        previews = preview_reversals(ids)
        if not confirmed:
            return self._confirmation(request, reason, [ReversalForm(preview=preview) for preview in previews])
        # What was offered on the page, though it may be impossible by now: the service says so, in its own words.
        forms_ = [ReversalForm(request.POST, preview=preview) for preview in previews if _was_offered(request, preview)]
        if not all([reason.is_valid(), *(form.is_valid() for form in forms_)]):
            return self._confirmation(request, reason, forms_)
        wishes = [form.wish() for form in forms_]
        outcomes = reverse_each(
            caller=_caller(request),
            reason=reason.cleaned_data["reason"],
            wishes=wishes,
        )
        self._report(request, wishes, outcomes, reason.cleaned_data["reason"])
        return None

    def _confirmation(
        self, request: HttpRequest, reason: ReasonForm, forms_: Sequence[ReversalForm]
    ) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": "Reverse transactions",
            "opts": self.opts,
            "reason": reason,
            "possible": [form for form in forms_ if not form.preview.obstacle or form.is_bound],
            "impossible": [form for form in forms_ if form.preview.obstacle and not form.is_bound],
        }
        return TemplateResponse(request, "admin/reverse_transactions.html", context)

    def _report(
        self, request: HttpRequest, wishes: Sequence[Wish], outcomes: Sequence[Posted | DomainError], reason: str
    ) -> None:
        """One message and, for what was done now, one line of the audit trail per transaction."""
        for wish, outcome in zip(wishes, outcomes, strict=True):
            original = link_to(JournalTransaction, wish.transaction_id)
            if isinstance(outcome, DomainError):
                messages.error(request, format_html("{} was not reversed: {}", original, outcome.detail))
                continue
            reversal = link_to(JournalTransaction, outcome.transaction_id)
            if outcome.replayed:
                messages.info(request, format_html("{} had been reversed by {} already.", original, reversal))
                continue
            messages.success(request, format_html("{} was reversed by {}.", original, reversal))
            self._log(request, wish.transaction_id, f"Reversed by {outcome.transaction_id}: {reason}")

    def _log(self, request: HttpRequest, transaction_id: UUID, text: str) -> None:
        self.log_change(request, JournalTransaction.objects.get(pk=transaction_id), text)


def _caller(request: HttpRequest) -> Caller:
    """Who acts; Django has let nobody in who has not signed in."""
    assert isinstance(request.user, User)  # noqa: S101
    return Caller(user_id=request.user.pk, stamp=stamp_of(request.user.password))


def _was_offered(request: HttpRequest, preview: Preview) -> bool:
    return f"{preview.transaction_id}-key" in request.POST
