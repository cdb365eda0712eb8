"""Liveness and readiness. Each check is bounded on its own, and an answer waits for none longer than a second."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from threading import Lock

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.db import connections
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response

from wallet_project import heartbeat
from wallet_project.kernel.views import ApiViewSet

OK = "ok"
UNAVAILABLE = "unavailable"
DEGRADED = "degraded"

_PATIENCE = 0.7  # seconds

Probe = Callable[[], set[str]]

# Threads of their own, one per probe: a server that hangs keeps its probe busy, and no thread that serves requests.
_threads = ThreadPoolExecutor(max_workers=3, thread_name_prefix="health")
_running: dict[Probe, Future[set[str]]] = {}
_lock = Lock()


class HealthViewSet(ApiViewSet):
    """For load balancers and supervisors: nobody signs in."""

    authentication_classes = ()
    permission_classes = ()

    def live(self, request: Request) -> Response:
        """The process lives. It asks nobody, so that a slow database restarts nothing."""
        return Response({"status": OK})

    def ready(self, request: Request) -> Response:
        """Whether requests can be served. Money needs the database alone; whatever else is away only degrades."""
        checks = check_all()
        if checks["database"] != OK:
            return Response({"status": UNAVAILABLE, "checks": checks}, status=503, headers={"Retry-After": "1"})
        status = OK if set(checks.values()) == {OK} else DEGRADED
        return Response({"status": status, "checks": checks})


def check_all() -> dict[str, str]:
    """Each part's state by its name."""
    running = [_started(probe) for probe in (_database, _marks, _broker)]
    done, _ = wait(running, timeout=_PATIENCE)
    alive = {name for probe in done for name in probe.result()}
    names = ("database", "redis", "broker", heartbeat.BEAT, heartbeat.WORKER)
    return {name: OK if name in alive else UNAVAILABLE for name in names}


def _started(probe: Probe) -> Future[set[str]]:
    """The probe at work; those who ask at one moment share it, and one that hangs is not started again."""
    with _lock:
        running = _running.get(probe)
        if running is None or running.done():
            running = _running[probe] = _threads.submit(probe)
        return running


def _database() -> set[str]:
    """On a connection of its own: it waits for no slot of a pool, and trips over no connection that went stale."""
    try:
        parameters = connections["default"].get_connection_params()
        with psycopg.connect(**parameters, autocommit=True, tcp_user_timeout=1000) as connection:  # milliseconds
            connection.execute("SELECT 1")
    except psycopg.Error:
        return set()
    return {"database"}


def _marks() -> set[str]:
    """The cache, and whoever left a fresh mark there."""
    try:
        return {"redis", *heartbeat.fresh([heartbeat.BEAT, heartbeat.WORKER])}
    except RedisError:
        return set()


def _broker() -> set[str]:
    try:
        _admin_client().list_topics(timeout=_PATIENCE)
    except KafkaException:
        return set()
    return {"broker"}


@lru_cache
def _admin_client() -> AdminClient:
    """One per process, made when first needed: librdkafka's threads do not survive a fork."""
    return AdminClient(
        {
            **settings.KAFKA_CLIENT,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,  # That it is away is what the check answers.
        }
    )
