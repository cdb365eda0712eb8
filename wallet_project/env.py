"""The one reader of environment variables: typed, and a missing mandatory value stops the process by name.

`.env.example` lists every variable read here and nothing else; a test compares the two.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from environs import Env, ValidationError, validate

Environment = Literal["production", "development", "test"]

_env = Env()


def _environment() -> Environment:
    name = _env.str("WALLET_ENV", "production", validate=validate.OneOf(["production", "development", "test"]))
    return cast("Environment", name)


def _text(name: str, *, outside_production: str) -> str:
    """A value that production must set itself; elsewhere it has a harmless default."""
    if _environment() == "production":
        return _env.str(name)
    return _env.str(name, outside_production)


def _shared(name: str, *, outside_production: str) -> str:
    """A secret that another party has, too: fit for a header. An empty one would be known to everybody."""
    secret = _text(name, outside_production=outside_production)
    if not secret.isascii() or not secret.isprintable() or not all(secret.split(",")) or " " in secret:
        raise ValidationError(f"{name} is empty, or holds something else than ASCII characters without spaces")
    return secret


def _bank_url(text: str) -> str:
    """Where the bank is; in production over TLS, for our key goes with every request."""
    schemes = ("https",) if _environment() == "production" else ("http", "https")
    url = urlsplit(text)
    if url.scheme not in schemes or not url.hostname or url.username or url.query or url.fragment:
        raise ValidationError(f"BANK_URL must be {' or '.join(schemes)}, a host and perhaps a path")
    return text


def _an_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValidationError("not a JSON object")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Environ:
    """What the process was told. URLs carry credentials, so they have no default in production.

    Raises:
        environs.EnvError: a mandatory variable is missing or a value has the wrong form; the message names it.
    """

    environment: Environment = field(default_factory=_environment)
    secret_key: str = field(
        default_factory=lambda: _text("SECRET_KEY", outside_production="development-only-" + "x" * 40)
    )
    jwt_signing_keys: list[str] = field(default_factory=lambda: _env.list("JWT_SIGNING_KEYS", [], subcast=str))
    database_url: str = field(
        default_factory=lambda: _text(
            "DATABASE_URL", outside_production="postgresql://wallet_app@127.0.0.1:5432/wallet"
        )
    )
    migration_database_url: str = field(default_factory=lambda: _env.str("MIGRATION_DATABASE_URL", ""))
    superuser_database_url: str = field(default_factory=lambda: _env.str("SUPERUSER_DATABASE_URL", ""))
    redis_url: str = field(default_factory=lambda: _text("REDIS_URL", outside_production="redis://127.0.0.1:6379/0"))
    kafka_bootstrap_servers: str = field(
        default_factory=lambda: _text("KAFKA_BOOTSTRAP_SERVERS", outside_production="127.0.0.1:9092")
    )
    kafka_options: dict[str, Any] = field(
        default_factory=lambda: _an_object(_env.json("KAFKA_OPTIONS", {}, validate=_an_object))
    )
    bank_url: str = field(default_factory=lambda: _bank_url(_text("BANK_URL", outside_production="http://127.0.0.1:9")))
    bank_api_key: str = field(
        default_factory=lambda: _shared("BANK_API_KEY", outside_production="development-only-bank-key")
    )
    bank_webhook_secrets: list[str] = field(
        default_factory=lambda: _shared(
            "BANK_WEBHOOK_SECRETS", outside_production="development-only-bank-secret"
        ).split(",")
    )
    bank_timeout_seconds: float = field(
        default_factory=lambda: _env.float("BANK_TIMEOUT_SECONDS", 10, validate=validate.Range(min=0.1, max=60))
    )
    bank_callback_window_seconds: int = field(
        default_factory=lambda: _env.int("BANK_CALLBACK_WINDOW_SECONDS", 300, validate=validate.Range(min=1))
    )
    hold_sweep_seconds: float = field(
        default_factory=lambda: _env.float("HOLD_SWEEP_SECONDS", 10, validate=validate.Range(min=1))
    )
    bank_ask_seconds: int = field(
        default_factory=lambda: _env.int("BANK_ASK_SECONDS", 60, validate=validate.Range(min=1))
    )
    event_source: str = field(default_factory=lambda: _env.str("EVENT_SOURCE", "/wallet"))
    outbox_relay_seconds: float = field(default_factory=lambda: _env.float("OUTBOX_RELAY_SECONDS", 0.2))
    outbox_retention_days: int = field(
        default_factory=lambda: _env.int("OUTBOX_RETENTION_DAYS", 7, validate=validate.Range(min=1))
    )
    outbox_lag_alert_seconds: int = field(default_factory=lambda: _env.int("OUTBOX_LAG_ALERT_SECONDS", 60))
    inbox_retention_days: int = field(
        default_factory=lambda: _env.int("INBOX_RETENTION_DAYS", 30, validate=validate.Range(min=1))
    )
    allowed_hosts: list[str] = field(
        default_factory=lambda: _env.list("ALLOWED_HOSTS", ["127.0.0.1", "localhost"], subcast=str)
    )
    csrf_trusted_origins: list[str] = field(default_factory=lambda: _env.list("CSRF_TRUSTED_ORIGINS", [], subcast=str))
    currencies: list[str] = field(
        default_factory=lambda: _env.list("CURRENCIES", ["VND", "USD", "EUR", "JPY", "KWD"], subcast=str)
    )
    business_time_zone: str = field(default_factory=lambda: _env.str("BUSINESS_TIME_ZONE", "Asia/Ho_Chi_Minh"))
    docs_url: str = field(default_factory=lambda: _env.str("DOCS_URL", "https://docs.wallet.example"))
    access_token_seconds: int = field(default_factory=lambda: _env.int("ACCESS_TOKEN_SECONDS", 900))
    refresh_token_seconds: int = field(default_factory=lambda: _env.int("REFRESH_TOKEN_SECONDS", 30 * 24 * 3600))
    sign_ins_per_address: int = field(default_factory=lambda: _env.int("SIGN_INS_PER_ADDRESS", 60))
    sign_ups_per_address: int = field(default_factory=lambda: _env.int("SIGN_UPS_PER_ADDRESS", 20))
    failed_sign_ins_per_name: int = field(default_factory=lambda: _env.int("FAILED_SIGN_INS_PER_NAME", 5))
    payee_lookups_per_user: int = field(default_factory=lambda: _env.int("PAYEE_LOOKUPS_PER_USER", 30))
    trusted_proxy_hops: int = field(default_factory=lambda: _env.int("TRUSTED_PROXY_HOPS", 0))
    log_level: str = field(default_factory=lambda: _env.str("LOG_LEVEL", "INFO"))
