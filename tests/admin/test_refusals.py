"""Who may look at what; and that nobody changes the book here, by form or by hand."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password

from accounts.models import User
from tests.admin.conftest import Book, SignIn

pytestmark = pytest.mark.django_db(transaction=True)

Snapshot = Callable[[], dict[str, Any]]
SEEN_BY_STAFF = [
    "ledger/journaltransaction",
    "ledger/ledgerentry",
    "ledger/reconciliationrun",
    "ledger/reconciliationfinding",
    "accounts/account",
    "accounts/freeze",
    "accounts/user",
    "outbox/outboxevent",
    "transfers/hold",
    "transfers/bankorder",
    "transfers/banknotice",
]
READ_ONLY = [*[page for page in SEEN_BY_STAFF if page != "accounts/user"], "auth/group"]


@pytest.mark.parametrize("who", ["superuser", "support", "finance"])
def test_staff_see_every_page(sign_in: SignIn, book: Book, who: str) -> None:
    browser = sign_in(who)
    pages = book.pages if who == "superuser" else {page: book.pages[page] for page in SEEN_BY_STAFF}

    for page, pk in pages.items():
        for address in (f"/admin/{page}/", f"/admin/{page}/{pk}/change/", f"/admin/{page}/{pk}/history/"):
            assert browser.get(address).status_code == 200, address
    apps = {page.split("/")[0] for page in pages}
    assert {browser.get(f"/admin/{app}/").status_code for app in apps} == {200}
    assert browser.get("/admin/").status_code == 200


@pytest.mark.parametrize(("who", "status"), [("clerk", 403), ("customer", 302), ("anonymous", 302)])
def test_nobody_else_sees_any(sign_in: SignIn, book: Book, who: str, status: int) -> None:
    browser = sign_in(who)

    for page, pk in book.pages.items():
        for address in (f"/admin/{page}/", f"/admin/{page}/{pk}/change/", f"/admin/{page}/{pk}/delete/"):
            response = browser.get(address)
            assert response.status_code == status, address
            assert status == 403 or response["Location"].startswith("/admin/login/")


def test_support_sees_no_groups(sign_in: SignIn, book: Book) -> None:
    assert sign_in("support").get("/admin/auth/group/").status_code == 403


@pytest.mark.parametrize("who", ["superuser", "support", "finance"])
@pytest.mark.parametrize("page", READ_ONLY)
def test_the_book_is_not_changed_here(sign_in: SignIn, book: Book, snapshot: Snapshot, who: str, page: str) -> None:
    browser = sign_in(who)
    pk = book.pages[page]
    form = {
        "amount": "1",
        "balance": "1",
        "status": "CLOSED",
        "name": "x",
        "reason": "x",
        "_save": "Save",
        "post": "yes",
    }
    before = snapshot()

    assert browser.get(f"/admin/{page}/add/").status_code == 403
    for address in (
        *(f"/admin/{page}/add/", f"/admin/{page}/{pk}/change/", f"/admin/{page}/{pk}/delete/"),
        f"/admin/{page}/{pk}/change/?_to_field={'transaction' if page == 'transfers/hold' else 'id'}",
    ):
        assert browser.post(address, form).status_code == 403, address
    action = {"action": "delete_selected", "_selected_action": str(pk), "post": "yes", "index": "0"}
    assert browser.post(f"/admin/{page}/", action).status_code == 403
    assert browser.post(f"/admin/{page}/", {**action, "select_across": "1"}).status_code == 403
    editable = {"form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": str(pk), "_save": "Save"}
    assert browser.post(f"/admin/{page}/", editable).status_code == 403

    assert snapshot() == before


def test_a_page_offers_nothing_that_is_refused(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("superuser")
    for page in READ_ONLY:
        shown = browser.get(f"/admin/{page}/{book.pages[page]}/change/").content.decode()
        listed = browser.get(f"/admin/{page}/").content.decode()
        assert "_save" not in shown
        assert "deletelink" not in shown
        assert "addlink" not in listed.split('id="content"')[1]
        assert "delete_selected" not in listed


@pytest.mark.parametrize("page", ["accounts/user", "accounts/account", "ledger/journaltransaction"])
def test_who_would_delete_is_told_why_not(sign_in: SignIn, book: Book, snapshot: Snapshot, page: str) -> None:
    before = snapshot()

    for method in ("get", "post"):
        response = getattr(sign_in("superuser"), method)(f"/admin/{page}/{book.pages[page]}/delete/", {"post": "yes"})
        assert response.status_code == 403
        assert "kept for good" in response.content.decode()

    assert {**snapshot(), **{key: before[key] for key in before if key.startswith("wallet_user")}} == before
    assert User.objects.filter(pk=book.payer.user.pk).exists()


# --- Users: superusers edit ------------------------------------------------------------------------------------------


def user_form(user: User, **changes: str) -> dict[str, str]:
    joined = user.date_joined
    form = {
        "username": user.username,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "email": user.email,
        "is_active": "on" if user.is_active else "",
        "date_joined_0": f"{joined:%Y-%m-%d}",
        "date_joined_1": f"{joined:%H:%M:%S}",
    }
    return {name: value for name, value in {**form, **changes}.items() if value}


def test_a_superuser_edits_and_disables_users(sign_in: SignIn, book: Book) -> None:
    address = f"/admin/accounts/user/{book.payer.user.pk}/change/"

    response = sign_in("superuser").post(address, user_form(book.payer.user, first_name="An", is_active=""))

    assert response.status_code == 302
    user = User.objects.get(pk=book.payer.user.pk)
    assert (user.first_name, user.is_active, user.username) == ("An", False, "payer")


def test_a_superuser_adds_users_and_changes_passwords(sign_in: SignIn, book: Book) -> None:
    browser = sign_in("superuser")
    form = {"username": "newcomer", "usable_password": "true", "password1": "Tra-da-2026", "password2": "Tra-da-2026"}
    assert browser.post("/admin/accounts/user/add/", form).status_code == 302
    user = User.objects.get(username="newcomer")

    again = {"usable_password": "true", "password1": "Ca-phe-2026", "password2": "Ca-phe-2026"}
    assert browser.post(f"/admin/accounts/user/{user.pk}/password/", again).status_code == 302

    user.refresh_from_db()
    assert check_password("Ca-phe-2026", user.password)


@pytest.mark.parametrize("who", ["support", "finance", "clerk"])
def test_other_staff_change_no_user(sign_in: SignIn, book: Book, who: str) -> None:
    browser = sign_in(who)
    user = User.objects.get(pk=book.payer.user.pk)
    stored = (user.password, user.is_active)

    assert browser.get("/admin/accounts/user/add/").status_code == 403
    for address in ("add/", f"{user.pk}/change/", f"{user.pk}/password/", f"{user.pk}/delete/", ""):
        response = browser.post(
            f"/admin/accounts/user/{address}",
            user_form(user, is_active="", password1="x-1234567", password2="x-1234567"),
        )
        assert response.status_code == 403, address

    user.refresh_from_db()
    assert (user.password, user.is_active) == stored


def test_nobody_touches_the_user_system(sign_in: SignIn, book: Book) -> None:
    system = User.objects.get(username=User.SYSTEM)
    browser = sign_in("superuser")

    assert browser.get(f"/admin/accounts/user/{system.pk}/change/").status_code == 200
    for address in ("change/", "password/"):
        response = browser.post(
            f"/admin/accounts/user/{system.pk}/{address}",
            user_form(system, is_active="on", usable_password="true", password1="x-1234567", password2="x-1234567"),
        )
        assert response.status_code == 403

    system.refresh_from_db()
    assert (system.is_active, system.has_usable_password()) == (False, False)
