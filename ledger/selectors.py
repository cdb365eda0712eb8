"""Readers of the book."""

import random
from functools import lru_cache

from accounts.models import Account


def draw_system_shard(*, kind: str, currency: str) -> int:
    """The id of a random shard of a system family: the account that a posting uses on the outside's behalf.

    Raises:
        LookupError: the currency has no system accounts; `migrate` makes them for every currency of the settings.
    """
    return random.choice(_system_shards(kind, currency))  # noqa: S311  It spreads load, it guards nothing.


@lru_cache
def _system_shards(kind: str, currency: str) -> tuple[int, ...]:
    """Shards are never deleted, so what was read once stays true."""
    shards = Account.objects.filter(kind=kind, currency=currency, parent__isnull=False)
    ids = tuple(shards.order_by("shard_no").values_list("pk", flat=True))
    if not ids:
        raise LookupError(f"no {kind} accounts in {currency}; run migrate")
    return ids
