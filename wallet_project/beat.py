"""Celery beat's scheduler, which also shows that beat lives."""

import logging
import time
from datetime import UTC, datetime
from typing import Any

from celery.beat import PersistentScheduler
from celery.schedules import crontab
from redis.exceptions import RedisError

from wallet_project import heartbeat

logger = logging.getLogger(__name__)

_MARK_EVERY = 2  # seconds


class MarkingScheduler(PersistentScheduler):
    """Ticks as usual; a cache that is away delays no schedule."""

    _marked_at = float("-inf")

    def setup_schedule(self) -> None:
        """What runs every so many seconds runs at once, too: nobody is to wait for the worker's first mark."""
        super().setup_schedule()
        for entry in self.schedule.values():
            if not isinstance(entry.schedule, crontab):
                entry.last_run_at = datetime.fromtimestamp(0, UTC)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        now = time.monotonic()
        if now - self._marked_at >= _MARK_EVERY:
            self._marked_at = now
            try:
                heartbeat.mark(heartbeat.BEAT, period=heartbeat.BEAT_PERIOD)
            except RedisError as error:
                logger.warning("beat cannot leave its mark: %s", error)
        return super().tick(*args, **kwargs)
