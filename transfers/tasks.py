"""What beat runs of the use cases. Running one twice, or on two workers at once, is harmless."""

import logging

from celery import shared_task
from django.db import DatabaseError, InterfaceError

from transfers import bank_tasks
from transfers.services import expire_due
from wallet_project.kernel.db import is_unavailable

__all__ = ["bank_tasks", "expire_holds"]

logger = logging.getLogger(__name__)


@shared_task(name="transfers.tasks.expire_holds")
def expire_holds() -> None:
    """Give back what is on hold and past its time; what is left undone the next tick finds."""
    try:
        expire_due()
    except (DatabaseError, InterfaceError) as error:
        if not is_unavailable(error):
            raise
        logger.warning("the database is away, so expired holds wait: %s", error)
