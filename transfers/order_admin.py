"""The admin's pages of bank orders and of the bank's notices: looking only, but that the bank may be asked again."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince

from accounts.models import Account, User
from ledger.models import JournalTransaction
from transfers.models import BankNotice, BankOrder
from transfers.services import ask_again
from wallet_project.kernel import clock
from wallet_project.kernel.admin import (
    EMPTY,
    MOST_ROWS,
    ReadOnlyAdmin,
    any_of,
    as_id,
    as_uuid,
    link_to,
    link_to_list,
    moment,
    table,
)
from wallet_project.kernel.money import format_amount


@admin.register(BankOrder)
class BankOrderAdmin(ReadOnlyAdmin):
    """Deposits and withdrawals, those that have waited longest on top; each with all that became of it."""

    list_display = ("id", "kind", "status", "waits", "amount_text", "account_link", "destination", "attempts", "asked")
    list_filter = ("status", "kind")
    list_select_related = ("account",)
    search_help_text = "An order's id, the bank's reference for it, or an account's number."
    ordering = ("waiting_since", "-id")  # Those that do not wait come last.
    actions = ("ask_bank",)
    fields = (
        *("id", "kind", "status", "waits", "amount_text", "returned_text", "account_link", "initiator_link"),
        *("destination", "reference", "bank_reference", "asked", "attempts", "next_step", "stuck"),
        *("opening_link", "history", "returns_table", "notices_table", "all_notices"),
    )

    def found_by(self, term: str) -> Q | None:
        # The reference is the id without its hyphens.
        return any_of(pk=as_uuid(term), account_id=as_id(term))

    def has_ask_permission(self, request: HttpRequest) -> bool:
        """What Django asks of an action that names the permission `ask`."""
        return bool(request.user.has_perm("transfers.ask_bank"))

    @admin.action(description="Ask the bank again", permissions=["ask"])
    def ask_bank(self, request: HttpRequest, queryset: QuerySet[BankOrder]) -> None:
        """The workers ask with their next round; who wanted it stands in the admin's log."""
        asked = ask_again(order_ids=list(queryset.values_list("pk", flat=True)[:MOST_ROWS]))
        for order in asked:
            self.log_change(request, order, "Asked the bank again")
        self.message_user(
            request, f"The bank will be asked about {len(asked)} orders; of a failed one it says no more."
        )

    @admin.display(description="waits")
    def waits(self, order: BankOrder) -> str:
        """For how long, in two words; nothing for an order that is done."""
        return EMPTY if order.waiting_since is None else timesince(order.waiting_since, clock.now())

    @admin.display(description="amount")
    def amount_text(self, order: BankOrder) -> str:
        return format_amount(order.amount, order.account.currency)

    @admin.display(description="returned")
    def returned_text(self, order: BankOrder) -> str:
        return format_amount(order.returned, order.account.currency)

    @admin.display(description="account")
    def account_link(self, order: BankOrder) -> SafeString | str:
        return link_to(Account, order.account_id)

    @admin.display(description="asked for by")
    def initiator_link(self, order: BankOrder) -> SafeString | str:
        return link_to(User, order.initiator_id)

    @admin.display(description="asked for at")
    def asked(self, order: BankOrder) -> str:
        return moment(order.created_at)

    @admin.display(description="next step at")
    def next_step(self, order: BankOrder) -> str:
        return moment(order.next_step_at)

    @admin.display(description="could not be booked since")
    def stuck(self, order: BankOrder) -> str:
        return moment(order.stuck_at)

    @admin.display(description="opening")
    def opening_link(self, order: BankOrder) -> SafeString | str:
        return link_to(JournalTransaction, order.opening_id)

    @admin.display(description="history")
    def history(self, order: BankOrder) -> SafeString:
        changes = order.changes.order_by("pk")[:MOST_ROWS]
        return table(
            ["from", "to", "at", "at the bank", "cause", "detail", "transaction"],
            (
                [
                    change.from_status or EMPTY,
                    change.to_status,
                    moment(change.created_at),
                    moment(change.happened_at),
                    change.get_cause_display(),
                    change.detail or EMPTY,
                    link_to(JournalTransaction, change.transaction_id),
                ]
                for change in changes
            ),
        )

    @admin.display(description="returns")
    def returns_table(self, order: BankOrder) -> SafeString:
        return table(
            ["the bank's id", "amount", "at", "at the bank", "cause", "transaction"],
            (
                [
                    row.return_id,
                    format_amount(row.amount, order.account.currency),
                    moment(row.created_at),
                    moment(row.happened_at),
                    row.get_cause_display(),
                    link_to(JournalTransaction, row.transaction_id),
                ]
                for row in order.returns.order_by("pk")[:MOST_ROWS]
            ),
        )

    @admin.display(description="notices")
    def notices_table(self, order: BankOrder) -> SafeString:
        return table(
            ["notice", "event", "amount", "at", "at the bank", "outcome"],
            (
                [
                    link_to(BankNotice, notice.pk, notice.notice_id),
                    notice.event,
                    notice.amount,
                    moment(notice.created_at),
                    moment(notice.occurred_at),
                    notice.get_outcome_display(),
                ]
                for notice in order.notices.defer("body").order_by("pk")[:MOST_ROWS]
            ),
        )

    @admin.display(description="all notices")
    def all_notices(self, order: BankOrder) -> SafeString:
        return link_to_list(BankNotice, "all notices", q=order.bank_reference)


class OutcomeFilter(admin.SimpleListFilter):
    """By what came of a notice; an index finds each."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, str(label)) for value, label in BankNotice.Outcome.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() is None else queryset.filter(outcome=self.value())


@admin.register(BankNotice)
class BankNoticeAdmin(ReadOnlyAdmin):
    """What the bank told, word for word, and what came of it; newest first."""

    list_display = ("id", "at", "notice_id", "event", "amount", "currency", "order_link", "outcome")
    list_filter = (OutcomeFilter,)
    search_help_text = "A notice's id at the bank, or the bank's reference of an order."
    ordering = ("-id",)
    fields = (
        *("id", "notice_id", "outcome", "at", "happened", "order_link", "reference", "event"),
        *("amount", "currency", "return_id", "reason", "body_text"),
    )

    def found_by(self, term: str) -> Q | None:
        return any_of(notice_id=term, reference=term)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BankNotice]:
        return BankNotice.objects.defer("body")

    @admin.display(description="at")
    def at(self, notice: BankNotice) -> str:
        return moment(notice.created_at)

    @admin.display(description="at the bank")
    def happened(self, notice: BankNotice) -> str:
        return moment(notice.occurred_at)

    @admin.display(description="order")
    def order_link(self, notice: BankNotice) -> SafeString | str:
        return link_to(BankOrder, notice.order_id)

    @admin.display(description="as it came")
    def body_text(self, notice: BankNotice) -> SafeString:
        return format_html("<pre>{}</pre>", bytes(notice.body).decode(errors="replace"))
