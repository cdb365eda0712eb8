"""What beat runs of the outbox. The relay has a queue and a worker of its own, so that nothing holds up the events."""

import logging
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from outbox.relay import Relay
from outbox.retention import purge_inbox, purge_published
from outbox.watch import watch
from wallet_project.kernel import clock
from wallet_project.kernel.db import is_unavailable

logger = logging.getLogger(__name__)

# Kept between ticks, so that the connection to the broker is; it makes that at its first run, after the worker's fork.
_relay = Relay()
_PURGE_SECONDS = 60


@shared_task(name="outbox.tasks.relay")
def relay() -> None:
    """Publish what waits. A tick that is lost or comes twice is harmless: the next is a moment away."""
    try:
        _relay.run()
    except (DatabaseError, InterfaceError) as error:
        if not is_unavailable(error):
            raise
        logger.warning("the database is away, so events wait: %s", error)


@shared_task(name="outbox.tasks.purge")
def purge() -> None:
    """Delete what has been kept long enough."""
    now = clock.now()
    purge_published(before=now - timedelta(days=settings.OUTBOX_RETENTION_DAYS), seconds=_PURGE_SECONDS)
    purge_inbox(before=now - timedelta(days=settings.INBOX_RETENTION_DAYS), seconds=_PURGE_SECONDS)


@shared_task(name="outbox.tasks.watch")
def watch_outbox() -> None:
    """Look for a backlog that does not go away, and tell staff."""
    watch()
