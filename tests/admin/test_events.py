"""Parked events: staff with the right send them again, and nobody else does."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import User
from outbox.models import OutboxEvent
from tests.admin.conftest import SignIn
from tests.outbox.kit import add_events

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/outbox/outboxevent/"


def test_parked_events_are_sent_again_by_whom_may(sign_in: SignIn) -> None:
    parked, waiting = _parked(), add_events(1)
    browser = sign_in("support")
    _may_retry("support")

    answer = _retry(browser)

    assert "1 parked events will be sent again." in answer
    assert not OutboxEvent.objects.filter(parked=True).exists()
    log = browser.get(f"{LIST}{parked.pk}/history/").content.decode()
    assert "Sent again" in log
    untouched = OutboxEvent.objects.get(event_id=waiting[0])
    assert "Sent again" not in browser.get(f"{LIST}{untouched.pk}/history/").content.decode()


def test_nobody_else_sends_them(sign_in: SignIn) -> None:
    _parked()
    browser = sign_in("support")
    answer = browser.post(LIST, {"action": "retry", "_selected_action": _ids(), "index": "0"})
    assert answer.status_code == 403
    assert OutboxEvent.objects.filter(parked=True).count() == 1


def _retry(browser: Client) -> str:
    answer = browser.post(LIST, {"action": "retry", "_selected_action": _ids(), "index": "0"}, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def _ids() -> list[str]:
    return [str(pk) for pk in OutboxEvent.objects.values_list("pk", flat=True)]


def _parked() -> OutboxEvent:
    (event_id,) = add_events(1)
    event = OutboxEvent.objects.get(event_id=event_id)
    OutboxEvent.objects.filter(pk=event.pk).update(parked=True, last_error="too large")
    return event


def _may_retry(username: str) -> None:
    user = User.objects.get(username__startswith=username)
    user.user_permissions.add(Permission.objects.get(codename="retry_outboxevent"))
