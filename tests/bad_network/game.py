"""The game: many phones pay each other over a bad network; afterwards not a đồng is lost or doubled."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from tests.bad_network.app import App, play
from tests.bad_network.proxy import BadNetwork


def run(*, url: str, users: list[tuple[str, str]], seconds: float, seed: int = 1) -> Counter[str]:
    """Play, then hold every phone's memory against balances and history.

    Args:
        url: the service.
        users: names and passwords; each must have a wallet, all in one currency.
        seconds: how long new payments are made; what was begun is seen through.

    Returns:
        Counts of what happened.

    Raises:
        AssertionError: money was lost, doubled, or a phone was told something else than the book says.
    """
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    with BadNetwork(host=where.hostname, port=where.port, seed=seed).running() as network:
        apps: dict[int, App] = {}
        for number, (username, password) in enumerate(users):
            app = App(network=network.url, username=username, password=password, rng=random.Random(seed + number))
            app.sign_in()
            apps[app.wallets()[0]["accountId"]] = app
        before = {account_id: app.balance(account_id) for account_id, app in apps.items()}
        stop = threading.Event()
        with ThreadPoolExecutor(len(apps)) as threads:
            players = [
                threads.submit(play, apps, until=stop.is_set, app=app, account_id=account_id)
                for account_id, app in apps.items()
            ]
            time.sleep(seconds)
            stop.set()
            for player in players:
                player.result()
        _check(apps, before)
        for app in apps.values():
            app.close()
        return _counts(apps, network)


def _check(apps: dict[int, App], before: dict[int, int]) -> None:
    expected = Counter(before)
    completed: dict[str, dict[str, int]] = {}
    for app in apps.values():
        for payment in app.payments:
            if payment.transaction_id is None:
                assert payment.refusal == "insufficient_funds", payment
                continue
            assert payment.transaction_id not in completed, f"two payments, one transaction: {payment}"
            completed[payment.transaction_id] = payment.body
            expected[payment.body["fromAccountId"]] -= payment.body["amount"]
            expected[payment.body["toAccountId"]] += payment.body["amount"]

    for account_id, app in apps.items():
        assert app.balance(account_id) == expected[account_id], f"wallet {account_id}"
        history = app.history(account_id)
        assert sum(item["amount"] for item in history) == expected[account_id]
        seen = {item["transactionId"] for item in history if item["type"] == "TRANSFER"}
        mine = {id_ for id_, body in completed.items() if account_id in (body["fromAccountId"], body["toAccountId"])}
        # Who plays against a service that was used before finds older transfers in the history too.
        assert mine <= seen
        assert len(seen) == len([item for item in history if item["type"] == "TRANSFER"])
    assert sum(expected.values()) == sum(before.values())


def _counts(apps: dict[int, App], network: BadNetwork) -> Counter[str]:
    counts: Counter[str] = Counter(phones=len(apps))
    for app in apps.values():
        counts.update(app.counts)
        counts["payments"] += len(app.payments)
        counts["completed"] += sum(payment.transaction_id is not None for payment in app.payments)
        counts["refused"] += sum(payment.refusal is not None for payment in app.payments)
    counts.update({f"network: {fault}": times for fault, times in network.faults.items()})
    return counts
