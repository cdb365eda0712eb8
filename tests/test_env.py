"""The one reader of environment variables: what it reads is documented, and what is missing names itself."""

import inspect
import os
import re
import subprocess
import sys

import pytest
from django.conf import settings

from wallet_project import env

EXAMPLE = settings.BASE_DIR / ".env.example"
PRODUCTION = {
    "WALLET_ENV": "production",
    "SECRET_KEY": "s" * 50,
    "DATABASE_URL": "postgresql://wallet_app@127.0.0.1:1/wallet",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "BANK_URL": "https://127.0.0.1:1",
    "BANK_API_KEY": "k" * 50,
    "BANK_WEBHOOK_SECRETS": "s" * 50,
}


def _started(**environment: str) -> "subprocess.CompletedProcess[str]":
    """Let a process read its settings, with nothing in its environment but this."""
    return subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; print(settings.PRODUCTION)"],
        env={
            "PATH": os.environ["PATH"],
            "DJANGO_SETTINGS_MODULE": "wallet_project.settings",
            **environment,
        },
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_lists_what_is_read_and_nothing_else() -> None:
    read = set(re.findall(r'(?:_env\.\w+|_text|_shared)\(\s*"([A-Z_]+)"', inspect.getsource(env)))
    listed = re.findall(r"^#? ?([A-Z][A-Z_]+)=", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(read) > 10
    assert sorted(listed) == sorted(read)


def test_production_starts_when_it_is_told_all_it_must_be_told() -> None:
    process = _started(**PRODUCTION)
    assert (process.returncode, process.stdout) == (0, "True\n"), process.stderr


@pytest.mark.parametrize("missing", sorted(PRODUCTION.keys() - {"WALLET_ENV"}))
def test_what_production_must_set_stops_the_process_and_names_itself(missing: str) -> None:
    process = _started(**{name: value for name, value in PRODUCTION.items() if name != missing})
    assert process.returncode != 0
    assert missing in process.stderr.splitlines()[-1]


def test_who_says_nothing_is_in_production() -> None:
    assert _started(**{name: value for name, value in PRODUCTION.items() if name != "WALLET_ENV"}).stdout == "True\n"


def test_development_needs_nothing() -> None:
    process = _started(WALLET_ENV="development")
    assert (process.returncode, process.stdout) == (0, "False\n"), process.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("WALLET_ENV", "staging"), ("ACCESS_TOKEN_SECONDS", "soon"), ("REFRESH_TOKEN_SECONDS", "1.5")]
    # A key over the open wire, a password in an address, secrets that everybody knows, a call that never ends.
    + [("BANK_URL", url) for url in ("http://bank.example", "https://user:word@bank.example", "bank.example", "")]
    + [("BANK_WEBHOOK_SECRETS", secrets) for secrets in ("", "one,", "one,,two", " ,one")]
    + [("BANK_API_KEY", key) for key in ("", "two words", "one\ntwo", "khóa")]
    + [("BANK_TIMEOUT_SECONDS", seconds) for seconds in ("0", "61", "nan", "soon")],
)
def test_a_value_of_the_wrong_form_names_its_variable(name: str, value: str) -> None:
    process = _started(**{**PRODUCTION, name: value})
    assert process.returncode != 0
    assert name in process.stderr.splitlines()[-1] or value in process.stderr.splitlines()[-1]
