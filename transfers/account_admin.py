"""The admin's page of accounts, with the money of theirs that is on hold."""

from django.contrib import admin
from django.utils.safestring import SafeString

from accounts.models import Account
from ledger.admin import AccountWithEntriesAdmin
from ledger.holdings import held_balance
from transfers.hold_admin import open_holds
from wallet_project.kernel.money import format_amount


@admin.register(Account)
class AccountWithHoldsAdmin(AccountWithEntriesAdmin):
    """Accounts, with what has left their balance and is nobody else's yet."""

    fields = (*AccountWithEntriesAdmin.fields, "held", "holds")

    @admin.display(description="on hold, withdrawals included")
    def held(self, account: Account) -> str:
        [held] = Account.objects.filter(pk=account.pk).annotate(held=held_balance()).values_list("held", flat=True)
        return format_amount(held, account.currency)

    @admin.display(description="open holds")
    def holds(self, account: Account) -> SafeString:
        return open_holds(account)
