"""`python -m tests.outbox.bench_relay [EVENTS] [--kafka]`: how many events a second one relay drains from a backlog."""

import sys
import time
from collections.abc import Sequence

from tests.outbox.bench import servers


def main(arguments: Sequence[str]) -> None:
    counts = [int(argument) for argument in arguments if argument.isdigit()]
    with servers(apache="--kafka" in arguments):
        drain(counts[0] if counts else 100_000)


def drain(count: int) -> None:
    from django.db import connection

    from outbox.relay import Relay

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_event (topic, key, payload)"
            " SELECT 'wallet.transfers', (n %% 10000)::text, jsonb_build_object('transactionId', gen_random_uuid(),"
            " 'from', n, 'to', n + 1, 'amount', 100000, 'currency', 'VND', 'type', 'TRANSFER',"
            " 'occurredAt', '2026-11-30T12:00:00.000000Z') FROM generate_series(1, %s) AS n",
            [count],
        )
    relay = Relay()
    began, published = time.monotonic(), 0
    while run := relay.run().published:
        published += run
    seconds = time.monotonic() - began
    assert published == count, published
    print(f"{published} events in {seconds:.1f} s: {published / seconds:.0f} a second")


if __name__ == "__main__":
    main(sys.argv[1:])
