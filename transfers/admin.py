"""The admin's pages of what use cases keep beside the book."""

from django.contrib import admin
from django.db.models import Q

from transfers import account_admin, hold_admin, order_admin, reversal_admin
from transfers.models import Notification
from wallet_project.kernel.admin import ReadOnlyAdmin, any_of, as_id, as_uuid, moment

__all__ = ["NotificationAdmin", "account_admin", "hold_admin", "order_admin", "reversal_admin"]


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    """What users were told of money that moved."""

    list_display = ("id", "at", "user_id", "account_id", "type", "amount", "currency", "transaction_id")
    search_help_text = "A user's number, or a transaction's id."
    ordering = ("-id",)
    fields = ("id", "user_id", "account_id", "transaction_id", "type", "amount", "currency", "happened", "at")

    def found_by(self, term: str) -> Q | None:
        return any_of(user_id=as_id(term), transaction_id=as_uuid(term))

    @admin.display(description="told at")
    def at(self, notification: Notification) -> str:
        return moment(notification.created_at)

    @admin.display(description="happened at")
    def happened(self, notification: Notification) -> str:
        return moment(notification.occurred_at)
