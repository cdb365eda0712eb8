"""The admin's pages of events and of parked messages: looking only, but that parked events may be sent again."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from outbox.delivery import retry_parked
from outbox.models import OutboxEvent, ParkedMessage
from wallet_project.kernel.admin import EMPTY, MOST_ROWS, ReadOnlyAdmin, any_of, as_id, as_uuid, moment


class StateFilter(admin.SimpleListFilter):
    """By what became of an event; each state is found by an index."""

    title = "state"
    parameter_name = "state"

    STATES = {
        "waiting": Q(published=False, parked=False),
        "parked": Q(parked=True),
        "published": Q(published=True),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state, state.capitalize()) for state in self.STATES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(self.STATES.get(self.value() or "", Q()))


@admin.register(OutboxEvent)
class OutboxEventAdmin(ReadOnlyAdmin):
    """Events, and what became of each."""

    list_display = ("id", "at", "topic", "key", "event_id", "state", "published_moment")
    list_filter = (StateFilter,)
    search_help_text = "An event's number or its event id."
    ordering = ("-id",)
    actions = ("retry",)
    fields = (
        *("id", "event_id", "topic", "key", "payload_text", "at"),
        *("state", "published_moment", "attempts", "last_error"),
    )

    def found_by(self, term: str) -> Q | None:
        return any_of(pk=as_id(term), event_id=as_uuid(term))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whom Django's `permissions=["retry"]` asks."""
        return bool(request.user.has_perm("outbox.retry_outboxevent"))

    @admin.action(description="Send parked events again", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[OutboxEvent]) -> None:
        """The relay tries them with its next run; who asked for it stands in the admin's log."""
        retried = retry_parked(event_ids=list(queryset.values_list("pk", flat=True)[:MOST_ROWS]))
        for event in retried:
            self.log_change(request, event, "Sent again")
        self.message_user(request, f"{len(retried)} parked events will be sent again.")

    @admin.display(description="at")
    def at(self, event: OutboxEvent) -> str:
        return moment(event.created_at)

    @admin.display(description="state")
    def state(self, event: OutboxEvent) -> str:
        if event.parked:
            return "parked"
        return "published" if event.published else "waiting"

    @admin.display(description="published at")
    def published_moment(self, event: OutboxEvent) -> str:
        return moment(event.published_at)

    @admin.display(description="payload")
    def payload_text(self, event: OutboxEvent) -> SafeString:
        return format_html("<pre>{}</pre>", json.dumps(event.payload, indent=2, ensure_ascii=False))


@admin.register(ParkedMessage)
class ParkedMessageAdmin(ReadOnlyAdmin):
    """Messages that a consumer could not deal with. `manage.py consume_events --retry-parked` tries them again."""

    list_display = ("id", "consumer", "topic", "partition", "offset", "error", "at", "resolved_moment")
    ordering = ("-id",)
    fields = (
        *("id", "consumer", "topic", "partition", "offset", "key_text", "value_text", "headers"),
        *("error", "at", "resolved_moment"),
    )

    @admin.display(description="parked at")
    def at(self, message: ParkedMessage) -> str:
        return moment(message.parked_at)

    @admin.display(description="resolved at")
    def resolved_moment(self, message: ParkedMessage) -> str:
        return moment(message.resolved_at)

    @admin.display(description="key")
    def key_text(self, message: ParkedMessage) -> str:
        return _text(message.key)

    @admin.display(description="value")
    def value_text(self, message: ParkedMessage) -> str:
        return _text(message.value)


def _text(part: bytes | memoryview | None) -> str:
    return EMPTY if part is None else bytes(part).decode(errors="replace")
