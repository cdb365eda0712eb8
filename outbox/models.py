"""The transactional outbox, what its relay knows of itself, and the inbox of those who consume."""

from django.contrib.postgres.functions import TransactionNow
from django.db import models
from django.db.models import Q

_LANE_OF_KEY = models.Func(
    template="(hashtextextended(topic || ':' || key, 0) & 3)::smallint", output_field=models.SmallIntegerField()
)


class OutboxQuerySet(models.QuerySet["OutboxEvent"]):
    def waiting(self) -> "OutboxQuerySet":
        """What is to be published. The floor keeps a poll from walking over rows that are settled (RelayState)."""
        floor = RelayState.objects.values("floor")[:1]
        return self.filter(published=False, parked=False, pk__gt=models.Subquery(floor))


class OutboxEvent(models.Model):
    """An event that leaves the house because its transaction committed, and only then.

    `key` orders: events of one key in one topic reach the broker in commit order. `event_id` is the same in every
    delivery. `parked` events can never be sent; `last_error` says why, and later events of their key flow on. `lane` is
    which quarter of all keys this one belongs to, 0 to 3: one relay at a time works on a lane.

    Invariants, and what holds each:
    - what an event says never changes: the application may update the columns of its delivery only (grants);
    - no event is deleted before it was published: trigger `outbox_event_is_kept`;
    - published has a time, parked has a reason, and nothing is both: the constraints below.
    """

    topic = models.CharField(max_length=64)
    key = models.CharField(max_length=64, blank=True, default="", db_default="")
    event_id = models.UUIDField(db_default=models.Func(function="gen_random_uuid"), unique=True)
    payload = models.JSONField()
    created_at = models.DateTimeField(db_default=TransactionNow())
    published = models.BooleanField(default=False, db_default=False)
    published_at = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(default=0, db_default=0)  # how often the broker refused the event for its own sake
    last_error = models.TextField(blank=True, default="", db_default="")
    parked = models.BooleanField(default=False, db_default=False)
    lane = models.GeneratedField(expression=_LANE_OF_KEY, output_field=models.SmallIntegerField(), db_persist=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        db_table = "outbox_event"
        permissions = [("retry_outboxevent", "Can send parked events again")]
        indexes = [
            # The relay's poll: a lane's unpublished events in order.
            models.Index(name="outbox_event_unpublished", fields=["lane", "id"], condition=Q(published=False)),
            # The admin's list of parked events, and their number.
            models.Index(name="outbox_event_parked", fields=["id"], condition=Q(parked=True)),
        ]
        constraints = [
            models.CheckConstraint(
                name="outbox_event_published_when",
                condition=Q(published=False) | Q(published_at__isnull=False),
            ),
            models.CheckConstraint(
                name="outbox_event_parked_why", condition=Q(parked=False) | Q(published=False) & ~Q(last_error="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.event_id}"


class RelayState(models.Model):
    """One row, shared by all relays: where their poll begins, and their figures.

    Every event up to `floor` is settled: published, parked, or rolled back. Without it a poll would walk over all rows
    published since the oldest open transaction of anybody began, for they cannot be vacuumed (docs/adr/0008). It
    follows `ceiling`, the newest id that was visible at some moment, once every transaction that was at work at that
    moment has ended (its number is below `horizon`): until then one of them may yet commit an event with a smaller id.

    `rate` is of published events per second, weighted exponentially over a minute, as of `rate_at`. Times of runs in
    seconds. `failing_since` is when deliveries began to fail, `lagging_since` when staff were told of a backlog.
    """

    floor = models.BigIntegerField(default=0, db_default=0)
    ceiling = models.BigIntegerField(default=0, db_default=0)
    horizon = models.BigIntegerField(default=0, db_default=0)
    published_total = models.BigIntegerField(default=0, db_default=0)
    parked_total = models.BigIntegerField(default=0, db_default=0)
    rate = models.FloatField(default=0, db_default=0.0)
    rate_at = models.DateTimeField(db_default=TransactionNow())
    runs_total = models.BigIntegerField(default=0, db_default=0)
    run_seconds_total = models.FloatField(default=0, db_default=0.0)
    last_run_seconds = models.FloatField(default=0, db_default=0.0)
    last_run_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="", db_default="")
    lagging_since = models.DateTimeField(null=True, blank=True)
    bloated_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "outbox_relay"
        constraints = [models.CheckConstraint(name="outbox_relay_is_one_row", condition=Q(id=1))]

    def __str__(self) -> str:
        return "relay"


class InboxMessage(models.Model):
    """A message that a consumer has dealt with, written in the transaction of its work: so it is dealt with once."""

    consumer = models.CharField(max_length=64)
    message_id = models.CharField(max_length=64)  # transactionId, or ce_id where no money moved
    received_at = models.DateTimeField(db_default=TransactionNow())

    class Meta:
        db_table = "inbox_message"
        constraints = [
            models.UniqueConstraint(name="inbox_message_once", fields=["consumer", "message_id"]),
        ]

    def __str__(self) -> str:
        return f"{self.consumer} {self.message_id}"


class ParkedMessage(models.Model):
    """A message that a consumer could not deal with, kept whole, so that the messages behind it are dealt with."""

    consumer = models.CharField(max_length=64)
    topic = models.CharField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
    headers = models.JSONField()
    error = models.TextField()
    parked_at = models.DateTimeField(db_default=TransactionNow())
    resolved_at = models.DateTimeField(null=True, blank=True)  # when a later attempt went well

    class Meta:
        db_table = "inbox_parked_message"
        constraints = [
            models.UniqueConstraint(
                name="inbox_parked_message_once", fields=["consumer", "topic", "partition", "offset"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.consumer} {self.topic}[{self.partition}]@{self.offset}"
