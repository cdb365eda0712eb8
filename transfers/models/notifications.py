"""What users are told."""

from django.conf import settings
from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import Q

from accounts.models import Account


class NotificationQuerySet(models.QuerySet["Notification"]):
    def owned_by(self, user_id: int) -> "NotificationQuerySet":
        return self.filter(user_id=user_id)


class Notification(models.Model):
    """What a user is told of money that moved, written by the example consumer. Append-only: the application's rights.

    `amount` is signed as the wallet's owner sees it: negative is money out.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    transaction_id = models.UUIDField()
    type = models.CharField(max_length=32)
    amount = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    occurred_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=TransactionNow())

    objects = NotificationQuerySet.as_manager()

    class Meta:
        db_table = "notification"
        indexes = [
            # A user's list, newest first.
            models.Index(name="notification_of_user", fields=["user", "-id"]),
        ]
        constraints = [
            # Once per wallet, even if the inbox has forgotten the transaction.
            models.UniqueConstraint(name="notification_once", fields=["transaction_id", "account"]),
            models.CheckConstraint(name="notification_tells_of_money", condition=~Q(amount=0)),
        ]

    def __str__(self) -> str:
        return f"notification {self.pk}"
