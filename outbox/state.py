"""Writers of the relays' one row: the floor of their poll, and their figures."""

from django.db import connection

from outbox.selectors import HEADS, RATE_SECONDS

# `seen` is one snapshot: whoever began before `horizon` has ended in it, so below `ceiling` it shows all there will be.
# Where another relay was quicker, the row's new horizon lies ahead of our snapshot, and nothing is changed.
_ADVANCE_FLOOR = f"""
    WITH seen AS (
        SELECT (SELECT max(id) FROM outbox_event) AS newest,
               (SELECT min(id) FROM ({HEADS}) AS head) AS first_waiting,
               pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_at_work,
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_to_begin
    )
    UPDATE outbox_relay
       SET floor = greatest(floor, least(ceiling, first_waiting - 1)), ceiling = newest, horizon = next_to_begin
      FROM seen
     WHERE horizon <= oldest_at_work AND (newest > ceiling OR floor < least(ceiling, first_waiting - 1))
"""  # noqa: S608  Both parts are ours.
# The horizon is set past this very transaction, so that no relay whose snapshot is older than our commit lifts the
# floor over the event.
_LOWER_FLOOR = """
    UPDATE outbox_relay SET floor = least(floor, %s - 1), horizon = pg_current_xact_id()::text::bigint + 1
"""
_COUNT_BATCH = """
    UPDATE outbox_relay
       SET published_total = published_total + %(published)s,
           parked_total = parked_total + %(parked)s,
           rate = rate * exp(-extract(epoch FROM clock_timestamp() - rate_at)::float / %(window)s)
                  + %(published)s::float / %(window)s,
           rate_at = clock_timestamp()
"""
_COUNT_RUN = """
    UPDATE outbox_relay
       SET runs_total = runs_total + 1,
           run_seconds_total = run_seconds_total + %(seconds)s,
           last_run_seconds = %(seconds)s,
           last_run_at = clock_timestamp(),
           last_error = %(error)s,
           failing_since = CASE WHEN %(error)s <> '' THEN coalesce(failing_since, clock_timestamp()) END
"""


def advance_floor() -> None:
    """Lift the floor to where all is settled, if everybody has ended who was at work when the ceiling was noted."""
    with connection.cursor() as cursor:
        cursor.execute(_ADVANCE_FLOOR, [[]])


def lower_floor(row_id: int) -> None:
    """Make sure that the polls come by an event that waits anew, in the transaction that makes it wait."""
    with connection.cursor() as cursor:
        cursor.execute(_LOWER_FLOOR, [row_id])


def count_batch(*, published: int, parked: int) -> None:
    """Count events, in the transaction that marks them; the relays' row stays locked until its end."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_BATCH, {"published": published, "parked": parked, "window": RATE_SECONDS})


def count_run(*, seconds: float, error: str) -> None:
    """Count a run that had something to do.

    Args:
        seconds: how long it took.
        error: why deliveries failed; empty if they did not.
    """
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_RUN, {"seconds": seconds, "error": error})
