"""Users: signing up, the stamp of a password, and the user `system`."""

from typing import Any

import pytest
from django.contrib.auth.hashers import is_password_usable
from django.db import transaction
from django.db.models import ProtectedError

from accounts.errors import PasswordRefused, UsernameTaken
from accounts.models import Account, User
from accounts.selectors import confirm_caller, system_user_id
from accounts.services import Caller, open_wallet, sign_up, stamp_of
from tests.races import at_once
from tests.world import PASSWORD, World
from wallet_project.kernel.errors import DomainError, TokenInvalid

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def unlimited(settings: Any) -> None:
    settings.SIGN_UPS_PER_ADDRESS = 10_000  # The throttle has tests of its own.


def test_who_signs_up_is_an_active_customer_and_no_more() -> None:
    user = sign_up(username="an.nguyen", password=PASSWORD, address=HERE)
    assert (user.is_active, user.is_staff, user.is_superuser) == (True, False, False)
    assert user.check_password(PASSWORD)
    assert PASSWORD not in user.password


@pytest.mark.parametrize(
    ("username", "password"),
    [("an.nguyen", "short"), ("an.nguyen", "password123"), ("an.nguyen", "an.nguyen"), ("an.nguyen", "")],
    ids=["short", "common", "the name itself", "none"],
)
def test_a_weak_password_is_refused_with_reasons(username: str, password: str) -> None:
    with pytest.raises(PasswordRefused) as refusal:
        sign_up(username=username, password=password, address=HERE)
    assert refusal.value.fields
    assert {field.field for field in refusal.value.fields} == {"password"}
    assert not User.objects.filter(username=username).exists()


def test_a_name_is_taken_once_even_at_the_same_moment() -> None:
    def try_to_sign_up() -> str:
        try:
            sign_up(username="an.nguyen", password=PASSWORD, address=HERE)
        except UsernameTaken:
            return "taken"
        return "signed up"

    said = at_once([try_to_sign_up] * 4)
    assert sorted(said) == ["signed up", "taken", "taken", "taken"]


def test_the_name_of_the_service_is_taken() -> None:
    with pytest.raises(UsernameTaken):
        sign_up(username="system", password=PASSWORD, address=HERE)


def test_the_stamp_follows_the_password_and_tells_nothing_of_it() -> None:
    stamps = [stamp_of(stored) for stored in ("a hash", "another hash", "a hash")]
    assert stamps[0] == stamps[2] != stamps[1]
    assert all(len(stamp) == 32 for stamp in stamps)


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another hash"}], ids=["disabled", "password"])
def test_a_caller_is_confirmed_as_of_now(world: World, change: dict[str, Any]) -> None:
    person = world.person("payer")
    assert confirm_caller(person.caller) == person.user
    User.objects.filter(pk=person.user.pk).update(**change)
    with pytest.raises(TokenInvalid):
        confirm_caller(person.caller)


def test_a_caller_who_was_never_there() -> None:
    with pytest.raises(TokenInvalid):
        confirm_caller(Caller(user_id=2**40, stamp="x" * 32))


def test_the_service_itself_cannot_sign_in() -> None:
    system = User.objects.get(pk=system_user_id())
    assert (system.username, system.is_active, is_password_usable(system.password)) == ("system", False, False)


def test_every_currency_has_its_families_of_sixteen_shards(settings: Any) -> None:
    for currency in settings.CURRENCIES:
        heads = Account.objects.filter(currency=currency, parent=None).exclude(kind=Account.Kind.WALLET)
        assert sorted(heads.values_list("kind", flat=True)) == ["BANK_CLEARING", "HOLD", "RECEIVABLE", "SUSPENSE"]
        for head in heads:
            shards = list(head.shards.order_by("shard_no"))
            assert [shard.shard_no for shard in shards] == list(range(16))
            assert {shard.allow_negative for shard in shards} == {head.kind in Account.MAY_BE_NEGATIVE}
            assert {shard.owner_id for shard in shards} == {system_user_id()}


def test_a_wallet_is_opened_inside_a_use_case_only(world: World) -> None:
    owner = world.person("payer").user
    with pytest.raises(transaction.TransactionManagementError):
        open_wallet(owner_id=owner.pk, currency="VND", name="")
    with transaction.atomic():
        wallet = open_wallet(owner_id=owner.pk, currency="USD", name="travel")
    assert (wallet.owner, wallet.currency, wallet.name) == (owner, "USD", "travel")
    assert (wallet.balance, wallet.status, wallet.kind, wallet.allow_negative) == (0, "ACTIVE", "WALLET", False)
    assert wallet.parent is None


def test_refusals_are_domain_errors() -> None:
    for refusal in (UsernameTaken(), PasswordRefused(["It is too short."])):
        assert isinstance(refusal, DomainError)
        assert refusal.code == "invalid_request"


def test_models_name_themselves_without_a_query(world: World, django_assert_num_queries: Any) -> None:
    account = Account.objects.get(pk=world.person("payer").account_id)
    with django_assert_num_queries(0):
        assert str(account) == f"WALLET {account.pk}"


def test_deleting_a_user_with_a_wallet_is_protected(world: World) -> None:
    person = world.person("payer")
    with pytest.raises(ProtectedError):
        person.user.delete()


def test_nobody_signs_up_beside_somebody_with_other_capitals(world: World) -> None:
    world.person("finance")
    with pytest.raises(UsernameTaken):
        sign_up(username="Finance", password=PASSWORD, address=HERE)
