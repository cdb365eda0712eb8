"""The rules of the book that plain constraints cannot express (docs/adr/0002). Each raises by name.

A refusal is SQLSTATE 23514 with the rule's name as its constraint, so that `ledger.errors` can map it. The functions
that move balances and budgets run as `wallet_book`, a role without login that alone may write them; they pin their
search_path, and refuse to serve any table but the book's own partitions.
"""

from django.db import migrations

OUTFLOW = """
-- What a wallet has paid out on a business date, from the entries themselves, less what came back of what was set aside
-- on that date. `business_date` is made by `migrate`, from the settings.
CREATE FUNCTION account_outflow_of(family bigint, day date) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT coalesce(-sum(paid.amount), 0)
               - coalesce(sum((SELECT h.released FROM public.held_money h WHERE h.transaction_id = paid.id)), 0)
          FROM (SELECT j.id, sum(e.amount) AS amount
                  FROM public.account a
                  JOIN public.ledger_entry e ON e.account_id = a.id
                  JOIN public.journal_transaction j ON j.id = e.transaction_id
                 WHERE (a.id = family OR a.parent_id = family)
                   -- Wide enough for every time zone, for the index; the next line decides.
                   AND e.created_at >= day::timestamp AT TIME ZONE 'UTC' - interval '1 day'
                   AND e.created_at < day::timestamp AT TIME ZONE 'UTC' + interval '2 days'
                   AND public.business_date(e.created_at) = day
                   AND j.type IN ('TRANSFER', 'HOLD', 'WITHDRAWAL')
                 GROUP BY j.id HAVING sum(e.amount) < 0) AS paid);
END $$;
REVOKE ALL ON FUNCTION account_outflow_of(bigint, date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION account_outflow_of(bigint, date) TO wallet_book;

-- Under another tier the count of the day begins anew, from the entries.
CREATE FUNCTION account_outflow_follows_tier() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'public.account'::regclass THEN
        RAISE EXCEPTION 'only the accounts have tiers' USING ERRCODE = '23514', CONSTRAINT = 'account_outflow_by_entry';
    END IF;
    DELETE FROM public.account_outflow WHERE account_id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER account_outflow_by_entry BEFORE INSERT OR UPDATE OR DELETE ON account_outflow
    FOR EACH ROW WHEN (current_user <> 'wallet_book') EXECUTE FUNCTION refuse_change('account_outflow_by_entry');
CREATE TRIGGER account_outflow_is_not_truncated BEFORE TRUNCATE ON account_outflow
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('account_outflow_by_entry');
"""

UNDO_OUTFLOW = """
DROP TRIGGER account_outflow_is_not_truncated ON account_outflow;
DROP TRIGGER account_outflow_by_entry ON account_outflow;
DROP FUNCTION account_outflow_of(bigint, date);
"""

HELD_MONEY = """
-- Money on hold is counted by the posting alone, and while there is some its wallet stays open.
CREATE TRIGGER held_money_by_entry BEFORE INSERT OR UPDATE ON held_money
    FOR EACH ROW WHEN (current_user <> 'wallet_book') EXECUTE FUNCTION refuse_change('held_money_by_entry');
CREATE TRIGGER held_money_is_kept BEFORE DELETE ON held_money
    FOR EACH ROW EXECUTE FUNCTION refuse_change('held_money_by_entry');
CREATE TRIGGER held_money_is_not_truncated BEFORE TRUNCATE ON held_money
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('held_money_by_entry');

CREATE FUNCTION account_closed_holds_nothing() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM public.held_money WHERE account_id = NEW.id AND amount > spent + released) THEN
        RAISE EXCEPTION 'account % has money on hold', NEW.id
            USING ERRCODE = '23514', CONSTRAINT = 'account_closed_holds_nothing';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION account_closed_holds_nothing() FROM PUBLIC;
CREATE TRIGGER account_closed_holds_nothing BEFORE UPDATE ON account FOR EACH ROW
    WHEN (NEW.status = 'CLOSED' AND OLD.status <> 'CLOSED') EXECUTE FUNCTION account_closed_holds_nothing();
"""

UNDO_HELD_MONEY = """
DROP TRIGGER account_closed_holds_nothing ON account;
DROP FUNCTION account_closed_holds_nothing();
DROP TRIGGER held_money_is_not_truncated ON held_money;
DROP TRIGGER held_money_is_kept ON held_money;
DROP TRIGGER held_money_by_entry ON held_money;
"""

COUNTING = """
-- What is counted beside the entries. `ledger_entry_balanced` calls these with the entries of its statement; they run
-- as wallet_book, and nobody else may call them.

-- Rule 6: what went back of each original.
CREATE FUNCTION reversal_budget_counts(entries public.ledger_entry[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    culprit record;
BEGIN
    -- A budget counts one currency; đồng must not make room for dollars.
    SELECT o.id INTO culprit
      FROM unnest(entries) n
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
    -- is no way out to somebody else. What a capture took went out of its wallet with the opening.
    SELECT o.id INTO culprit
      FROM unnest(entries) n
      JOIN public.account back ON back.id = n.account_id
      JOIN public.journal_transaction j ON j.id = n.transaction_id
      JOIN public.journal_transaction o ON o.id = j.reverses_id
     WHERE NOT EXISTS (SELECT FROM public.journal_transaction w
                         JOIN public.ledger_entry e ON e.transaction_id = w.id AND e.created_at = w.created_at
                         JOIN public.account went ON went.id = e.account_id
                        WHERE w.id IN (o.id, o.continues_id)
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
      FROM unnest(entries) n
      JOIN public.journal_transaction j ON j.id = n.transaction_id
      JOIN public.journal_transaction o ON o.id = j.reverses_id
     WHERE n.amount > 0
     GROUP BY o.id ORDER BY o.id
    ON CONFLICT (transaction_id) DO UPDATE SET reversed = budget.reversed + EXCLUDED.reversed;
END $$;

-- Rule 11: an opening sets money of one wallet aside, in one HOLD account, from where it comes back.
CREATE FUNCTION held_money_opens(entries public.ledger_entry[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    culprit record;
BEGIN
    SELECT e.transaction_id AS id INTO culprit
      FROM unnest(entries) e
      JOIN public.journal_transaction j ON j.id = e.transaction_id
      JOIN public.account a ON a.id = e.account_id
     WHERE j.type IN ('HOLD', 'WITHDRAWAL')
     GROUP BY e.transaction_id
    HAVING count(*) FILTER (WHERE e.amount > 0) <> 1
        OR min(coalesce(a.parent_id, a.id)) FILTER (WHERE e.amount < 0)
           <> max(coalesce(a.parent_id, a.id)) FILTER (WHERE e.amount < 0) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'transaction % sets aside for several wallets, or in several places', culprit.id
            USING ERRCODE = '23514', CONSTRAINT = 'held_money_of_one_wallet';
    END IF;
    INSERT INTO public.held_money (transaction_id, account_id, hold_account_id, amount)
    SELECT e.transaction_id,
           min(coalesce(a.parent_id, a.id)) FILTER (WHERE e.amount < 0),
           min(e.account_id) FILTER (WHERE e.amount > 0),
           sum(e.amount) FILTER (WHERE e.amount > 0)
      FROM unnest(entries) e
      JOIN public.journal_transaction j ON j.id = e.transaction_id
      JOIN public.account a ON a.id = e.account_id
     WHERE j.type IN ('HOLD', 'WITHDRAWAL')
     GROUP BY e.transaction_id;
END $$;

-- Rule 11: what is on hold is spent or released, and no more than that.
CREATE FUNCTION held_money_continues(entries public.ledger_entry[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    culprit record;
BEGIN
    -- A hold is captured, a withdrawal settled; what is released goes to the wallet that it came from.
    SELECT j.id INTO culprit
      FROM unnest(entries) e
      JOIN public.journal_transaction j ON j.id = e.transaction_id
      JOIN public.account a ON a.id = e.account_id
      LEFT JOIN public.held_money h ON h.transaction_id = j.continues_id
      LEFT JOIN public.journal_transaction o ON o.id = j.continues_id
     WHERE j.continues_id IS NOT NULL
       AND (h.transaction_id IS NULL
            OR (j.type, o.type) NOT IN (('CAPTURE', 'HOLD'), ('SETTLEMENT', 'WITHDRAWAL'),
                                        ('RELEASE', 'HOLD'), ('RELEASE', 'WITHDRAWAL'))
            OR e.amount < 0 AND e.account_id <> h.hold_account_id
            OR e.amount > 0 AND j.type = 'RELEASE' AND coalesce(a.parent_id, a.id) <> h.account_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'transaction % does not continue what it names', culprit.id
            USING ERRCODE = '23514', CONSTRAINT = 'held_money_continues_opening';
    END IF;
    -- The CHECK held_money_within_amount decides; the HOLD account's lock, which all of them take, serialises.
    UPDATE public.held_money h SET spent = h.spent + moved.spent, released = h.released + moved.released
      FROM (SELECT j.continues_id,
                   coalesce(sum(e.amount) FILTER (WHERE j.type <> 'RELEASE'), 0) AS spent,
                   coalesce(sum(e.amount) FILTER (WHERE j.type = 'RELEASE'), 0) AS released
              FROM unnest(entries) e JOIN public.journal_transaction j ON j.id = e.transaction_id
             WHERE j.continues_id IS NOT NULL AND e.amount > 0
             GROUP BY j.continues_id) AS moved
     WHERE h.transaction_id = moved.continues_id;
    -- The count of the day on which it was set aside gets back what was not spent, if that day still goes on.
    UPDATE public.account_outflow s SET spent = s.spent - back.released
      FROM (SELECT h.account_id, public.business_date(o.created_at) AS day, sum(e.amount) AS released
              FROM unnest(entries) e
              JOIN public.journal_transaction j ON j.id = e.transaction_id
              JOIN public.journal_transaction o ON o.id = j.continues_id
              JOIN public.held_money h ON h.transaction_id = o.id
             WHERE j.type = 'RELEASE' AND e.amount > 0
             GROUP BY 1, 2) AS back
     WHERE s.account_id = back.account_id AND s.business_date = back.day;
END $$;

-- Rule 12: a wallet pays out no more than its tier allows.
CREATE FUNCTION account_outflow_counts(entries public.ledger_entry[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outflow record;
BEGIN
    FOR outflow IN
        SELECT paid.family, paid.day, t.single_limit, t.daily_limit, max(paid.amount) AS largest,
               sum(paid.amount) AS total
          FROM (SELECT coalesce(a.parent_id, a.id) AS family, public.business_date(j.created_at) AS day,
                       -sum(e.amount) AS amount
                  FROM unnest(entries) e
                  JOIN public.journal_transaction j ON j.id = e.transaction_id
                  JOIN public.account a ON a.id = e.account_id
                 WHERE j.type IN ('TRANSFER', 'HOLD', 'WITHDRAWAL') AND a.kind = 'WALLET'
                 GROUP BY 1, 2, j.id HAVING sum(e.amount) < 0) AS paid
          JOIN public.account p ON p.id = paid.family
          JOIN public.tier t ON t.id = p.tier_id
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
    LOOP
        IF outflow.largest > outflow.single_limit THEN
            RAISE EXCEPTION 'account % may pay out at most % at once', outflow.family, outflow.single_limit
                USING ERRCODE = '23514', CONSTRAINT = 'account_outflow_within_single_limit';
        END IF;
        -- The CHECK account_outflow_within_limit decides; the account's lock serialises.
        UPDATE public.account_outflow SET spent = spent + outflow.total, most = outflow.daily_limit
         WHERE account_id = outflow.family AND business_date = outflow.day;
        IF NOT FOUND THEN
            INSERT INTO public.account_outflow AS s (account_id, business_date, spent, most)
            VALUES (outflow.family, outflow.day, public.account_outflow_of(outflow.family, outflow.day),
                    outflow.daily_limit)
            ON CONFLICT (account_id) DO UPDATE
               SET (business_date, spent, most) = (EXCLUDED.business_date, EXCLUDED.spent, EXCLUDED.most);
        END IF;
    END LOOP;
END $$;

REVOKE ALL ON FUNCTION reversal_budget_counts(public.ledger_entry[]), held_money_opens(public.ledger_entry[]),
    held_money_continues(public.ledger_entry[]), account_outflow_counts(public.ledger_entry[]) FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO wallet_book;
ALTER FUNCTION reversal_budget_counts(public.ledger_entry[]) OWNER TO wallet_book;
ALTER FUNCTION held_money_opens(public.ledger_entry[]) OWNER TO wallet_book;
ALTER FUNCTION held_money_continues(public.ledger_entry[]) OWNER TO wallet_book;
ALTER FUNCTION account_outflow_counts(public.ledger_entry[]) OWNER TO wallet_book;
REVOKE CREATE ON SCHEMA public FROM wallet_book;
"""

UNDO_COUNTING = """
DROP FUNCTION account_outflow_counts(public.ledger_entry[]);
DROP FUNCTION held_money_continues(public.ledger_entry[]);
DROP FUNCTION held_money_opens(public.ledger_entry[]);
DROP FUNCTION reversal_budget_counts(public.ledger_entry[]);
"""

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

-- Rules 1, 6, 7, 10, 11: judged over all rows of the statement, which is why all legs go in with one INSERT. What is
-- counted beside the entries is counted only for a statement in which there is any.
CREATE FUNCTION ledger_entry_balanced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    books record;
    culprit record;
    entries public.ledger_entry[];
BEGIN
    IF TG_RELID <> 'public.ledger_entry'::regclass AND NOT EXISTS (
           SELECT FROM pg_inherits WHERE inhrelid = TG_RELID AND inhparent = 'public.ledger_entry'::regclass) THEN
        RAISE EXCEPTION 'only the book posts' USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_posts';
    END IF;
    SELECT bool_or(total <> 0) AS unbalanced, bool_or(NOT own) AS foreign_entry, bool_or(NOT same_time) AS other_time,
           bool_or(NOT fits) AS unfit, bool_or(reverses) AS reverses, bool_or(opens) AS opens,
           bool_or(continues) AS continues, bool_or(limited) AS limited
      INTO books
      FROM (SELECT sum(e.amount) AS total,
                   bool_and(j.xact = pg_current_xact_id()) AS own,
                   bool_and(j.created_at = e.created_at) AS same_time,
                   bool_and((j.type, CASE WHEN e.amount < 0 THEN 'debit' ELSE 'credit' END, a.kind) IN (
                       ('TRANSFER', 'debit', 'WALLET'), ('TRANSFER', 'credit', 'WALLET'),
                       ('DEPOSIT', 'debit', 'BANK_CLEARING'), ('DEPOSIT', 'credit', 'WALLET'),
                       ('DEPOSIT', 'credit', 'SUSPENSE'),
                       ('HOLD', 'debit', 'WALLET'), ('HOLD', 'credit', 'HOLD'),
                       ('CAPTURE', 'debit', 'HOLD'), ('CAPTURE', 'credit', 'WALLET'),
                       ('RELEASE', 'debit', 'HOLD'), ('RELEASE', 'credit', 'WALLET'),
                       ('WITHDRAWAL', 'debit', 'WALLET'), ('WITHDRAWAL', 'credit', 'HOLD'),
                       ('SETTLEMENT', 'debit', 'HOLD'), ('SETTLEMENT', 'credit', 'BANK_CLEARING'),
                       ('RETURN', 'debit', 'BANK_CLEARING'), ('RETURN', 'credit', 'WALLET'),
                       ('RETURN', 'credit', 'SUSPENSE'),
                       ('REVERSAL', 'debit', 'WALLET'), ('REVERSAL', 'credit', 'WALLET'),
                       ('CHARGEBACK', 'debit', 'WALLET'), ('CHARGEBACK', 'debit', 'RECEIVABLE'),
                       ('CHARGEBACK', 'credit', 'BANK_CLEARING'),
                       ('CONSOLIDATION', 'debit', 'WALLET'), ('CONSOLIDATION', 'credit', 'WALLET')))
                       AND (bool_and(j.type <> 'CONSOLIDATION')
                            OR min(coalesce(a.parent_id, a.id)) = max(coalesce(a.parent_id, a.id))) AS fits,
                   bool_or(j.reverses_id IS NOT NULL) AS reverses,
                   bool_or(j.type IN ('HOLD', 'WITHDRAWAL')) AS opens,
                   bool_or(j.continues_id IS NOT NULL) AS continues,
                   bool_or(e.amount < 0 AND a.kind = 'WALLET' AND (a.tier_id IS NOT NULL OR a.parent_id IS NOT NULL))
                       AS limited
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
    ELSIF books.unfit THEN
        RAISE EXCEPTION 'a type of transaction has its own kinds of account on either side'
            USING ERRCODE = '23514', CONSTRAINT = 'ledger_entry_fits_type';
    END IF;

    IF books.reverses OR books.opens OR books.continues OR books.limited THEN
        SELECT array_agg(ROW(e.*)::public.ledger_entry) INTO entries FROM new_entries e;
        IF books.reverses THEN
            PERFORM public.reversal_budget_counts(entries);
        END IF;
        IF books.opens THEN
            PERFORM public.held_money_opens(entries);
        END IF;
        IF books.continues THEN
            PERFORM public.held_money_continues(entries);
        END IF;
        IF books.limited THEN
            PERFORM public.account_outflow_counts(entries);
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Give both functions to wallet_book, which may write balances and budgets and cannot log in. ALTER OWNER asks that the
-- new owner may create in the schema, for the moment.
GRANT SELECT ON account, account_freeze, account_thaw, tier, journal_transaction, ledger_entry, reversal_budget,
    held_money, account_outflow TO wallet_book;
GRANT UPDATE (balance, last_entry_at) ON account TO wallet_book;
GRANT INSERT, UPDATE (reversed) ON reversal_budget TO wallet_book;
GRANT INSERT, UPDATE (spent, released) ON held_money TO wallet_book;
GRANT INSERT, DELETE, UPDATE (business_date, spent, most) ON account_outflow TO wallet_book;
GRANT USAGE ON SEQUENCE ledger_entry_id_seq TO wallet_book;
REVOKE ALL ON FUNCTION ledger_entry_posts(), ledger_entry_balanced(), account_outflow_follows_tier() FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO wallet_book;
ALTER FUNCTION ledger_entry_posts() OWNER TO wallet_book;
ALTER FUNCTION ledger_entry_balanced() OWNER TO wallet_book;
ALTER FUNCTION account_outflow_follows_tier() OWNER TO wallet_book;
REVOKE CREATE ON SCHEMA public FROM wallet_book;
-- The owner makes partitions, and making a trigger asks for EXECUTE.
SET LOCAL ROLE wallet_book;
GRANT EXECUTE ON FUNCTION ledger_entry_posts(), ledger_entry_balanced(), account_outflow_follows_tier()
    TO SESSION_USER;
RESET ROLE;

CREATE TRIGGER ledger_entry_posts BEFORE INSERT ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_entry_posts();
CREATE TRIGGER ledger_entry_balanced AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS new_entries FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_balanced();
CREATE TRIGGER account_outflow_follows_tier AFTER UPDATE OF tier_id ON account FOR EACH ROW
    WHEN (OLD.tier_id IS DISTINCT FROM NEW.tier_id) EXECUTE FUNCTION account_outflow_follows_tier();
"""

UNDO_POSTING = """
DROP TRIGGER account_outflow_follows_tier ON account;
DROP FUNCTION account_outflow_follows_tier();
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
        migrations.RunSQL(HELD_MONEY, UNDO_HELD_MONEY),
        migrations.RunSQL(OUTFLOW, UNDO_OUTFLOW),
        migrations.RunSQL(COUNTING, UNDO_COUNTING),
        migrations.RunSQL(POSTING, UNDO_POSTING),
        migrations.RunSQL(APPEND_ONLY, UNDO_APPEND_ONLY),
        migrations.RunSQL(PARTITIONS, UNDO_PARTITIONS),
    ]
