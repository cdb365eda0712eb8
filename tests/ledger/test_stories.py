"""Stories as a textbook tells them: who had what, who paid whom, and what stands in the book after each step."""

from accounts.models import Account
from ledger.commands import Command, Leg, MoneyEvent, Posted, fingerprint_of
from ledger.models import JournalTransaction, LedgerEntry
from outbox.models import OutboxEvent
from tests.ledger.kit import entries_of, post_all, spread, words
from tests.world import Person, World
from transfers.services import fund, reverse


def test_fund_pay_and_pay_back(world: World) -> None:
    payer, payee = world.person("payer"), world.person("payee")

    fund(account_id=payer.account_id, amount=50_000, key="top-up")
    assert entries_of(payer) == [(50_000, 50_000)]
    assert payer.balance == 50_000

    paid = world.pay(payer, payee, 20_000)
    assert entries_of(payer) == [(50_000, 50_000), (-20_000, 30_000)]
    assert entries_of(payee) == [(20_000, 20_000)]
    assert dict(paid.balances) == {payer.account_id: 30_000, payee.account_id: 20_000}

    world.pay(payee, payer, 20_000)
    assert entries_of(payer) == [(50_000, 50_000), (-20_000, 30_000), (20_000, 50_000)]
    assert entries_of(payee) == [(20_000, 20_000), (-20_000, 0)]


def test_money_from_outside_leaves_the_bank_below_zero(world: World) -> None:
    """What all wallets hold together is what the bank holds for them."""
    payer = world.person("payer", balance=50_000)
    world.person("payee", balance=7_000)

    bank = Account.objects.filter(kind=Account.Kind.BANK_CLEARING, currency="VND").exclude(balance=0)
    assert sum(account.balance for account in bank) == -57_000
    assert all(account.parent_id is not None for account in bank)  # A shard, never the family's head.
    deposit = JournalTransaction.objects.get(entries__account_id=payer.account_id)
    assert (deposit.type, deposit.initiator and deposit.initiator.username) == ("DEPOSIT", "system")


def test_a_transfer_is_two_entries_and_one_event(world: World) -> None:
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    paid = world.pay(payer, payee, 20_000, key="rent:june")

    journal = JournalTransaction.objects.get(pk=paid.transaction_id)
    assert (journal.type, journal.idempotency_key, journal.initiator_id) == ("TRANSFER", "rent:june", payer.user.pk)
    legs = LedgerEntry.objects.filter(transaction=journal).order_by("id").values_list("account_id", "amount")
    assert list(legs) == [(payer.account_id, -20_000), (payee.account_id, 20_000)]
    assert OutboxEvent.objects.filter(payload__transactionId=str(journal.pk)).count() == 1


def test_to_the_last_dong(world: World) -> None:
    payer, payee = world.person("payer", balance=50_000), world.person("payee")
    world.pay(payer, payee, 50_000)
    assert (payer.balance, payee.balance) == (0, 50_000)


def test_wages_are_one_transaction_of_many_legs(world: World) -> None:
    employer = world.person("employer", balance=60_000)
    workers = [world.person(name) for name in ("mason", "carpenter", "plumber")]

    outcomes = post_all(spread(employer, dict(zip(workers, [10_000, 20_000, 30_000], strict=True))))

    assert words(outcomes) == ["posted"]
    assert employer.balance == 0
    assert [worker.balance for worker in workers] == [10_000, 20_000, 30_000]
    assert entries_of(employer) == [(60_000, 60_000), (-60_000, 0)]


def test_an_exchange_moves_two_currencies_in_one_transaction(world: World) -> None:
    """Each currency balances for itself; the rate is nobody's business here."""
    traveller_dong = world.person("traveller", balance=2_600_000)
    traveller_dollars = Person(user=traveller_dong.user, account_id=world.wallet(traveller_dong.user, currency="USD"))
    changer_dong = world.person("changer")
    changer_dollars = Person(
        user=changer_dong.user, account_id=world.wallet(changer_dong.user, currency="USD", balance=50_000)
    )

    exchange = Command(
        initiator_id=traveller_dong.user.pk,
        stamp=traveller_dong.caller.stamp,
        key="exchange",
        fingerprint=fingerprint_of("exchange", {}),
        type=JournalTransaction.Type.TRANSFER,
        legs=(
            Leg(account_id=traveller_dong.account_id, amount=-2_600_000),
            Leg(account_id=changer_dong.account_id, amount=2_600_000),
            Leg(account_id=changer_dollars.account_id, amount=-10_000),
            Leg(account_id=traveller_dollars.account_id, amount=10_000),
        ),
        event=MoneyEvent(
            topic="wallet.transfers",
            key_account_id=traveller_dong.account_id,
            from_account_id=traveller_dong.account_id,
            to_account_id=changer_dong.account_id,
        ),
    )
    assert words(post_all(exchange)) == ["posted"]
    assert (traveller_dong.balance, traveller_dollars.balance) == (0, 10_000)
    assert (changer_dong.balance, changer_dollars.balance) == (2_600_000, 40_000)


def test_a_purchase_goes_back_in_two_parts(world: World) -> None:
    customer, merchant = world.person("customer", balance=50_000), world.person("merchant")
    staff = world.person("finance")
    bought = world.pay(customer, merchant, 30_000)

    def take_back(amount: int | None) -> Posted:
        return reverse(
            caller=staff.caller,
            key=f"refund:{amount}",
            transaction_id=bought.transaction_id,
            reason="broken on arrival",
            amount=amount,
        )

    take_back(10_000)
    assert (customer.balance, merchant.balance) == (30_000, 20_000)
    take_back(None)  # The rest.
    assert (customer.balance, merchant.balance) == (50_000, 0)
    assert entries_of(merchant) == [(30_000, 30_000), (-10_000, 20_000), (-20_000, 0)]
