"""Stays are forgotten some time after they have expired, and no others."""

from datetime import timedelta

import pytest

from accounts.models import SignIn
from accounts.sessions import sign_in
from accounts.tasks import purge_sign_ins
from tests.world import PASSWORD, World
from wallet_project.kernel import clock

pytestmark = pytest.mark.django_db(transaction=True)


def test_only_what_expired_long_ago_is_forgotten(world: World) -> None:
    user = world.person("an").user
    for days_ago in (-1, 6, 8):
        sign_in(username=user.username, password=PASSWORD, address="127.0.0.1")
        newest = SignIn.objects.latest("created_at")
        SignIn.objects.filter(pk=newest.pk).update(expires_at=clock.now() - timedelta(days=days_ago))
    purge_sign_ins()
    assert SignIn.objects.count() == 2
    assert not SignIn.objects.filter(expires_at__lt=clock.now() - timedelta(days=7)).exists()
