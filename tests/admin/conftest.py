"""Staff at the admin, and a book for them to look at."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from accounts import services
from accounts.models import Freeze, User
from ledger.models import LedgerEntry, ReconciliationFinding, ReconciliationRun
from ledger.reconciliation import reconcile
from outbox.models import OutboxEvent
from tests.transfers.bank_kit import a_deposit
from tests.world import Person, World
from transfers.models import BankNotice
from transfers.services import reserve, reverse
from wallet_project.kernel import clock

SignIn = Callable[[str], Client]


@pytest.fixture
def sign_in(transactional_db: None) -> SignIn:
    """A browser in which somebody has signed in: superuser, support, finance, clerk (without rights), customer."""

    def open_browser(who: str) -> Client:
        client = Client()
        if who == "anonymous":
            return client
        user, created = User.objects.get_or_create(
            username=who, defaults={"is_staff": who != "customer", "is_superuser": who == "superuser"}
        )
        if created:
            user.groups.add(*Group.objects.filter(name__iexact=who))
        client.force_login(user)
        return client

    return open_browser


@dataclass(frozen=True, kw_only=True)
class Book:
    """One of everything that the admin shows."""

    payer: Person
    payee: Person
    transfer: UUID
    reversal: UUID
    entry: int
    freeze: int
    run: int
    finding: int
    event: int
    hold: UUID
    order: UUID
    notice: int
    group: int

    @property
    def pages(self) -> dict[str, object]:
        """The model of each page, and an object of it."""
        return {
            "ledger/journaltransaction": self.transfer,
            "ledger/ledgerentry": self.entry,
            "ledger/reconciliationrun": self.run,
            "ledger/reconciliationfinding": self.finding,
            "accounts/account": self.payer.account_id,
            "accounts/freeze": self.freeze,
            "accounts/user": self.payer.user.pk,
            "outbox/outboxevent": self.event,
            "transfers/hold": self.hold,
            "transfers/bankorder": self.order,
            "transfers/banknotice": self.notice,
            "auth/group": self.group,
        }


@pytest.fixture
def book(world: World) -> Book:
    payer, payee = world.person("payer", balance=100_000), world.person("payee")
    staff = User.objects.create(username="some-staff", is_staff=True)
    transfer = world.pay(payer, payee, 12_345, key="rent").transaction_id
    reversal = reverse(caller=payee.caller, key="back", transaction_id=transfer, reason="wrong payee").transaction_id
    freeze = services.freeze(
        account_id=payee.account_id, cause=Freeze.Cause.STAFF, reason="police letter 17", staff_id=staff.pk
    )
    hold = reserve(
        caller=payer.caller,
        key="deposit on a bicycle",
        account_id=payer.account_id,
        amount=500,
        to_account_id=payee.account_id,
    ).body["holdId"]
    run = reconcile()
    finding = ReconciliationFinding.objects.create(
        run=ReconciliationRun.objects.create(),
        check_name=ReconciliationFinding.Check.ACCOUNT_BALANCE,
        account_id=payer.account_id,
        currency="VND",
        expected=100_000,
        actual=100_001,
    )
    return Book(
        payer=payer,
        payee=payee,
        transfer=transfer,
        reversal=reversal,
        entry=LedgerEntry.objects.filter(transaction_id=transfer, account_id=payer.account_id).get().pk,
        freeze=freeze.pk,
        run=run.pk,
        finding=finding.pk,
        event=OutboxEvent.objects.latest("pk").pk,
        hold=UUID(hold),
        order=a_deposit(payer, 500, reference="savings").pk,
        notice=BankNotice.objects.create(
            notice_id="N-1",
            reference="nobody",
            event="SETTLED",
            amount=500,
            currency="VND",
            occurred_at=clock.now(),
            body=b'{"noticeId": "N-1"}',
            outcome=BankNotice.Outcome.UNKNOWN_REFERENCE,
        ).pk,
        group=Group.objects.get(name="Support").pk,
    )
