"""The project: settings, URLs, Celery, the exception handler, health, and the commands that set a database up.

Apps import nothing from here but `wallet_project.kernel`. Celery's application is imported so that `shared_task`
finds it in every process.
"""

from wallet_project.celery import app as celery_app

__all__ = ["celery_app"]
