"""The guards of the book as they should be, and how the live database differs.

A trigger that is switched off, dropped or replaced makes no noise: all goes on as before, and a rule is gone. So the
reconciliation compares the catalog with this page every night. Whoever adds a trigger in a migration adds it here.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.apps import apps
from django.db import connection


def _refuses(statements: str, rule: str) -> str:
    return f"BEFORE {statements} EXECUTE FUNCTION refuse_change('{rule}')"


def _kept(name: str) -> dict[str, str]:
    """The two triggers of a table to which rows are only ever added."""
    return {
        f"{name}_is_kept": _refuses("DELETE OR UPDATE FOR EACH ROW", f"{name}_is_kept"),
        f"{name}_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", f"{name}_is_kept"),
    }


_HOLD_MATCHES_MONEY = (
    "AFTER INSERT OR UPDATE DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_matches_money()"
)

# Each table's triggers, in the words of pg_get_triggerdef without the names of trigger and table. Those of
# `ledger_entry` stand on the parent and on every partition.
TRIGGERS: dict[str, dict[str, str]] = {
    "account": {
        "account_balance_by_entry": _refuses(
            "UPDATE FOR EACH ROW WHEN ((((old.balance <> new.balance)"
            " OR (old.last_entry_at IS DISTINCT FROM new.last_entry_at))"
            " AND (CURRENT_USER <> 'wallet_book'::name)))",
            "account_balance_by_entry",
        ),
        "account_opens_empty": _refuses(
            "INSERT FOR EACH ROW WHEN (((new.balance <> 0) OR (new.last_entry_at IS NOT NULL)))",
            "account_opens_empty",
        ),
        "account_identity_is_fixed": _refuses(
            "UPDATE FOR EACH ROW WHEN (((old.id <> new.id) OR (old.owner_id <> new.owner_id)"
            " OR (old.currency <> new.currency) OR ((old.kind)::text <> (new.kind)::text)"
            " OR (old.allow_negative <> new.allow_negative) OR (old.parent_id IS DISTINCT FROM new.parent_id)"
            " OR (old.shard_no IS DISTINCT FROM new.shard_no) OR (old.created_at <> new.created_at)))",
            "account_identity_is_fixed",
        ),
        "account_closed_is_final": _refuses(
            "UPDATE FOR EACH ROW WHEN ((((old.status)::text = 'CLOSED'::text)"
            " AND ((new.status)::text <> 'CLOSED'::text)))",
            "account_closed_is_final",
        ),
        "account_is_kept": _refuses("DELETE FOR EACH ROW", "account_is_kept"),
        "account_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "account_is_kept"),
        "account_shard_matches_parent": (
            "BEFORE INSERT FOR EACH ROW WHEN ((new.parent_id IS NOT NULL))"
            " EXECUTE FUNCTION account_shard_matches_parent()"
        ),
        "account_tier_fits": (
            "BEFORE INSERT OR UPDATE OF tier_id FOR EACH ROW WHEN ((new.tier_id IS NOT NULL))"
            " EXECUTE FUNCTION account_tier_fits()"
        ),
        "account_outflow_follows_tier": (
            "AFTER UPDATE OF tier_id FOR EACH ROW WHEN ((old.tier_id IS DISTINCT FROM new.tier_id))"
            " EXECUTE FUNCTION account_outflow_follows_tier()"
        ),
        "account_closed_holds_nothing": (
            "BEFORE UPDATE FOR EACH ROW WHEN ((((new.status)::text = 'CLOSED'::text)"
            " AND ((old.status)::text <> 'CLOSED'::text))) EXECUTE FUNCTION account_closed_holds_nothing()"
        ),
        "account_closed_has_no_order": (
            "BEFORE UPDATE FOR EACH ROW WHEN ((((new.status)::text = 'CLOSED'::text)"
            " AND ((old.status)::text <> 'CLOSED'::text))) EXECUTE FUNCTION account_closed_has_no_order()"
        ),
    },
    "tier": _kept("tier"),
    "account_freeze": _kept("freeze"),
    "account_thaw": _kept("thaw"),
    "journal_transaction": {
        **_kept("journal"),
        "journal_has_entries": (
            "AFTER INSERT DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal_has_entries()"
        ),
        "journal_xact_is_own": _refuses(
            "INSERT FOR EACH ROW WHEN ((new.xact <> pg_current_xact_id()))", "journal_xact_is_own"
        ),
        "reversal_not_of_reversal": (
            "BEFORE INSERT FOR EACH ROW WHEN ((new.reverses_id IS NOT NULL))"
            " EXECUTE FUNCTION reversal_not_of_reversal()"
        ),
        "journal_has_bank_order": (
            "AFTER INSERT DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (((new.type)::text = ANY"
            " ((ARRAY['WITHDRAWAL'::character varying, 'SETTLEMENT'::character varying, 'RELEASE'::character varying,"
            " 'RETURN'::character varying, 'CHARGEBACK'::character varying])::text[])))"
            " EXECUTE FUNCTION journal_has_bank_order()"
        ),
    },
    "ledger_entry": {
        **_kept("ledger_entry"),
        "ledger_entry_posts": "BEFORE INSERT FOR EACH ROW EXECUTE FUNCTION ledger_entry_posts()",
        "ledger_entry_balanced": (
            "AFTER INSERT REFERENCING NEW TABLE AS new_entries FOR EACH STATEMENT"
            " EXECUTE FUNCTION ledger_entry_balanced()"
        ),
    },
    "reversal_budget": {
        "reversal_budget_by_entry": _refuses(
            "INSERT OR UPDATE FOR EACH ROW WHEN ((CURRENT_USER <> 'wallet_book'::name))", "reversal_budget_by_entry"
        ),
        "reversal_budget_is_kept": _refuses("DELETE FOR EACH ROW", "reversal_budget_by_entry"),
        "reversal_budget_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "reversal_budget_by_entry"),
    },
    "held_money": {
        "held_money_by_entry": _refuses(
            "INSERT OR UPDATE FOR EACH ROW WHEN ((CURRENT_USER <> 'wallet_book'::name))", "held_money_by_entry"
        ),
        "held_money_is_kept": _refuses("DELETE FOR EACH ROW", "held_money_by_entry"),
        "held_money_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "held_money_by_entry"),
        "held_money_matches_hold": _HOLD_MATCHES_MONEY,
    },
    "hold": {
        "hold_fits": "BEFORE INSERT FOR EACH ROW EXECUTE FUNCTION hold_fits()",
        "hold_is_fixed": _refuses(
            "UPDATE FOR EACH ROW WHEN (((old.transaction_id <> new.transaction_id)"
            " OR (old.account_id <> new.account_id) OR (old.to_account_id IS DISTINCT FROM new.to_account_id)"
            " OR (old.expires_at <> new.expires_at) OR (old.created_at <> new.created_at)))",
            "hold_is_fixed",
        ),
        "hold_is_final": _refuses("UPDATE FOR EACH ROW WHEN (((old.status)::text <> 'ACTIVE'::text))", "hold_is_final"),
        "hold_is_kept": _refuses("DELETE FOR EACH ROW", "hold_is_kept"),
        "hold_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "hold_is_kept"),
        "hold_matches_money": _HOLD_MATCHES_MONEY,
    },
    "bank_order": {
        "bank_order_of_open_wallet": "BEFORE INSERT FOR EACH ROW EXECUTE FUNCTION bank_order_of_open_wallet()",
        "bank_order_opens_pending": _refuses(
            "INSERT FOR EACH ROW WHEN ((((new.status)::text <> 'PENDING'::text) OR (new.returned <> 0)))",
            "bank_order_opens_pending",
        ),
        "bank_order_has_history": (
            "AFTER INSERT DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION bank_order_has_history()"
        ),
        "bank_order_is_fixed": _refuses(
            "UPDATE FOR EACH ROW WHEN (((old.id <> new.id) OR ((old.kind)::text <> (new.kind)::text)"
            " OR (old.account_id <> new.account_id) OR (old.amount <> new.amount)"
            " OR ((old.destination)::text <> (new.destination)::text)"
            " OR ((old.reference)::text <> (new.reference)::text)"
            " OR (old.opening_id IS DISTINCT FROM new.opening_id) OR (old.initiator_id <> new.initiator_id)"
            " OR (old.created_at <> new.created_at)))",
            "bank_order_is_fixed",
        ),
        "bank_order_moves_by_change": _refuses(
            "UPDATE FOR EACH ROW WHEN (((((old.status)::text <> (new.status)::text)"
            " OR (old.returned <> new.returned)) AND (CURRENT_USER <> 'wallet_book'::name)))",
            "bank_order_moves_by_change",
        ),
        "bank_order_is_kept": _refuses("DELETE FOR EACH ROW", "bank_order_is_kept"),
        "bank_order_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "bank_order_is_kept"),
    },
    "bank_order_change": {
        **_kept("bank_order_change"),
        "bank_order_moves": "AFTER INSERT FOR EACH ROW EXECUTE FUNCTION bank_order_moves()",
    },
    "bank_return": {
        **_kept("bank_return"),
        "bank_return_counts": "AFTER INSERT FOR EACH ROW EXECUTE FUNCTION bank_return_counts()",
    },
    "bank_notice": _kept("bank_notice"),
    "account_outflow": {
        "account_outflow_by_entry": _refuses(
            "INSERT OR DELETE OR UPDATE FOR EACH ROW WHEN ((CURRENT_USER <> 'wallet_book'::name))",
            "account_outflow_by_entry",
        ),
        "account_outflow_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "account_outflow_by_entry"),
    },
    "idempotency_record": _kept("idempotency_record"),
    "outbox_event": {
        "outbox_event_is_kept": (
            "BEFORE DELETE FOR EACH ROW WHEN ((NOT old.published)) EXECUTE FUNCTION outbox_event_is_kept()"
        ),
    },
    "reconciliation_run": {
        "reconciliation_run_is_final": _refuses(
            "UPDATE FOR EACH ROW WHEN (((old.status)::text = ANY"
            " ((ARRAY['CLEAN'::character varying, 'FINDINGS'::character varying])::text[])))",
            "reconciliation_run_is_final",
        ),
        "reconciliation_run_is_kept": _refuses("DELETE FOR EACH ROW", "reconciliation_run_is_kept"),
        "reconciliation_run_is_not_truncated": _refuses("TRUNCATE FOR EACH STATEMENT", "reconciliation_run_is_kept"),
    },
    "reconciliation_finding": _kept("reconciliation_finding"),
}

# A table's own triggers, and whatever else on it is switched off: the triggers behind foreign keys, too.
_LIVE_TRIGGERS = """
    WITH guarded AS (
        SELECT oid, relname AS name, relname AS model FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relname = ANY(%s)
        UNION ALL
        SELECT c.oid, c.relname, p.relname FROM pg_class p
          JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
         WHERE p.oid = 'public.ledger_entry'::regclass
    )
    SELECT g.name, g.model, t.tgname, t.tgenabled,
           regexp_replace(pg_get_triggerdef(t.oid), '^CREATE (CONSTRAINT )?TRIGGER \\S+ (.*?) ON \\S+ ', '\\2 ')
      FROM guarded g LEFT JOIN pg_trigger t ON t.tgrelid = g.oid AND (NOT t.tgisinternal OR t.tgenabled <> 'O')
     ORDER BY g.name, t.tgname
"""

# Tables beside the book: a detached partition takes its entries along.
_DETACHED = """
    SELECT relname FROM pg_class c
     WHERE relnamespace = 'ledger_parts'::regnamespace AND relkind = 'r'
       AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid) ORDER BY relname
"""

# What the triggers call, and whatever acts with its owner's rights or the book's.
_LIVE_FUNCTIONS = """
    SELECT proname, prosrc FROM pg_proc p
     WHERE pronamespace = 'public'::regnamespace
       AND (prosecdef OR proowner = 'wallet_book'::regrole
            OR EXISTS (SELECT FROM pg_trigger WHERE tgfoid = p.oid AND NOT tgisinternal))
     ORDER BY proname
"""

_LIVE_CONSTRAINTS = """
    SELECT conname FROM pg_constraint WHERE convalidated
    UNION SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid AND i.indisunique
"""


def faulty_guards() -> list[str]:
    """What is missing, switched off or other than it should be, a short sentence each; empty when all guards stand."""
    return [*_faulty_triggers(), *_detached_partitions(), *_altered_functions(), *_missing_constraints()]


def _faulty_triggers() -> Iterator[str]:
    live: dict[str, dict[str, tuple[str, str]]] = {}
    models = {table: table for table in TRIGGERS}
    for name, model, trigger, enabled, definition in _rows(_LIVE_TRIGGERS, [list(TRIGGERS)]):
        models[name] = model
        on_table = live.setdefault(name, {})
        if trigger is not None:
            on_table[trigger] = (enabled, definition)
    for name, model in models.items():
        if name not in live:
            yield f"{name}: the table is missing"
            continue
        expected = TRIGGERS[model]
        yield from (f"{name}: trigger {trigger} is missing" for trigger in expected if trigger not in live[name])
        for trigger, (enabled, definition) in live[name].items():
            if enabled != "O":
                yield f"{name}: trigger {trigger} is switched off (mode {enabled})"
            elif trigger not in expected:
                yield f"{name}: trigger {trigger} is unknown"
            elif definition != expected[trigger]:
                yield f"{name}: trigger {trigger} is not as it should be"


def _detached_partitions() -> Iterator[str]:
    return (f"ledger_parts.{name} is not a part of the book" for (name,) in _rows(_DETACHED))


def _altered_functions() -> Iterator[str]:
    """A body in the database must stand word for word in a migration."""
    migrations = _text_of_migrations()
    return (
        f"function {name} is not as any migration made it"
        for name, body in _rows(_LIVE_FUNCTIONS)
        if body not in migrations
    )


@cache
def _text_of_migrations() -> str:
    files = (path for app in apps.get_app_configs() for path in Path(app.path, "migrations").glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def _missing_constraints() -> Iterator[str]:
    live = {name for (name,) in _rows(_LIVE_CONSTRAINTS)}
    return (
        f"{model._meta.db_table}: constraint {constraint.name} is missing or not validated"
        for model in apps.get_models()
        if model._meta.db_table in TRIGGERS
        for constraint in model._meta.constraints
        if constraint.name not in live
    )


def _rows(query: str, parameters: list[list[str]] | None = None) -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        rows: list[tuple[str, ...]] = cursor.fetchall()
    return rows
