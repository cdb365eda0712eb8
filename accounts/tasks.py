"""What beat runs of users and sign-ins."""

from celery import shared_task

from accounts import sessions


@shared_task(name="accounts.tasks.purge_sign_ins")
def purge_sign_ins() -> None:
    """Forget the stays that expired more than a week ago."""
    sessions.purge_sign_ins()
