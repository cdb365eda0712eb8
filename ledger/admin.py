"""The admin's pages of the book: looking only, for everybody.

Its guards are in the database; here nothing is offered that they would refuse.
"""

import json
from typing import Any
from uuid import UUID, uuid5

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts.admin import AccountAdmin
from accounts.models import Account, User
from ledger.models import JournalTransaction, LedgerEntry, ReconciliationFinding, ReconciliationRun
from outbox.models import OutboxEvent
from outbox.services import EVENT_NAMESPACE
from wallet_project.kernel.admin import (
    EMPTY,
    MOST_ROWS,
    PeriodFilter,
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


class AccountWithEntriesAdmin(AccountAdmin):
    """Accounts, with the way to their entries. Registered by transfers, which knows what is on hold of them."""

    list_display = (*AccountAdmin.list_display, "entries")
    fields = (*AccountAdmin.fields, "entries")

    @admin.display(description="entries")
    def entries(self, account: Account) -> SafeString:
        return link_to_list(LedgerEntry, "entries", account__id__exact=account.pk)


class TypeFilter(admin.SimpleListFilter):
    """By type: the known ones, since to list those in use would mean to read the whole journal."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, str(label)) for value, label in JournalTransaction.Type.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() is None else queryset.filter(type=self.value())


class JournalTransactionAdmin(ReadOnlyAdmin):
    """Journal transactions, each with its entries, its reversals, what became of money on hold, and its event.

    Registered by transfers, which adds what may be done with them.
    """

    list_display = ("at", "id", "type", "amount", "initiator", "idempotency_key", "reference", "reverses_link")
    list_display_links = ("id",)
    list_filter = (PeriodFilter, TypeFilter)
    list_select_related = ("initiator",)
    search_help_text = "A transaction's id; or an initiator's username and, after a space, the idempotency key."
    ordering = ("-created_at", "-id")
    fields = (
        *("id", "type", "at", "initiator", "idempotency_key", "reference", "metadata_text"),
        *("entries", "reverses_link", "reversals", "continues_link", "continuations", "event"),
    )

    def found_by(self, term: str) -> Q | None:
        username, _, key = term.partition(" ")
        if key:
            return Q(initiator__username=username, idempotency_key=key.strip())
        return any_of(pk=as_uuid(term))

    def get_queryset(self, request: HttpRequest) -> QuerySet[JournalTransaction]:
        # In one partition, as the time is given, and for the rows of the page alone.
        entries = LedgerEntry.objects.filter(
            transaction=OuterRef("pk"), created_at=OuterRef("created_at"), amount__gt=0
        )
        largest = entries.order_by("-amount").values("account__currency")[:1]
        of_currency = entries.filter(account__currency=OuterRef("currency"))
        total = of_currency.order_by().values("transaction").annotate(total=Sum("amount")).values("total")
        return JournalTransaction.objects.annotate(currency=Subquery(largest)).annotate(total=Subquery(total))

    @admin.display(description="at")
    def at(self, row: JournalTransaction) -> str:
        return moment(row.created_at)

    @admin.display(description="amount")
    def amount(self, row: Any) -> str:
        """The sum of the credits, in the currency of the largest where there are several."""
        return EMPTY if row.total is None else format_amount(int(row.total), row.currency)

    @admin.display(description="metadata")
    def metadata_text(self, row: JournalTransaction) -> str:
        return EMPTY if row.metadata is None else json.dumps(row.metadata, ensure_ascii=False)

    @admin.display(description="entries")
    def entries(self, row: JournalTransaction) -> SafeString:
        found = row.entries.filter(created_at=row.created_at).select_related("account__owner").order_by("pk")
        return table(
            ["entry", "account", "owner", "amount", "balance after"],
            (
                [
                    link_to(LedgerEntry, entry.pk),
                    link_to(Account, entry.account_id, entry.account),
                    link_to(User, entry.account.owner_id, entry.account.owner),
                    format_amount(entry.amount, entry.account.currency),
                    format_amount(entry.balance_after, entry.account.currency),
                ]
                for entry in found[:MOST_ROWS]
            ),
        )

    @admin.display(description="reverses")
    def reverses_link(self, row: JournalTransaction) -> SafeString | str:
        return link_to(JournalTransaction, row.reverses_id)

    @admin.display(description="reversed by")
    def reversals(self, row: JournalTransaction) -> SafeString | str:
        return _links(row.reversals.order_by("pk"))

    @admin.display(description="continues")
    def continues_link(self, row: JournalTransaction) -> SafeString | str:
        return link_to(JournalTransaction, row.continues_id)

    @admin.display(description="continued by")
    def continuations(self, row: JournalTransaction) -> SafeString | str:
        return _links(row.continuations.order_by("pk"))

    @admin.display(description="event")
    def event(self, row: JournalTransaction) -> SafeString:
        return link_to_list(OutboxEvent, "event", q=_event_id(row.pk))


def _links(transactions: QuerySet[JournalTransaction]) -> SafeString | str:
    found = transactions.values_list("pk", flat=True)[:MOST_ROWS]
    links = ((link_to(JournalTransaction, pk),) for pk in found)
    return format_html_join(SafeString("<br>"), "{}", links) or EMPTY


def _event_id(transaction_id: UUID) -> UUID:
    return uuid5(EVENT_NAMESPACE, str(transaction_id))


@admin.register(LedgerEntry)
class LedgerEntryAdmin(ReadOnlyAdmin):
    """Entries, newest first; an account's page leads to those of the account alone."""

    list_display = ("id", "at", "transaction_link", "type", "account_link", "amount_text", "balance_after_text")
    list_filter = (PeriodFilter,)
    list_select_related = ("account", "transaction")
    search_help_text = "An entry's number, or a transaction's id."
    ordering = ("-id",)
    fields = ("id", "at", "transaction_link", "type", "account_link", "amount_text", "balance_after_text")

    def found_by(self, term: str) -> Q | None:
        return any_of(pk=as_id(term), transaction_id=as_uuid(term))

    @admin.display(description="at")
    def at(self, entry: LedgerEntry) -> str:
        return moment(entry.created_at)

    @admin.display(description="transaction")
    def transaction_link(self, entry: LedgerEntry) -> SafeString | str:
        return link_to(JournalTransaction, entry.transaction_id)

    @admin.display(description="type")
    def type(self, entry: LedgerEntry) -> str:
        return entry.transaction.type

    @admin.display(description="account")
    def account_link(self, entry: LedgerEntry) -> SafeString | str:
        return link_to(Account, entry.account_id, entry.account)

    @admin.display(description="amount")
    def amount_text(self, entry: LedgerEntry) -> str:
        return format_amount(entry.amount, entry.account.currency)

    @admin.display(description="balance after")
    def balance_after_text(self, entry: LedgerEntry) -> str:
        return format_amount(entry.balance_after, entry.account.currency)


@admin.register(ReconciliationRun)
class ReconciliationRunAdmin(ReadOnlyAdmin):
    """Runs of the reconciliation, each with its findings."""

    list_display = ("id", "business_date", "status", "started", "finished", "transactions_checked", "accounts_checked")
    list_filter = ("status",)
    ordering = ("-id",)
    fields = (
        *("id", "business_date", "status", "attempt", "started", "progress", "finished"),
        *("transactions_checked", "accounts_checked", "findings_table", "all_findings"),
    )

    @admin.display(description="started at")
    def started(self, run: ReconciliationRun) -> str:
        return moment(run.started_at)

    @admin.display(description="last progress at")
    def progress(self, run: ReconciliationRun) -> str:
        return moment(run.progress_at)

    @admin.display(description="finished at")
    def finished(self, run: ReconciliationRun) -> str:
        return moment(run.finished_at)

    @admin.display(description="findings")
    def findings_table(self, run: ReconciliationRun) -> SafeString:
        return table(
            ["check", "account", "transaction", "expected", "actual", "detail"],
            (
                [
                    finding.get_check_name_display(),
                    link_to(Account, finding.account_id),
                    link_to(JournalTransaction, finding.transaction_id),
                    _amount(finding.expected, finding.currency),
                    _amount(finding.actual, finding.currency),
                    finding.detail,
                ]
                for finding in run.findings.order_by("pk")[:MOST_ROWS]
            ),
        )

    @admin.display(description="all findings")
    def all_findings(self, run: ReconciliationRun) -> SafeString:
        return link_to_list(ReconciliationFinding, "all findings", run__id__exact=run.pk)


def _amount(value: int | None, currency: str) -> str:
    return EMPTY if value is None else format_amount(value, currency)


@admin.register(ReconciliationFinding)
class ReconciliationFindingAdmin(ReadOnlyAdmin):
    """Findings of all runs."""

    list_display = ("id", "run_link", "check_name", "account_link", "transaction_link", "expected_text", "actual_text")
    list_filter = ("check_name",)
    search_help_text = "An account's number, or a transaction's id."
    ordering = ("-id",)
    fields = (
        *("id", "run_link", "check_name", "account_link", "transaction_link", "expected_text", "actual_text"),
        *("detail", "at"),
    )

    def found_by(self, term: str) -> Q | None:
        return any_of(account_id=as_id(term), transaction_id=as_uuid(term))

    @admin.display(description="run")
    def run_link(self, finding: ReconciliationFinding) -> SafeString | str:
        return link_to(ReconciliationRun, finding.run_id)

    @admin.display(description="account")
    def account_link(self, finding: ReconciliationFinding) -> SafeString | str:
        return link_to(Account, finding.account_id)

    @admin.display(description="transaction")
    def transaction_link(self, finding: ReconciliationFinding) -> SafeString | str:
        return link_to(JournalTransaction, finding.transaction_id)

    @admin.display(description="expected")
    def expected_text(self, finding: ReconciliationFinding) -> str:
        return _amount(finding.expected, finding.currency)

    @admin.display(description="actual")
    def actual_text(self, finding: ReconciliationFinding) -> str:
        return _amount(finding.actual, finding.currency)

    @admin.display(description="at")
    def at(self, finding: ReconciliationFinding) -> str:
        return moment(finding.created_at)
