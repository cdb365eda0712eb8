"""What beat asks of the ledger. Running one twice, or on two workers at once, is harmless."""

from celery import shared_task
from django.db import OperationalError

from ledger import partitions, reconciliation


@shared_task(
    autoretry_for=(OperationalError,),
    retry_backoff=2,  # seconds; doubled each time, of which jitter takes a random part
    retry_backoff_max=120,
    retry_jitter=True,
    max_retries=8,
)
def add_partitions() -> None:
    """Keep partitions ahead. Locks that are not had in time are tried for again, never at the same moment as before."""
    partitions.add_partitions()


@shared_task
def reconcile_business_date() -> None:
    """Run the nightly reconciliation where it is due; what fails is tried again at the next tick."""
    reconciliation.reconcile_business_dates()
