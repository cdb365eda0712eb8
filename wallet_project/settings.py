"""Django's settings, for every environment; what differs between them comes from `wallet_project.env`."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url
from celery.schedules import crontab

from wallet_project.env import Environ

ENV = Environ()
BASE_DIR = Path(__file__).resolve().parent.parent
PRODUCTION = ENV.environment == "production"

SECRET_KEY = ENV.secret_key
DEBUG = False
ALLOWED_HOSTS = ENV.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENV.csrf_trusted_origins
ROOT_URLCONF = "wallet_project.urls"
WSGI_APPLICATION = "wallet_project.wsgi.application"
APPEND_SLASH = False

INSTALLED_APPS = [
    "wallet_project",  # First, so that its `migrate` command stands before Django's.
    "wallet_project.back_office.BackOfficeConfig",  # django.contrib.admin
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # Swagger UI's own files
    "accounts",
    "outbox",
    "ledger",
    "transfers",
]

MIDDLEWARE = [
    "wallet_project.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "wallet_project.middleware.UnavailableMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database: two logins, one database (docs/adr/0003) ------------------------------------------------------------


def _database(url: str) -> dict[str, Any]:
    # Transactions are opened by the use cases alone, so ATOMIC_REQUESTS stays off; timeouts are set on the roles.
    # The URL may carry options of libpq, such as sslmode.
    database: dict[str, Any] = {**dj_database_url.parse(url, conn_max_age=60)}
    database["OPTIONS"] = {"connect_timeout": 2, "application_name": "wallet", **database.get("OPTIONS", {})}
    return database


DATABASES = {"default": _database(ENV.database_url)}
if ENV.migration_database_url:
    DATABASES["owner"] = _database(ENV.migration_database_url)
    DATABASES["default"]["TEST"] = {"MIRROR": "owner"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SUPERUSER_DATABASE_URL = ENV.superuser_database_url

# --- Users and tokens ----------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
if ENV.environment == "test":
    # As Django's documentation advises: a good hasher is slow on purpose, and the suite signs in thousands of times.
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(seconds=ENV.access_token_seconds),
    "REFRESH_TOKEN_LIFETIME": timedelta(seconds=ENV.refresh_token_seconds),
}
JWT_SIGNING_KEYS = ENV.jwt_signing_keys or [ENV.secret_key]  # the first signs, all are accepted

SIGN_INS_PER_ADDRESS = ENV.sign_ins_per_address  # per minute
SIGN_UPS_PER_ADDRESS = ENV.sign_ups_per_address  # per minute
FAILED_SIGN_INS_PER_NAME = ENV.failed_sign_ins_per_name  # per minute
PAYEE_LOOKUPS_PER_USER = ENV.payee_lookups_per_user  # per minute
TRUSTED_PROXY_HOPS = ENV.trusted_proxy_hops

# --- The API -------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.api.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["wallet_project.kernel.api.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["wallet_project.kernel.api.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "wallet_project.kernel.api.AlwaysJSON",
    "EXCEPTION_HANDLER": "wallet_project.exception_handler.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_SCHEMA_CLASS": "wallet_project.openapi.WalletSchema",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Wallet",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "DEFAULT_GENERATOR_CLASS": "wallet_project.openapi.WalletGenerator",
    "COMPONENT_SPLIT_REQUEST": True,  # `TransferRequest` is what is sent, `Transfer` what is shown.
    "POSTPROCESSING_HOOKS": [],
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024  # bytes; API.md: larger bodies are 413
DOCS_URL = ENV.docs_url
CURRENCIES = ENV.currencies

# --- Time and language ---------------------------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = ENV.business_time_zone  # what the admin shows; the API speaks UTC
BUSINESS_TIME_ZONE = ENV.business_time_zone
LANGUAGE_CODE = "en"
USE_I18N = True

# --- Redis: Celery's queue in the URL's database, the cache in the next one, so that clearing it loses no task -------


def _next_redis_database(url: str) -> str:
    base, _, number = url.rpartition("/")
    return f"{base}/{int(number) + 1}" if number.isdigit() else f"{url.rstrip('/')}/1"


CACHE_URL = _next_redis_database(ENV.redis_url)
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": CACHE_URL,
        "OPTIONS": {"SOCKET_CONNECT_TIMEOUT": 0.1, "SOCKET_TIMEOUT": 0.1},  # seconds
    }
}
CELERY_BROKER_URL = ENV.redis_url
CELERY_TASK_IGNORE_RESULT = True
# Acknowledged when taken, not when done: tasks are ticks, and what a killed worker leaves undone the next tick finds
# in the database. Acknowledged late, a task that kills its worker would come back at once, for ever.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = ENV.business_time_zone
CELERY_BEAT_SCHEDULER = "wallet_project.beat:MarkingScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5  # seconds
CELERY_BEAT_SCHEDULE = {
    "worker-heartbeat": {
        "task": "wallet_project.tasks.mark_worker_alive",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    # A tick that was not taken within a second is dropped, so that no queue of them builds up behind a long run.
    "relay-outbox": {"task": "outbox.tasks.relay", "schedule": ENV.outbox_relay_seconds, "options": {"expires": 1}},
    "watch-outbox": {"task": "outbox.tasks.watch", "schedule": 15.0, "options": {"expires": 15}},
    "purge-outbox": {"task": "outbox.tasks.purge", "schedule": crontab(minute="*/10")},
    "purge-sign-ins": {"task": "accounts.tasks.purge_sign_ins", "schedule": crontab(minute="27", hour="3")},
    "work-on-orders": {"task": "transfers.bank_tasks.work_on_orders", "schedule": 1.0, "options": {"expires": 1}},
    "expire-holds": {
        "task": "transfers.tasks.expire_holds",
        "schedule": ENV.hold_sweep_seconds,
        "options": {"expires": ENV.hold_sweep_seconds},
    },
    "add-partitions": {"task": "ledger.tasks.add_partitions", "schedule": crontab(minute="17")},
    # Hourly though the run is nightly: a run is claimed once per business date, so a missed night is caught up.
    "reconcile": {"task": "ledger.tasks.reconcile_business_date", "schedule": crontab(minute="7")},
}

# Workers of their own: nothing holds up the events, and a slow bank holds up nothing.
CELERY_TASK_ROUTES = {
    "outbox.tasks.relay": {"queue": "outbox"},
    "transfers.bank_tasks.work_on_orders": {"queue": "bank"},
}

# --- Events: the outbox and Kafka (docs/events.md) -------------------------------------------------------------------

KAFKA_BOOTSTRAP_SERVERS = ENV.kafka_bootstrap_servers
KAFKA_CLIENT = {"bootstrap.servers": KAFKA_BOOTSTRAP_SERVERS, **ENV.kafka_options}
EVENT_SOURCE = ENV.event_source
OUTBOX_RELAY_SECONDS = ENV.outbox_relay_seconds
OUTBOX_BATCH_SIZE = 1000  # events in one transaction of the relay
OUTBOX_RETENTION_DAYS = ENV.outbox_retention_days
OUTBOX_LAG_ALERT_SECONDS = ENV.outbox_lag_alert_seconds
INBOX_RETENTION_DAYS = ENV.inbox_retention_days

# --- The bank (docs/bank.md) -----------------------------------------------------------------------------------------

BANK_GATEWAY = "transfers.bank.http_gateway.HTTPGateway"  # a class made from transfers.bank.gateway.BankSettings
BANK_URL = ENV.bank_url
BANK_API_KEY = ENV.bank_api_key
BANK_WEBHOOK_SECRETS = ENV.bank_webhook_secrets  # any of them may have signed a notice
BANK_TIMEOUT_SECONDS = ENV.bank_timeout_seconds
BANK_CALLBACK_WINDOW_SECONDS = ENV.bank_callback_window_seconds
BANK_ASK_SECONDS = ENV.bank_ask_seconds

# --- Files, cookies, transport -------------------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles" if PRODUCTION else None
WHITENOISE_USE_FINDERS = not PRODUCTION  # production runs collectstatic
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_AGE = 8 * 3600  # seconds: a working day
SECURE_SSL_REDIRECT = PRODUCTION
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PRODUCTION else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = PRODUCTION

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": ENV.log_level},
    # A refused request is the caller's business, not ours: 4xx are answered, not logged as warnings.
    "loggers": {"django.request": {"level": "ERROR"}},
}
