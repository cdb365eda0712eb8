"""Every address of the service."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from wallet_project.health import HealthViewSet
from wallet_project.openapi import DocumentViewSet

urlpatterns = [
    path("v1/", include("transfers.api.urls")),
    path("v1/", include("accounts.api.urls")),
    path("v1/schema", DocumentViewSet.as_view({"get": "retrieve"}), name="schema"),
    path("v1/docs", DocumentViewSet.as_view({"get": "page"})),
    path("healthz", HealthViewSet.as_view({"get": "live"})),
    path("readyz", HealthViewSet.as_view({"get": "ready"})),
    path("admin/", admin.site.urls),
    path("admin", RedirectView.as_view(url="/admin/")),
]

handler400 = "wallet_project.exception_handler.bad_request"
handler403 = "wallet_project.exception_handler.permission_denied"
handler404 = "wallet_project.exception_handler.page_not_found"
handler500 = "wallet_project.exception_handler.server_error"
