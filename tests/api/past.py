"""Money that moved long ago. Only the owner of the tables may date entries back, oldest first."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg

from accounts.models import Account
from accounts.selectors import system_user_id
from ledger.selectors import draw_system_shard
from tests.world import Person


class Past:
    """Writes what the service would have written then."""

    def __init__(self, owner: psycopg.Connection[Any]) -> None:
        self._owner = owner

    def paid(
        self,
        payer: Person,
        payee: Person,
        amount: int,
        *,
        at: datetime,
        key: str | None = None,
        fingerprint: bytes = b"",
        reference: str = "",
    ) -> UUID:
        return self._post(
            {payer.account_id: -amount, payee.account_id: amount},
            at=at,
            type="TRANSFER",
            initiator_id=payer.user.pk,
            key=key,
            fingerprint=fingerprint,
            reference=reference,
        )

    def funded(self, payee: Person, amount: int, *, at: datetime) -> UUID:
        clearing = draw_system_shard(kind=Account.Kind.BANK_CLEARING, currency="VND")
        return self._post(
            {clearing: -amount, payee.account_id: amount}, at=at, type="DEPOSIT", initiator_id=system_user_id()
        )

    def _post(
        self,
        legs: dict[int, int],
        *,
        at: datetime,
        type: str,
        initiator_id: int,
        key: str | None = None,
        fingerprint: bytes = b"",
        reference: str = "",
    ) -> UUID:
        id_ = uuid4()
        with self._owner.transaction():
            self._owner.execute(
                "INSERT INTO journal_transaction"
                " (id, initiator_id, idempotency_key, type, fingerprint, reference, created_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [id_, initiator_id, key or str(id_), type, fingerprint, reference, at],
            )
            self._owner.execute(
                "INSERT INTO ledger_entry (transaction_id, account_id, amount, created_at)"
                " SELECT %s, e.*, %s FROM unnest(%s::bigint[], %s::bigint[]) AS e",
                [id_, at, list(legs), list(legs.values())],
            )
            self._owner.execute(
                "INSERT INTO outbox_event (topic, key, payload) VALUES ('wallet.transfers', '', %s)",
                [json.dumps({"transactionId": str(id_)})],
            )
        return id_
