"""The admin's pages of users, groups, accounts and freezes.

The page of accounts is registered by transfers, which knows their entries and what is on hold of them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group
from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from accounts.forms import StaffSignInForm
from accounts.models import Account, Freeze, User
from accounts.services import freeze, thaw
from wallet_project.kernel.admin import (
    EMPTY,
    MOST_AT_ONCE,
    MOST_ROWS,
    BoundedAdmin,
    ReadOnlyAdmin,
    ReasonForm,
    any_of,
    as_id,
    link_to,
    link_to_list,
    moment,
    table,
)
from wallet_project.kernel.errors import DomainError
from wallet_project.kernel.money import format_amount


@admin.register(User)
class WalletUserAdmin(BoundedAdmin, UserAdmin):  # type: ignore[type-arg]  # Django's own class takes none at runtime.
    """Staff with the permission look; superusers add and edit; nobody deletes, and nobody touches the user `system`."""

    list_display = ("username", "id", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("is_staff", "groups")
    search_help_text = "A username or a user's number, in full."
    ordering = ("username",)
    readonly_fields = ("last_login", "date_joined", "accounts_link")

    def found_by(self, term: str) -> Q | None:
        return any_of(username=term, pk=as_id(term))

    def has_add_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return _is_superuser(request) and (obj is None or obj.username != User.SYSTEM)

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        return fieldsets if obj is None else [*fieldsets, ("Wallet", {"fields": ("accounts_link",)})]

    @admin.display(description="accounts")
    def accounts_link(self, user: User) -> SafeString:
        return link_to_list(Account, "The user's accounts", owner__id__exact=user.pk)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


admin.site.login_form = StaffSignInForm
admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    """Groups and their permissions come from migrations; the page of a user puts people into them."""

    fields = ("name", "permissions")
    ordering = ("name",)


class AccountAdmin(ReadOnlyAdmin):
    """Accounts with their balances; a frozen one says so, and whoever has the permission freezes and thaws."""

    list_display: tuple[str, ...] = (
        *("id", "owner_link", "kind", "balance_text", "state", "name", "family", "last_entry"),
    )
    list_filter = ("kind", "status")
    list_select_related = ("owner",)
    search_help_text = "An account's number, or its owner's username, in full."
    ordering = ("-id",)
    fields: ClassVar[tuple[str, ...]] = (
        *("id", "owner", "kind", "currency", "balance_text", "family_balance", "state", "name", "allow_negative"),
        *("family", "shard_no", "created", "last_entry", "freezes"),
    )

    actions = ("freeze_selected", "thaw_selected")

    def has_freeze_permission(self, request: HttpRequest) -> bool:
        """What Django asks of an action that names the permission `freeze`."""
        return request.user.has_perm("accounts.freeze_account")

    @admin.action(description="Freeze selected wallets …", permissions=["freeze"])
    def freeze_selected(self, request: HttpRequest, queryset: QuerySet[Account]) -> HttpResponse | None:
        """Stops their outflow, after a confirmation and with a reason."""

        def work(account_id: int, reason: str) -> None:
            freeze(account_id=account_id, cause=Freeze.Cause.STAFF, reason=reason, staff_id=_staff(request).pk)

        return self._with_reason(request, queryset, title="Freeze wallets", done="frozen", work=work)

    @admin.action(description="Thaw selected wallets …", permissions=["freeze"])
    def thaw_selected(self, request: HttpRequest, queryset: QuerySet[Account]) -> HttpResponse | None:
        """Ends all their freezes, after a confirmation and with a reason."""

        def work(account_id: int, reason: str) -> None:
            thaw(account_id=account_id, reason=reason, staff_id=_staff(request).pk)

        return self._with_reason(request, queryset, title="Thaw wallets", done="thawed", work=work)

    def _with_reason(
        self,
        request: HttpRequest,
        queryset: QuerySet[Account],
        *,
        title: str,
        done: str,
        work: Callable[[int, str], None],
    ) -> HttpResponse | None:
        accounts = list(queryset.select_related("owner").order_by("pk")[: MOST_AT_ONCE + 1])
        if len(accounts) > MOST_AT_ONCE:
            messages.error(request, f"At most {MOST_AT_ONCE} wallets at once; nothing was done.")
            return None
        form = ReasonForm(request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            context = {
                **self.admin_site.each_context(request),
                "title": title,
                "opts": self.opts,
                "accounts": accounts,
                "form": form,
                "action": request.POST["action"],
            }
            return TemplateResponse(request, "admin/with_reason.html", context)
        for account in accounts:
            try:
                work(account.pk, form.cleaned_data["reason"])
            except DomainError as refusal:
                messages.error(request, f"Account {account.pk} was not {done}: {refusal.detail}")
            else:
                messages.success(request, f"Account {account.pk} was {done}.")
                self.log_change(request, account, f"{done.capitalize()}: {form.cleaned_data['reason']}")
        return None

    def found_by(self, term: str) -> Q | None:
        # The owner is looked up first: a condition on two tables at once would find no index.
        owner_id = User.objects.filter(username=term).values_list("pk", flat=True).first()
        return any_of(pk=as_id(term), owner_id=owner_id)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Account]:
        return Account.objects.with_frozen()

    @admin.display(description="owner")
    def owner_link(self, account: Account) -> SafeString | str:
        return link_to(User, account.owner_id, account.owner.username)

    @admin.display(description="balance")
    def balance_text(self, account: Account) -> str:
        return format_amount(account.balance, account.currency)

    @admin.display(description="balance of the family")
    def family_balance(self, account: Account) -> str:
        family = Account.objects.filter(Q(pk=account.pk) | Q(parent_id=account.pk))
        return format_amount(family.aggregate(total=Sum("balance"))["total"], account.currency)

    @admin.display(description="status")
    def state(self, account: Any) -> str:
        return "FROZEN" if account.frozen else str(account.status)

    @admin.display(description="family")
    def family(self, account: Account) -> SafeString | str:
        if account.parent_id is not None:
            return link_to(Account, account.parent_id, f"shard of {account.parent_id}")
        return EMPTY if account.kind == Account.Kind.WALLET else _shards_link(account)

    @admin.display(description="last entry at")
    def last_entry(self, account: Account) -> str:
        return moment(account.last_entry_at)

    @admin.display(description="created at")
    def created(self, account: Account) -> str:
        return moment(account.created_at)

    @admin.display(description="freezes")
    def freezes(self, account: Account) -> SafeString:
        found = account.freezes.select_related("made_by", "thaw__made_by").order_by("-pk")[:MOST_ROWS]
        return table(
            ["freeze", "cause", "reason", "by", "at", "thawed"],
            (
                (
                    *(link_to(Freeze, freeze.pk), freeze.cause, freeze.reason, freeze.made_by),
                    *(moment(freeze.created_at), _thaw_text(freeze)),
                )
                for freeze in found
            ),
        )


def _staff(request: HttpRequest) -> User:
    """Who acts; Django has let nobody in who has not signed in."""
    assert isinstance(request.user, User)  # noqa: S101
    return request.user


def _shards_link(account: Account) -> SafeString:
    return link_to_list(Account, "shards", parent__id__exact=account.pk)


def _thaw_text(freeze: Freeze) -> str:
    thaw = getattr(freeze, "thaw", None)
    return EMPTY if thaw is None else f"{moment(thaw.created_at)} by {thaw.made_by}: {thaw.reason}"


@admin.register(Freeze)
class FreezeAdmin(ReadOnlyAdmin):
    """Freezes, with what ended them."""

    list_display = ("id", "account_link", "cause", "reason", "made_by", "made", "thawed")
    list_filter = ("cause",)
    list_select_related = ("made_by", "thaw__made_by")
    search_help_text = "An account's number."
    ordering = ("-id",)
    fields = ("account_link", "cause", "reason", "made_by", "made", "thawed")

    def found_by(self, term: str) -> Q | None:
        return any_of(account_id=as_id(term))

    @admin.display(description="account")
    def account_link(self, freeze: Freeze) -> SafeString | str:
        return link_to(Account, freeze.account_id)

    @admin.display(description="made at")
    def made(self, freeze: Freeze) -> str:
        return moment(freeze.created_at)

    @admin.display(description="thawed")
    def thawed(self, freeze: Freeze) -> str:
        return _thaw_text(freeze)
