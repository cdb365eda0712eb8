"""The admin's pages of holds: what each promised, what became of it, and what is on hold of an account."""

from typing import Any

from django.contrib import admin
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.safestring import SafeString

from accounts.models import Account
from ledger.models import HeldMoney, JournalTransaction, LedgerEntry
from transfers.models import Hold
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


class ExpiryFilter(admin.SimpleListFilter):
    """Active holds by their time: those that are over and wait for the sweep, and those that are soon."""

    title = "expiry"
    parameter_name = "expiry"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("overdue", "Overdue"), ("stuck", "Cannot be released"), ("running", "Running")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        active = queryset.filter(status=Hold.Status.ACTIVE)
        match self.value():
            case "overdue":
                return active.filter(expires_at__lte=Now())
            case "stuck":
                return active.filter(stuck_at__isnull=False)
            case "running":
                return active.filter(expires_at__gt=Now())
            case _:
                return queryset


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    """Holds, newest first, each with the transactions that made it what it is."""

    list_display = (
        *("made", "transaction_id", "status", "account_link", "payee_link", "amount", "captured", "released"),
        "expires",
    )
    list_display_links = ("transaction_id",)
    list_filter = ("status", ExpiryFilter)
    list_select_related = ("account", "transaction__held_money")
    search_help_text = "A hold's id, or the number of the payer's or the payee's account."
    ordering = ("-transaction",)
    fields = (
        *("transaction_id", "status", "account_link", "payee_link", "amount", "captured", "released", "left"),
        *("made", "expires", "ended", "stuck", "history"),
    )

    def found_by(self, term: str) -> Q | None:
        number = as_id(term)
        return any_of(pk=as_uuid(term), account_id=number, to_account_id=number)

    @admin.display(description="made at")
    def made(self, hold: Hold) -> str:
        return moment(hold.created_at)

    @admin.display(description="expires at")
    def expires(self, hold: Hold) -> str:
        return moment(hold.expires_at)

    @admin.display(description="ended at")
    def ended(self, hold: Hold) -> str:
        return moment(hold.ended_at)

    @admin.display(description="could not be released at")
    def stuck(self, hold: Hold) -> str:
        return moment(hold.stuck_at)

    @admin.display(description="payer's account")
    def account_link(self, hold: Hold) -> SafeString | str:
        return link_to(Account, hold.account_id)

    @admin.display(description="payee's account")
    def payee_link(self, hold: Hold) -> SafeString | str:
        return link_to(Account, hold.to_account_id)

    @admin.display(description="amount")
    def amount(self, hold: Hold) -> str:
        return format_amount(hold.transaction.held_money.amount, hold.account.currency)

    @admin.display(description="captured")
    def captured(self, hold: Hold) -> str:
        return format_amount(hold.transaction.held_money.spent, hold.account.currency)

    @admin.display(description="released")
    def released(self, hold: Hold) -> str:
        return format_amount(hold.transaction.held_money.released, hold.account.currency)

    @admin.display(description="still on hold")
    def left(self, hold: Hold) -> str:
        return format_amount(_left(hold.transaction.held_money), hold.account.currency)

    @admin.display(description="history")
    def history(self, hold: Hold) -> SafeString:
        return table(
            ["at", "type", "transaction", "amount", "by"],
            (
                [
                    moment(transaction.created_at),
                    transaction.type,
                    link_to(JournalTransaction, transaction.pk),
                    format_amount(transaction.amount, hold.account.currency),
                    transaction.initiator or EMPTY,
                ]
                for transaction in _transactions(hold)[:MOST_ROWS]
            ),
        )


def _transactions(hold: Hold) -> QuerySet[Any]:
    """What made the hold and what became of its money, in order, each with its amount."""
    # In one partition, as the time is given.
    credits = LedgerEntry.objects.filter(
        transaction=OuterRef("pk"), created_at=OuterRef("created_at"), amount__gt=0
    ).order_by()
    amount = credits.values("transaction").annotate(total=Sum("amount")).values("total")
    found = JournalTransaction.objects.filter(Q(pk=hold.pk) | Q(continues=hold.pk))
    return found.annotate(amount=Subquery(amount)).select_related("initiator").order_by("created_at", "pk")


def open_holds(account: Account) -> SafeString:
    """The holds that have money of an account, and the way to all that it ever made or was promised."""
    still_held = HeldMoney.objects.filter(account=account, amount__gt=F("spent") + F("released"))
    holds = Hold.objects.filter(pk__in=still_held.values("pk")).select_related("transaction__held_money")
    rows = table(
        ["hold", "still on hold", "payee's account", "expires at"],
        (
            [
                link_to(Hold, hold.pk),
                format_amount(_left(hold.transaction.held_money), account.currency),
                link_to(Account, hold.to_account_id),
                moment(hold.expires_at),
            ]
            for hold in holds.order_by("expires_at", "pk")[:MOST_ROWS]
        ),
    )
    return rows + link_to_list(Hold, "all holds", q=account.pk)


def _left(held: HeldMoney) -> int:
    return held.amount - held.spent - held.released
