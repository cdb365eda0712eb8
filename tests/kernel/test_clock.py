"""Time and ids."""

import threading
from datetime import UTC, date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pytest_django import Settings

from wallet_project.kernel import clock

SAIGON = ZoneInfo("Asia/Ho_Chi_Minh")


def test_now_is_in_utc() -> None:
    assert clock.now().utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        (datetime(2026, 1, 31, 16, 59, 59, 999_999, tzinfo=UTC), date(2026, 1, 31)),
        (datetime(2026, 1, 31, 17, 0, tzinfo=UTC), date(2026, 2, 1)),
    ],
)
def test_a_business_day_turns_at_midnight_of_its_zone(
    monkeypatch: pytest.MonkeyPatch, moment: datetime, day: date
) -> None:
    monkeypatch.setattr(clock, "now", lambda: moment)
    assert clock.business_date() == day
    assert clock.start_of(day) <= moment < clock.start_of(day + timedelta(days=1))


def test_the_zone_is_a_setting(settings: Settings) -> None:
    settings.BUSINESS_TIME_ZONE = "America/New_York"
    assert clock.start_of(date(2026, 7, 1)) == datetime(2026, 7, 1, 4, tzinfo=UTC)
    # The day on which the clocks go forward has 23 hours.
    assert clock.start_of(date(2026, 3, 9)).astimezone(UTC) - clock.start_of(date(2026, 3, 8)).astimezone(
        UTC
    ) == timedelta(hours=23)


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=SAIGON), "2026-01-01T20:04:05.000000Z"),
    ],
)
def test_instants_are_written_in_utc(moment: datetime, written: str) -> None:
    assert clock.rfc3339(moment) == written


def test_ids_are_version_7_of_this_moment_and_grow() -> None:
    before = clock.now()
    ids = [clock.new_id() for _ in range(10_000)]
    after = clock.now()
    assert ids == sorted(set(ids))
    assert {id_.version for id_ in ids} == {7}
    for id_ in (ids[0], ids[-1]):
        made = datetime.fromtimestamp((id_.int >> 80) / 1000, UTC)
        assert before - timedelta(milliseconds=1) <= made <= after + timedelta(milliseconds=1)


def test_threads_never_make_the_same_id() -> None:
    made: list[list[UUID]] = []
    threads = [threading.Thread(target=lambda: made.append([clock.new_id() for _ in range(5_000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id_ for ids in made for id_ in ids}) == 20_000
