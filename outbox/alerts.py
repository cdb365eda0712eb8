"""Alerts: what a person has to look at, as events of the topic `wallet.alerts` and as lines in the log."""

import logging
from collections.abc import Mapping
from typing import Any

from outbox.services import Event, add_events
from wallet_project.kernel import clock
from wallet_project.kernel.db import demand_transaction

logger = logging.getLogger(__name__)

TOPIC = "wallet.alerts"
_DETAIL_CHARACTERS = 1000


def raise_alert(*, code: str, detail: str, subject: Mapping[str, Any], account_id: int | None = None) -> None:
    """Tell staff, in the open transaction: if that is rolled back, nothing was to be told.

    Args:
        code: what kind of thing happened, stable, in UPPER_CASE.
        detail: a sentence for people.
        subject: which thing it happened to, by its ids.
        account_id: the customer's wallet that it is about, if any.

    Raises:
        TransactionManagementError: no transaction is open.
    """
    demand_transaction()
    logger.critical("alert %s: %s %s", code, detail, dict(subject))
    payload = {
        "transactionId": None,
        "from": None,
        "to": None,
        "amount": None,
        "currency": None,
        "type": "ALERT",
        "occurredAt": clock.rfc3339(clock.now()),
        "code": code,
        "detail": detail[:_DETAIL_CHARACTERS],
        "subject": dict(subject),
    }
    key = code if account_id is None else str(account_id)
    add_events([Event(event_id=clock.new_id(), topic=TOPIC, key=key, payload=payload)])
