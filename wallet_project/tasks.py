"""Tasks of the project itself."""

from celery import shared_task

from wallet_project import heartbeat


@shared_task(name="wallet_project.tasks.mark_worker_alive")
def mark_worker_alive() -> None:
    """Show that a worker takes tasks."""
    heartbeat.mark(heartbeat.WORKER, period=heartbeat.WORKER_PERIOD)
