"""Addresses of sign-up and sign-in, under /v1/."""

from django.urls import path

from accounts.api.views import TokenViewSet, UserViewSet

urlpatterns = [
    path("users", UserViewSet.as_view({"post": "create"})),
    path("auth/token", TokenViewSet.as_view({"post": "create"})),
    path("auth/token/refresh", TokenViewSet.as_view({"post": "refresh"})),
    path("auth/logout", TokenViewSet.as_view({"post": "logout"})),
]
