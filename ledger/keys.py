"""Idempotency keys: what is already known of them, across both tables that hold some."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.errors import CONSTRAINTS, IdempotencyKeyReused
from ledger.models import IdempotencyRecord
from wallet_project.kernel.db import demand_transaction, translated

Key = tuple[int, str]  # initiator and key

# Both tables in one statement, so that both are seen as of one moment.
LOOK_UP = """
    SELECT j.initiator_id, j.idempotency_key, j.fingerprint, j.id, j.type, j.created_at, NULL::smallint,
           j.response::text
      FROM unnest(%s::bigint[], %s::varchar[]) AS k (initiator_id, key)
      JOIN journal_transaction j ON j.initiator_id = k.initiator_id AND j.idempotency_key = k.key
    UNION ALL
    SELECT r.initiator_id, r.key, r.fingerprint, NULL, NULL, r.created_at, r.status, r.response
      FROM unnest(%s::bigint[], %s::varchar[]) AS k (initiator_id, key)
      JOIN idempotency_record r ON r.initiator_id = k.initiator_id AND r.key = k.key
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key that belongs to a command which succeeded: a journal transaction, or a stored answer."""

    fingerprint: bytes
    transaction_id: UUID | None
    type: str | None
    created_at: datetime
    status: int | None
    response: Any

    def must_match(self, fingerprint: bytes) -> None:
        """Raises IdempotencyKeyReused when the key belongs to another command."""
        if self.fingerprint != fingerprint:
            raise IdempotencyKeyReused("This key belongs to another command of yours.")


def look_up_parameters(keys: Iterable[Key]) -> list[list[Any]]:
    """The parameters of LOOK_UP."""
    pairs = list(keys)
    initiators, names = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return [initiators, names, initiators, names]


def known_keys(rows: Iterable[tuple[Any, ...]]) -> Mapping[Key, KnownKey]:
    """The rows of LOOK_UP as values."""
    return {
        (initiator_id, key): KnownKey(
            fingerprint=bytes(fingerprint),
            transaction_id=transaction_id,
            type=type_,
            created_at=created_at,
            status=status,
            response=None if response is None else json.loads(response),
        )
        for initiator_id, key, fingerprint, transaction_id, type_, created_at, status, response in rows
    }


def find_key(*, initiator_id: int, key: str) -> KnownKey | None:
    """What is known of one key, as of now."""
    with connection.cursor() as cursor:
        cursor.execute(LOOK_UP, look_up_parameters([(initiator_id, key)]))
        return known_keys(cursor.fetchall()).get((initiator_id, key))


def record_key(*, initiator_id: int, key: str, fingerprint: bytes, status: int, response: Any) -> None:
    """Keep the answer of a command that posts nothing, in the transaction of its work.

    Raises:
        LostRace: the key was taken meanwhile; `run_in_transaction` begins again and replays.
    """
    demand_transaction()
    with translated(CONSTRAINTS):
        IdempotencyRecord.objects.create(
            initiator_id=initiator_id,
            key=key,
            fingerprint=fingerprint,
            status=status,
            response=json.dumps(response),
        )
