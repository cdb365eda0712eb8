"""Puts the project's own admin site in the place of Django's (INSTALLED_APPS)."""

from django.contrib.admin.apps import AdminConfig


class BackOfficeConfig(AdminConfig):
    """Django's admin, with `BackOffice` as the site on which all apps register."""

    default_site = "wallet_project.kernel.admin.BackOffice"
