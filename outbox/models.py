"""The transactional outbox."""

from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import Q


class OutboxEvent(models.Model):
    """An event that leaves the house because its transaction committed, and only then.

    `key` orders: events of one key in one topic reach the broker in commit order. `event_id` is the same in every
    delivery. `parked` events can never be sent; `last_error` says why.
    """

    topic = models.CharField(max_length=64)
    key = models.CharField(max_length=64, default="", db_default="")
    event_id = models.UUIDField(db_default=models.Func(function="gen_random_uuid"), unique=True)
    payload = models.JSONField()
    created_at = models.DateTimeField(db_default=TransactionNow())
    published = models.BooleanField(default=False, db_default=False)
    published_at = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(default=0, db_default=0)
    last_error = models.TextField(blank=True, default="", db_default="")
    parked = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "outbox_event"
        indexes = [
            # The relay's poll: unpublished events in order.
            models.Index(name="outbox_event_unpublished", fields=["id"], condition=Q(published=False)),
        ]
        constraints = [
            models.CheckConstraint(
                name="outbox_event_published_when",
                condition=Q(published=False) | Q(published_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.event_id}"
