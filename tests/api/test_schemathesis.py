"""Requests that the OpenAPI document allows, and such that it does not, made up by Schemathesis: it finds nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.phone import Phones, may_reverse
from tests.races import soak
from tests.world import Person, World
from transfers.services import reserve

pytestmark = pytest.mark.django_db(transaction=True)

HERE = Path(__file__).parent


@pytest.mark.timeout(1800)
def test_nothing_is_found(service: str, phones: Phones, world: World, tmp_path: Path) -> None:
    caller = may_reverse(world.person("caller", balance=2**52))
    second = Person(user=caller.user, account_id=world.wallet(caller.user))
    known = {
        "KNOWN_ACCOUNTS": f"{caller.account_id},{second.account_id}",
        "KNOWN_TRANSACTION": str(world.pay(caller, second, 2**40).transaction_id),
        "KNOWN_HOLD": reserve(caller=caller.caller, key="hold", account_id=caller.account_id, amount=2**40).body[
            "holdId"
        ],
    }
    process = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"{service}/v1/schema", "--header", f"Authorization: Bearer {phones.of(caller).token}"),
            *("--max-examples", str(soak(300, few=10)), "--workers", "2", "--seed", "1", "--no-color"),
        ],
        env={
            **os.environ,
            **known,
            "PYTHONPATH": str(HERE.parents[1]),
            "SCHEMATHESIS_HOOKS": "tests.api.schemathesis_hooks",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    print(process.stdout, process.stderr)
    assert process.returncode == 0
