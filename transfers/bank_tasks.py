"""What workers do with the bank. Its queue has a worker of its own, so that a slow bank holds up nothing else.

A tick that is lost, comes twice or is killed is harmless: all that is to be done stands in the database, and the next
one finds it there.
"""

import logging
import random
import time

from celery import shared_task
from django.db import DatabaseError, InterfaceError

from transfers.services import advance, due_orders
from wallet_project.kernel.db import is_unavailable
from wallet_project.kernel.errors import Unavailable

logger = logging.getLogger(__name__)

# A tick works on until nothing is due, and as long as this; the next one begins beside it on a worker that is free. So
# all workers are at it while there is work, and behind a slow bank wait one tick a second, not a task per order.
_SECONDS = 30


@shared_task(name="transfers.bank_tasks.work_on_orders")
def work_on_orders() -> None:
    """Do the next step of the orders that are due. One that breaks ends this tick, and comes up again by itself."""
    end = time.monotonic() + _SECONDS
    try:
        while due := due_orders():
            random.shuffle(due)  # Several workers do not try for the same ones all along.
            for order_id in due:
                if time.monotonic() > end:
                    return
                advance(order_id)
    except (DatabaseError, InterfaceError) as error:
        if not is_unavailable(error):
            raise
        logger.warning("the database is away, so orders wait: %s", error)
    except Unavailable as error:
        logger.warning("orders wait: %s", error)
