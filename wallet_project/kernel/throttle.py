"""How often somebody may try, counted in Redis over a moving window by one atomic script; refused tries do not count.

With Redis away each process counts for itself until it is back: a small limit is better than none, and nobody waits.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock

import redis
from django.conf import settings
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter
from redis.backoff import NoBackoff
from redis.retry import Retry

from wallet_project.kernel.errors import RateLimited

logger = logging.getLogger(__name__)

SOCKET_TIMEOUT = 0.1  # seconds
PAUSE_AFTER_FAILURE = 5.0  # seconds for which Redis is not asked again


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """So many tries per so many seconds, for one kind of thing.

    Args:
        scope: the kind, as it stands in the keys.
        tries: how many pass in any window.
        seconds: the window's length.
    """

    scope: str
    tries: int
    seconds: int


class Throttle:
    """Counts tries; one per process."""

    def __init__(self, *, url: str) -> None:
        # No retries inside the client: a hanging Redis is to be decided on within SOCKET_TIMEOUT.
        self._shared = MovingWindowRateLimiter(
            RedisStorage(
                url,
                socket_timeout=SOCKET_TIMEOUT,
                socket_connect_timeout=SOCKET_TIMEOUT,
                retry=Retry(NoBackoff(), 0),  # type: ignore[arg-type]  # Handed to the client as it is.
            )
        )
        self._own = MovingWindowRateLimiter(MemoryStorage())
        self._ask_again_at = 0.0

    def check(self, limit: Limit, subject: str) -> None:
        """Count a try of `subject`.

        Raises:
            RateLimited: too many in this window; says after how many seconds the next one passes.
        """

        def count(limiter: MovingWindowRateLimiter, item: RateLimitItem, name: str) -> None:
            if not limiter.hit(item, name):
                seconds = limiter.get_window_stats(item, name).reset_time - time.time()
                raise RateLimited(retry_after=max(1, math.ceil(seconds)))

        self._with_limiter(count, limit, subject)

    def forget(self, limit: Limit, subject: str) -> None:
        """Take back all tries of `subject`: it has proved itself."""
        self._with_limiter(lambda limiter, item, name: limiter.clear(item, name), limit, subject)

    def _with_limiter(
        self, work: Callable[[MovingWindowRateLimiter, RateLimitItem, str], None], limit: Limit, subject: str
    ) -> None:
        item = RateLimitItemPerSecond(limit.tries, limit.seconds, namespace=limit.scope)
        name = hashlib.sha256(subject.encode()).hexdigest()  # Bounded, whatever a caller sends.
        if time.monotonic() >= self._ask_again_at:
            try:
                return work(self._shared, item, name)
            except redis.RedisError as error:
                logger.warning("redis is away, this process counts for itself: %s", error)
                self._ask_again_at = time.monotonic() + PAUSE_AFTER_FAILURE
        return work(self._own, item, name)


_made = Lock()


def throttle() -> Throttle:
    """This process's one throttle, in the cache's database; two of them would each count for themselves."""
    with _made:
        return _throttle()


@cache
def _throttle() -> Throttle:
    return Throttle(url=settings.CACHE_URL)
