"""Signs of life of processes that nobody can call: a mark in the cache that fades by itself."""

from collections.abc import Iterable

from django.core.cache import cache

BEAT = "beat"
WORKER = "worker"

BEAT_PERIOD = 5  # seconds; CELERY_BEAT_MAX_LOOP_INTERVAL
WORKER_PERIOD = 10  # seconds; the schedule of "worker-heartbeat"

_FRESH_PERIODS = 2


def mark(name: str, *, period: int) -> None:
    """Leave a mark that stands for two periods.

    Raises:
        RedisError: the cache is away.
    """
    cache.set(_key(name), True, timeout=period * _FRESH_PERIODS)


def fresh(names: Iterable[str]) -> set[str]:
    """Which of them were seen within two periods.

    Raises:
        RedisError: the cache is away.
    """
    keys = {_key(name): name for name in names}
    return {keys[key] for key in cache.get_many(keys)}


def _key(name: str) -> str:
    return f"alive:{name}"
