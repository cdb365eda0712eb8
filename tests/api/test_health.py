"""Liveness and readiness, with everything there and with each server hanging: it takes connections and says nothing."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from celery import Celery
from celery.schedules import crontab
from django.conf import settings
from django.core.cache import cache
from django.test import override_settings

from tests.api.phone import Phones, at_once, problem
from tests.api.servers import hanging_server, terminate_backends
from tests.conftest import database_url, serving
from tests.world import World
from wallet_project.beat import MarkingScheduler
from wallet_project.tasks import mark_worker_alive

PATIENCE = 3  # seconds: no check may wait for a second, and the machine may be busy

pytestmark = pytest.mark.django_db(transaction=True)


def ready(url: str) -> tuple[int, dict[str, Any], float]:
    began = time.monotonic()
    answer = httpx.get(f"{url}/readyz", timeout=10)
    return answer.status_code, answer.json(), time.monotonic() - began


@pytest.fixture
def beat(tmp_path: Path) -> Iterator[MarkingScheduler]:
    """A beat with nothing to do."""
    scheduler = MarkingScheduler(app=Celery(set_as_current=False), schedule_filename=str(tmp_path / "schedule"))
    yield scheduler
    scheduler.close()


def test_alive(phones: Phones) -> None:
    answer = phones.http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert "set-cookie" not in answer.headers


def test_ready_when_all_are_there(service: str, beat: MarkingScheduler) -> None:
    beat.tick()
    mark_worker_alive()
    status, body, _ = ready(service)
    everything = dict.fromkeys(("database", "redis", "broker", "beat", "worker"), "ok")
    assert (status, body) == (200, {"status": "ok", "checks": everything})


def test_degraded_when_beat_or_worker_were_not_seen_lately(service: str, beat: MarkingScheduler) -> None:
    cache.delete_many(["alive:beat", "alive:worker"])
    assert ready(service)[1]["checks"] | {"beat": "unavailable", "worker": "unavailable"} == ready(service)[1]["checks"]
    mark_worker_alive()
    status, body, _ = ready(service)
    assert (status, body["status"]) == (200, "degraded")
    assert (body["checks"]["beat"], body["checks"]["worker"]) == ("unavailable", "ok")
    assert 0 < cache.ttl("alive:worker") <= 20  # type: ignore[attr-defined]  # django-redis has it.


def test_beat_begins_with_what_it_does_every_few_seconds(tmp_path: Path) -> None:
    app = Celery(set_as_current=False)
    app.conf.beat_schedule = {
        "soon": {"task": "soon", "schedule": 10.0},
        "nightly": {"task": "nightly", "schedule": crontab(hour="3", minute="27")},
    }
    scheduler = MarkingScheduler(app=app, schedule_filename=str(tmp_path / "schedule"))
    due = {name: scheduler.is_due(entry)[0] for name, entry in scheduler.schedule.items()}
    scheduler.close()
    assert due["soon"]
    assert not due["nightly"]


def test_beat_ticks_without_redis(beat: MarkingScheduler) -> None:
    with hanging_server() as port:
        hanging = {**settings.CACHES["default"], "LOCATION": f"redis://127.0.0.1:{port}/0"}
        with override_settings(CACHES={"default": hanging}):
            began = time.monotonic()
            for _ in range(100):
                beat.tick()
            assert time.monotonic() - began < PATIENCE


def test_redis_and_broker_hang(world: World, phones: Phones) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    with (
        hanging_server() as redis,
        hanging_server() as kafka,
        serving(REDIS_URL=f"redis://127.0.0.1:{redis}/0", KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:{kafka}") as served,
        httpx.Client(base_url=served.url) as http,
    ):
        for _ in range(3):
            status, body, seconds = ready(served.url)
            assert (status, body["status"]) == (200, "degraded")
            assert body["checks"] == {
                "database": "ok",
                **dict.fromkeys(("redis", "broker", "beat", "worker"), "unavailable"),
            }
            assert seconds < PATIENCE
        assert {answer[0] for answer in at_once([lambda: ready(served.url)] * 10)} == {200}
        phone = Phones(http).of(payer)
        began = time.monotonic()
        assert phone.pay(payer, payee, 10, key="K").status_code == 201
        assert phone.get(f"/v1/accounts/{payer.account_id}/entries").status_code == 200
        assert time.monotonic() - began < PATIENCE


def test_the_database_hangs(world: World) -> None:
    payer, payee = world.person("payer", balance=100), world.person("payee")
    with hanging_server() as port:
        user, rest = database_url("default").split("@")
        url = f"{user}@127.0.0.1:{port}/{rest.partition('/')[2]}"
        with serving(DATABASE_URL=url) as served, httpx.Client(base_url=served.url, timeout=10) as http:
            answers = at_once([lambda: ready(served.url)] * 6)
            for status, body, seconds in answers:
                assert (status, body["status"], body["checks"]["database"]) == (503, "unavailable", "unavailable")
                assert body["checks"]["redis"] == "ok"
                assert seconds < PATIENCE
            assert http.get("/healthz").status_code == 200
            phone = Phones(http).of(payer)
            problem(phone.pay(payer, payee, 10), status=503, code="unavailable")


def test_no_database_there(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    user, rest = database_url("default").split("@")
    url = f"{user}@127.0.0.1:{port}/{rest.partition('/')[2]}"
    with serving(DATABASE_URL=url) as served:
        answer = httpx.get(f"{served.url}/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"


def test_ready_is_never_wrong_about_a_connection_that_went_stale(
    world: World, superuser: psycopg.Connection[Any]
) -> None:
    person = world.person("an")
    with serving() as served, httpx.Client(base_url=served.url) as http:
        assert Phones(http).of(person).get("/v1/accounts").status_code == 200
        assert terminate_backends(superuser, served) > 0
        assert {ready(served.url)[0] for _ in range(20)} == {200}
