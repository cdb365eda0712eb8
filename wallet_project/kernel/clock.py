"""Where time and ids come from. Callers go through the module, so that a test can set both.

The time of an entry is not from here: it is the database's, taken under the account's lock (docs/adr/0002).
"""

import uuid
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import uuid_utils.compat
from django.conf import settings


def now() -> datetime:
    """The current instant, in UTC."""
    return datetime.now(UTC)


def business_zone() -> ZoneInfo:
    """The time zone in which a business day begins and ends."""
    return ZoneInfo(settings.BUSINESS_TIME_ZONE)


def business_date() -> date:
    """Today's date in the business time zone."""
    return now().astimezone(business_zone()).date()


def start_of(day: date) -> datetime:
    """The instant at which a business day begins; the day before ends there (half-open)."""
    return datetime(day.year, day.month, day.day, tzinfo=business_zone())


def new_id() -> uuid.UUID:
    """A new version 7 UUID (RFC 9562): ordered by time, so that the primary key's index grows at one end."""
    return uuid_utils.compat.uuid7()


def rfc3339(moment: datetime) -> str:
    """An instant as the API writes it: UTC with microseconds and a `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_epoch(seconds: int) -> datetime:
    """An instant from seconds since 1970, as tokens count."""
    return datetime.fromtimestamp(seconds, UTC)
