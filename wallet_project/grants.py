"""What the application's role may do: one dictionary, applied at the end of `migrate`. A table not named fails a test.

The role owns nothing. Audit and history tables get SELECT and INSERT only; rights on accounts and the journal are per
column, so that no statement of the application's can name a balance, a system kind or another transaction's number.
"""

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

READ = "SELECT"
APPEND = "SELECT, INSERT"
EDIT = "SELECT, INSERT, UPDATE"
FULL = "SELECT, INSERT, UPDATE, DELETE"

TABLES: dict[str, str] = {
    # The book
    "account": "SELECT, INSERT (owner_id, currency, name), UPDATE (status, name, tier_id)",
    "account_freeze": APPEND,
    "account_thaw": APPEND,
    "tier": APPEND,
    "journal_transaction": (
        "SELECT, INSERT (id, idempotency_key, type, created_at, initiator_id, fingerprint, response, reverses_id, "
        "continues_id, reference, metadata)"
    ),
    "ledger_entry": APPEND,
    "reversal_budget": READ,
    "held_money": READ,
    "account_outflow": READ,
    "idempotency_record": APPEND,
    "outbox_event": ("SELECT, INSERT, DELETE, UPDATE (published, published_at, attempts, last_error, parked)"),
    "outbox_relay": "SELECT, UPDATE",
    "inbox_message": "SELECT, INSERT, DELETE",
    "inbox_parked_message": "SELECT, INSERT, UPDATE (resolved_at, error)",
    "notification": APPEND,
    "hold": (
        "SELECT, INSERT (transaction_id, account_id, to_account_id, expires_at, created_at), "
        "UPDATE (status, ended_by_id, ended_at, stuck_at)"
    ),
    "bank_order": "SELECT, INSERT, UPDATE (attempts, next_step_at, stuck_at)",
    "bank_order_change": APPEND,
    "bank_return": APPEND,
    "bank_notice": APPEND,
    "reconciliation_run": EDIT,
    "reconciliation_finding": APPEND,
    # Users and the admin
    "wallet_user": EDIT,
    "wallet_user_groups": "SELECT, INSERT, DELETE",
    "wallet_user_user_permissions": "SELECT, INSERT, DELETE",
    "sign_in": FULL,
    "auth_group": READ,
    "auth_group_permissions": READ,
    "auth_permission": READ,
    "django_admin_log": APPEND,
    "django_content_type": READ,
    "django_migrations": READ,
    "django_session": FULL,
}

FUNCTIONS = [
    "account_outflow_of(bigint,date)",
    "business_date(timestamp with time zone)",
    "ledger_add_partition(date)",
]


def apply_grants(connection: BaseDatabaseWrapper) -> None:
    """Take every right from the application's role and grant those of this page. Runs as the owner."""
    role = sql.Identifier(settings.DATABASES["default"]["USER"])
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
        statements = [
            sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(
                sql.Identifier(str(connection.settings_dict["NAME"]))
            ),
            sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {}").format(role),
            sql.SQL("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {}").format(role),
            *(
                sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights), sql.Identifier(table), role)
                for table, rights in TABLES.items()
                if table in existing
            ),
            *(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(function), role) for function in FUNCTIONS),
        ]
        for statement in statements:
            cursor.execute(statement.as_string())


def set_business_zone(connection: BaseDatabaseWrapper) -> None:
    """Tell the database where a business date begins and ends: limits per date are counted by its triggers."""
    statement = sql.SQL(
        "CREATE OR REPLACE FUNCTION business_date(moment timestamptz) RETURNS date LANGUAGE sql IMMUTABLE "
        "SET search_path = pg_catalog, pg_temp AS $$ SELECT (moment AT TIME ZONE {})::date $$"
    ).format(sql.Literal(settings.BUSINESS_TIME_ZONE))
    with connection.cursor() as cursor:
        cursor.execute(statement.as_string())


def open_system_families(connection: BaseDatabaseWrapper) -> None:
    """Make sure that every currency of the settings has its system accounts, each split into shards."""
    with connection.cursor() as cursor:
        for currency in settings.CURRENCIES:
            cursor.execute("SELECT account_open_system_families(%s)", [currency])
