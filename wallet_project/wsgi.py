"""The WSGI entry point that the web server loads."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "wallet_project.settings")

application = get_wsgi_application()
