"""The entries, partitioned by month: SQL for the database, the ordinary model for Django.

The function that makes partitions stands here too, so that no partition can be made without the parent's guards:
statement triggers are not inherited, so it copies each of them.
"""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models

TABLE = """
-- A sequence of its own instead of an identity column: PostgreSQL 16 does not hand identities down to partitions.
CREATE SEQUENCE ledger_entry_id_seq AS bigint;

CREATE TABLE ledger_entry (
    id             bigint      NOT NULL,  -- the trigger draws it under the account's lock
    transaction_id uuid        NOT NULL CONSTRAINT ledger_entry_transaction_fk REFERENCES journal_transaction (id),
    account_id     bigint      NOT NULL CONSTRAINT ledger_entry_account_fk REFERENCES account (id),
    amount         bigint      NOT NULL,
    balance_after  bigint      NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT ledger_entry_amount_not_zero CHECK (amount <> 0),
    -- Deferrable, so that PostgreSQL refuses ON CONFLICT: a row that DO NOTHING throws away would have moved a balance.
    PRIMARY KEY (id, created_at) DEFERRABLE INITIALLY IMMEDIATE
) PARTITION BY RANGE (created_at);

ALTER SEQUENCE ledger_entry_id_seq OWNED BY ledger_entry.id;

CREATE INDEX ledger_entry_account_id ON ledger_entry (account_id, id);
COMMENT ON INDEX ledger_entry_account_id IS 'History and last entry of an account, in the order of posting';
CREATE INDEX ledger_entry_account_time ON ledger_entry (account_id, created_at, id);
COMMENT ON INDEX ledger_entry_account_time IS 'History of a period; the balance at a moment';
CREATE INDEX ledger_entry_transaction ON ledger_entry (transaction_id);
COMMENT ON INDEX ledger_entry_transaction IS 'The legs of a transaction; name created_at as well';
"""

PARTITIONS = """
-- The application has no USAGE here, so no right on a partition by its own name.
CREATE SCHEMA ledger_parts;

-- Give a partition the parent's statement triggers.
CREATE FUNCTION ledger_guard_partition(part regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    guard record;
BEGIN
    FOR guard IN
        SELECT pg_get_triggerdef(oid) AS definition FROM pg_trigger
         WHERE tgrelid = 'public.ledger_entry'::regclass AND NOT tgisinternal AND tgtype & 1 = 0
    LOOP
        EXECUTE replace(guard.definition, ' ON public.ledger_entry ', format(' ON %s ', part));
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION ledger_guard_partition(regclass) FROM PUBLIC;

-- Make the partition of a month (UTC). Returns its name, or null where it exists. The journal and the accounts are
-- locked first, in the order in which postings write them: without, the new foreign keys deadlock with transfers.
CREATE FUNCTION ledger_add_partition(month date) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    first timestamptz := date_trunc('month', month::timestamp) AT TIME ZONE 'UTC';
    past  timestamptz := (date_trunc('month', month::timestamp) + interval '1 month') AT TIME ZONE 'UTC';
    part  text := 'entry_' || to_char(month, 'YYYY_MM');
BEGIN
    IF first > now() + interval '13 months' OR first < now() - interval '13 months' THEN
        RAISE EXCEPTION 'month % is more than a year away', month USING ERRCODE = '22023';
    END IF;
    IF to_regclass('ledger_parts.' || part) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    LOCK TABLE public.journal_transaction, public.account IN SHARE ROW EXCLUSIVE MODE;
    IF to_regclass('ledger_parts.' || part) IS NOT NULL THEN  -- made by another call while this one waited
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TABLE ledger_parts.%I PARTITION OF public.ledger_entry FOR VALUES FROM (%L) TO (%L)',
                   part, first, past);
    PERFORM public.ledger_guard_partition(('ledger_parts.' || part)::regclass);
    RETURN part;
END $$;
REVOKE ALL ON FUNCTION ledger_add_partition(date) FROM PUBLIC;

-- What no month's partition takes goes here, so that no transfer ever fails for want of one.
CREATE TABLE ledger_parts.entry_default PARTITION OF ledger_entry DEFAULT;
"""

DROP_TABLE = "DROP TABLE ledger_entry"
DROP_PARTITIONS = """
DROP TABLE ledger_parts.entry_default;
DROP FUNCTION ledger_add_partition(date);
DROP FUNCTION ledger_guard_partition(regclass);
DROP SCHEMA ledger_parts CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial"), ("accounts", "0002_rules")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(TABLE, DROP_TABLE),
                migrations.RunSQL(PARTITIONS, DROP_PARTITIONS),
            ],
            state_operations=[
                migrations.CreateModel(
                    name="LedgerEntry",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("amount", models.BigIntegerField()),
                        ("balance_after", models.BigIntegerField(db_default=0)),
                        (
                            "created_at",
                            models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow()),
                        ),
                        (
                            "account",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="entries",
                                to="accounts.account",
                            ),
                        ),
                        (
                            "transaction",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="entries",
                                to="ledger.journaltransaction",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name_plural": "ledger entries",
                        "db_table": "ledger_entry",
                    },
                ),
                migrations.AddIndex(
                    model_name="ledgerentry",
                    index=models.Index(fields=["account", "id"], name="ledger_entry_account_id"),
                ),
                migrations.AddIndex(
                    model_name="ledgerentry",
                    index=models.Index(fields=["account", "created_at", "id"], name="ledger_entry_account_time"),
                ),
                migrations.AddIndex(
                    model_name="ledgerentry",
                    index=models.Index(fields=["transaction"], name="ledger_entry_transaction"),
                ),
                migrations.AddConstraint(
                    model_name="ledgerentry",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("amount", 0), _negated=True), name="ledger_entry_amount_not_zero"
                    ),
                ),
            ],
        ),
    ]
