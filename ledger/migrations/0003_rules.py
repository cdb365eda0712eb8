"""The rules of the book that plain constraints cannot express (docs/adr/0002). Each raises by name.

A refusal is SQLSTATE 23514 with the rule's name as its constraint, so that `ledger.errors` can map it. The functions
that move balances and budgets run as `wallet_book`, a role without login that alone may write them; they pin their
search_path, and refuse to serve any table but the book's own partitions.
"""

from django.db import migrations

POSTING = """
-- Rules 3, 4, 5, 9, 10: an entry moves its account's balance, in order, and never against the account's state.
CREATE FUNCTION ledger_entry_posts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    family bigint;
    found_account record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_inherits
                    WHERE inhrelid = TG_RELID AND inhparent = 'public.ledger_entry'::regclass) THEN
        RAISE EXCEPTION 'only the book posts' USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_posts';
    END IF;
    -- An older snapshot would not show a freeze of today.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'entries are posted in READ COMMITTED, not in %', current_setting('transaction_isolation')
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_read_committed';
    END IF;
    -- Tests and loads may place entries in the past, oldest first, logged in as the owner.
    IF NEW.created_at < transaction_timestamp() AND session_user <>
           (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'public.ledger_entry'::regclass) THEN
        RAISE EXCEPTION 'entry dated % before its database transaction began', NEW.created_at
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_not_backdated';
    END IF;
    IF NEW.created_at > clock_timestamp() + interval '1 minute' THEN
        RAISE EXCEPTION 'entry dated %, over a minute ahead of the clock', NEW.created_at
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_not_ahead';
    END IF;

    UPDATE public.account SET balance = balance + NEW.amount, last_entry_at = NEW.created_at
     WHERE id = NEW.account_id AND status = 'ACTIVE'
       AND (last_entry_at IS NULL OR last_entry_at <= NEW.created_at)
    RETURNING balance, parent_id INTO NEW.balance_after, family;

    IF NOT FOUND THEN
        SELECT status, last_entry_at INTO found_account FROM public.account WHERE id = NEW.account_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no account %', NEW.account_id
                USING ERRCODE = '23503', CONSTRAINT = 'ledger_entry_account_fk';
        ELSIF found_account.status <> 'ACTIVE' THEN
            RAISE EXCEPTION 'account % is %', NEW.account_id, found_account.status
                USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_account_not_closed';
        END IF;
        RAISE EXCEPTION 'account % has an entry of %, later than %',
                NEW.account_id, found_account.last_entry_at, NEW.created_at
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_in_order';
    END IF;

    IF NEW.amount < 0 AND EXISTS (
           SELECT FROM public.account_freeze f
            WHERE f.account_id IN (NEW.account_id, family)
              AND NOT EXISTS (SELECT FROM public.account_thaw t WHERE t.freeze_id = f.id))
       AND NOT EXISTS (SELECT FROM public.journal_transaction j
                        WHERE j.id = NEW.transaction_id AND j.type IN ('REVERSAL', 'CHARGEBACK', 'CONSOLIDATION')) THEN
        RAISE EXCEPTION 'account % is frozen', NEW.account_id
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_account_not_frozen';
    END IF;

    -- Drawn here, under the account's lock: a default is drawn before the wait, out of order.
    NEW.id := nextval('public.ledger_entry_id_seq');
    RETURN NEW;
END $$;

-- Rules 1, 6, 7, 10: judged over all rows of the statement, which is why all legs go in with one INSERT.
CREATE FUNCTION ledger_entry_balanced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    books record;
    culprit record;
BEGIN
    IF TG_RELID <> 'public.ledger_entry'::regclass AND NOT EXISTS (
           SELECT FROM pg_inherits WHERE inhrelid = TG_RELID AND inhparent = 'public.ledger_entry'::regclass) THEN
        RAISE EXCEPTION 'only the book posts' USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_posts';
    END IF;
    SELECT bool_or(total <> 0) AS unbalanced, bool_or(NOT own) AS foreign_entry, bool_or(NOT same_time) AS other_time,
           bool_or(reverses) AS reverses
      INTO books
      FROM (SELECT sum(e.amount) AS total,
                   bool_and(j.xact = pg_current_xact_id()) AS own,
                   bool_and(j.created_at = e.created_at) AS same_time,
                   bool_or(j.reverses_id IS NOT NULL) AS reverses
              FROM new_entries e
              JOIN public.journal_transaction j ON j.id = e.transaction_id
              JOIN public.account a ON a.id = e.account_id
             GROUP BY e.transaction_id, a.currency) AS per_currency;

    IF books.unbalanced THEN
        SELECT e.transaction_id, a.currency, sum(e.amount) AS total INTO culprit
          FROM new_entries e JOIN public.account a ON a.id = e.account_id
         GROUP BY e.transaction_id, a.currency HAVING sum(e.amount) <> 0 LIMIT 1;
        RAISE EXCEPTION 'entries of transaction % sum to % %, not to zero',
                culprit.transaction_id, culprit.total, culprit.currency
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_balanced';
    ELSIF books.foreign_entry THEN
        RAISE EXCEPTION 'entries come only from the database transaction that made their journal row'
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_same_transaction';
    ELSIF books.other_time THEN
        RAISE EXCEPTION 'an entry and its journal row carry one created_at'
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_same_time';
    ELSIF books.reverses THEN
        -- A budget counts one currency; đồng must not make room for dollars.
        SELECT o.id INTO culprit
          FROM new_entries n
          JOIN public.account back ON back.id = n.account_id
          JOIN public.journal_transaction j ON j.id = n.transaction_id
          JOIN public.journal_transaction o ON o.id = j.reverses_id
          JOIN public.ledger_entry e ON e.transaction_id = o.id AND e.created_at = o.created_at
          JOIN public.account went ON went.id = e.account_id
         WHERE back.currency <> went.currency LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'transaction % moved another currency', culprit.id
                USING ERRCODE = '23514', CONSTRAINT = 'reversal_same_currency';
        END IF;
        -- What went out of a family comes back into it, and the other way round: a reversal, which no freeze stops,
        -- is no way out to somebody else.
        SELECT o.id INTO culprit
          FROM new_entries n
          JOIN public.account back ON back.id = n.account_id
          JOIN public.journal_transaction j ON j.id = n.transaction_id
          JOIN public.journal_transaction o ON o.id = j.reverses_id
         WHERE NOT EXISTS (SELECT FROM public.ledger_entry e JOIN public.account went ON went.id = e.account_id
                            WHERE e.transaction_id = o.id AND e.created_at = o.created_at
                              AND coalesce(went.parent_id, went.id) = coalesce(back.parent_id, back.id)
                              AND sign(e.amount) <> sign(n.amount)) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'transaction % moved the other way, or nothing there', culprit.id
                USING ERRCODE = '23514', CONSTRAINT = 'reversal_mirrors_original';
        END IF;
        -- The CHECK reversal_within_original decides; the conflicting row's lock serialises.
        INSERT INTO public.reversal_budget AS budget (transaction_id, original, reversed)
        SELECT o.id,
               coalesce((SELECT sum(e.amount) FROM public.ledger_entry e
                          WHERE e.transaction_id = o.id AND e.created_at = o.created_at AND e.amount > 0), 0),
               sum(n.amount)
          FROM new_entries n
          JOIN public.journal_transaction j ON j.id = n.transaction_id
          JOIN public.journal_transaction o ON o.id = j.reverses_id
         WHERE n.amount > 0
         GROUP BY o.id ORDER BY o.id
        ON CONFLICT (transaction_id) DO UPDATE SET reversed = budget.reversed + EXCLUDED.reversed;
    END IF;
    RETURN NULL;
END $$;

-- Give both functions to wallet_book, which may write balances and budgets and cannot log in. ALTER OWNER asks that the
-- new owner may create in the schema, for the moment.
GRANT SELECT ON account, account_freeze, account_thaw, journal_transaction, ledger_entry, reversal_budget
    TO wallet_book;
GRANT UPDATE (balance, last_entry_at) ON account TO wallet_book;
GRANT INSERT, UPDATE (reversed) ON reversal_budget TO wallet_book;
GRANT USAGE ON SEQUENCE ledger_entry_id_seq TO wallet_book;
REVOKE ALL ON FUNCTION ledger_entry_posts(), ledger_entry_balanced() FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO wallet_book;
ALTER FUNCTION ledger_entry_posts() OWNER TO wallet_book;
ALTER FUNCTION ledger_entry_balanced() OWNER TO wallet_book;
REVOKE CREATE ON SCHEMA public FROM wallet_book;
-- The owner makes partitions, and making a trigger asks for EXECUTE.
SET LOCAL ROLE wallet_book;
GRANT EXECUTE ON FUNCTION ledger_entry_posts(), ledger_entry_balanced() TO SESSION_USER;
RESET ROLE;

CREATE TRIGGER ledger_entry_posts BEFORE INSERT ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_entry_posts();
CREATE TRIGGER ledger_entry_balanced AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS new_entries FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_balanced();
"""

UNDO_POSTING = """
DROP TRIGGER ledger_entry_balanced ON ledger_entry;
DROP TRIGGER ledger_entry_posts ON ledger_entry;
DROP FUNCTION ledger_entry_balanced();
DROP FUNCTION ledger_entry_posts();
"""

APPEND_ONLY = """
-- Rule 2: nobody rewrites the past.
CREATE TRIGGER ledger_entry_is_kept BEFORE UPDATE OR DELETE ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION refuse_change('ledger_entry_is_kept');
CREATE TRIGGER ledger_entry_is_not_truncated BEFORE TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('ledger_entry_is_kept');
CREATE TRIGGER journal_is_kept BEFORE UPDATE OR DELETE ON journal_transaction
    FOR EACH ROW EXECUTE FUNCTION refuse_change('journal_is_kept');
CREATE TRIGGER journal_is_not_truncated BEFORE TRUNCATE ON journal_transaction
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('journal_is_kept');
CREATE TRIGGER idempotency_record_is_kept BEFORE UPDATE OR DELETE ON idempotency_record
    FOR EACH ROW EXECUTE FUNCTION refuse_change('idempotency_record_is_kept');
CREATE TRIGGER idempotency_record_is_not_truncated BEFORE TRUNCATE ON idempotency_record
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('idempotency_record_is_kept');
"""

UNDO_APPEND_ONLY = """
DROP TRIGGER idempotency_record_is_not_truncated ON idempotency_record;
DROP TRIGGER idempotency_record_is_kept ON idempotency_record;
DROP TRIGGER journal_is_not_truncated ON journal_transaction;
DROP TRIGGER journal_is_kept ON journal_transaction;
DROP TRIGGER ledger_entry_is_not_truncated ON ledger_entry;
DROP TRIGGER ledger_entry_is_kept ON ledger_entry;
"""

JOURNAL = """
-- Rule 7: the database transaction that made the row, savepoints included. The application has no right on the column.
ALTER TABLE journal_transaction ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE TRIGGER journal_xact_is_own BEFORE INSERT ON journal_transaction
    FOR EACH ROW WHEN (NEW.xact <> pg_current_xact_id()) EXECUTE FUNCTION refuse_change('journal_xact_is_own');

-- Rule 1: a journal row without entries is refused at commit.
CREATE FUNCTION journal_has_entries() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.ledger_entry
                    WHERE transaction_id = NEW.id AND created_at = NEW.created_at) THEN
        RAISE EXCEPTION 'transaction % has no entries', NEW.id
            USING ERRCODE = '23514', CONSTRAINT = 'journal_has_entries';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION journal_has_entries() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER journal_has_entries AFTER INSERT ON journal_transaction
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal_has_entries();

-- Rule 6: a reversal is not reversed, and only the posting writes budgets. The original must be there already: a row
-- that comes after its own reversal, or reverses itself, could be a reversal unseen.
CREATE FUNCTION reversal_not_of_reversal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.journal_transaction WHERE id = NEW.reverses_id AND reverses_id IS NULL) THEN
        RAISE EXCEPTION 'transaction % is a reversal itself, or not there', NEW.reverses_id
            USING ERRCODE = '23514', CONSTRAINT = 'reversal_not_of_reversal';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION reversal_not_of_reversal() FROM PUBLIC;
CREATE TRIGGER reversal_not_of_reversal BEFORE INSERT ON journal_transaction
    FOR EACH ROW WHEN (NEW.reverses_id IS NOT NULL) EXECUTE FUNCTION reversal_not_of_reversal();

CREATE TRIGGER reversal_budget_by_entry BEFORE INSERT OR UPDATE ON reversal_budget
    FOR EACH ROW WHEN (current_user <> 'wallet_book') EXECUTE FUNCTION refuse_change('reversal_budget_by_entry');
CREATE TRIGGER reversal_budget_is_kept BEFORE DELETE ON reversal_budget
    FOR EACH ROW EXECUTE FUNCTION refuse_change('reversal_budget_by_entry');
CREATE TRIGGER reversal_budget_is_not_truncated BEFORE TRUNCATE ON reversal_budget
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('reversal_budget_by_entry');
"""

UNDO_JOURNAL = """
DROP TRIGGER reversal_budget_is_not_truncated ON reversal_budget;
DROP TRIGGER reversal_budget_is_kept ON reversal_budget;
DROP TRIGGER reversal_budget_by_entry ON reversal_budget;
DROP TRIGGER reversal_not_of_reversal ON journal_transaction;
DROP FUNCTION reversal_not_of_reversal();
DROP TRIGGER journal_has_entries ON journal_transaction;
DROP FUNCTION journal_has_entries();
DROP TRIGGER journal_xact_is_own ON journal_transaction;
ALTER TABLE journal_transaction DROP COLUMN xact;
"""

PARTITIONS = """
SELECT ledger_guard_partition(inhrelid) FROM pg_inherits WHERE inhparent = 'ledger_entry'::regclass;
SELECT ledger_add_partition((date_trunc('month', now()) + n * interval '1 month')::date)
  FROM generate_series(0, 3) AS n;
"""

UNDO_PARTITIONS = """
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'ledger_entry'::regclass LOOP
        EXECUTE format('DROP TRIGGER ledger_entry_balanced ON %s', part);
        EXECUTE format('DROP TRIGGER ledger_entry_is_not_truncated ON %s', part);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_entries")]

    operations = [
        migrations.RunSQL(JOURNAL, UNDO_JOURNAL),
        migrations.RunSQL(POSTING, UNDO_POSTING),
        migrations.RunSQL(APPEND_ONLY, UNDO_APPEND_ONLY),
        migrations.RunSQL(PARTITIONS, UNDO_PARTITIONS),
    ]
