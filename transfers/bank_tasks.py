"""What workers do with the bank. Its queue has a worker of its own, so that a slow bank holds up nothing else.

A task that is lost, comes twice or is killed is harmless: all that is to be done stands in the database, and the next
sweep finds it there.
"""

import logging
from uuid import UUID

from celery import shared_task
from django.db import DatabaseError, InterfaceError

from transfers.services import advance, due_orders
from wallet_project.kernel.db import is_unavailable
from wallet_project.kernel.errors import Unavailable

logger = logging.getLogger(__name__)

# As long as until the next sweep, which sends the same again: so no queue builds up behind a slow bank.
_EXPIRES = 1  # second


@shared_task(name="transfers.bank_tasks.sweep_orders")
def sweep_orders() -> None:
    """Hand the orders whose next step is due to the workers."""
    try:
        due = due_orders()
    except (DatabaseError, InterfaceError) as error:
        if not is_unavailable(error):
            raise
        logger.warning("the database is away, so orders wait: %s", error)
        return
    for order_id in due:
        advance_order.apply_async((str(order_id),), expires=_EXPIRES)


@shared_task(name="transfers.bank_tasks.advance_order")
def advance_order(order_id: str) -> None:
    """Do an order's next step; whatever breaks here breaks for this order alone, which comes up again by itself."""
    try:
        advance(UUID(order_id))
    except (DatabaseError, InterfaceError) as error:
        if not is_unavailable(error):
            raise
        logger.warning("the database is away, so order %s waits: %s", order_id, error)
    except Unavailable as error:
        logger.warning("order %s waits: %s", order_id, error)
