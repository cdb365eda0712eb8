"""The rules of bank orders that plain constraints cannot express. Each raises by name (docs/adr/0002).

An order is moved by the insert of a change, and what was returned of it is counted by the insert of a return. The two
functions that do so run as `wallet_book`; nobody else may, so that no status and no sum is without its history.
"""

from django.db import migrations

ORDERS = """
-- An order is of an open wallet. The account's lock keeps it open until the order is there to be seen.
CREATE FUNCTION bank_order_of_open_wallet() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wallet record;
BEGIN
    SELECT status INTO wallet FROM public.account
     WHERE id = NEW.account_id AND kind = 'WALLET' AND parent_id IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND OR wallet.status <> 'ACTIVE' THEN
        RAISE EXCEPTION 'account % is no open wallet', NEW.account_id
            USING ERRCODE = '23514', CONSTRAINT = 'bank_order_of_open_wallet';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION bank_order_of_open_wallet() FROM PUBLIC;
CREATE TRIGGER bank_order_of_open_wallet BEFORE INSERT ON bank_order
    FOR EACH ROW EXECUTE FUNCTION bank_order_of_open_wallet();

CREATE FUNCTION account_closed_has_no_order() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- An older snapshot would not show an order of just now.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (
           SELECT FROM public.bank_order
            WHERE account_id = NEW.id AND status IN ('PENDING', 'SUBMITTED', 'UNKNOWN')) THEN
        RAISE EXCEPTION 'account % has an order under way', NEW.id
            USING ERRCODE = '23514', CONSTRAINT = 'account_closed_has_no_order';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION account_closed_has_no_order() FROM PUBLIC;
CREATE TRIGGER account_closed_has_no_order BEFORE UPDATE ON account FOR EACH ROW
    WHEN (NEW.status = 'CLOSED' AND OLD.status <> 'CLOSED') EXECUTE FUNCTION account_closed_has_no_order();

-- It begins at its beginning, stays what it is, and moves by changes alone.
CREATE TRIGGER bank_order_opens_pending BEFORE INSERT ON bank_order FOR EACH ROW
    WHEN (NEW.status <> 'PENDING' OR NEW.returned <> 0) EXECUTE FUNCTION refuse_change('bank_order_opens_pending');
CREATE TRIGGER bank_order_is_fixed BEFORE UPDATE ON bank_order FOR EACH ROW
    WHEN (OLD.id <> NEW.id OR OLD.kind <> NEW.kind OR OLD.account_id <> NEW.account_id OR OLD.amount <> NEW.amount
          OR OLD.destination <> NEW.destination OR OLD.reference <> NEW.reference
          OR OLD.opening_id IS DISTINCT FROM NEW.opening_id OR OLD.initiator_id <> NEW.initiator_id
          OR OLD.created_at <> NEW.created_at)
    EXECUTE FUNCTION refuse_change('bank_order_is_fixed');
CREATE TRIGGER bank_order_moves_by_change BEFORE UPDATE ON bank_order FOR EACH ROW
    WHEN ((OLD.status <> NEW.status OR OLD.returned <> NEW.returned) AND current_user <> 'wallet_book')
    EXECUTE FUNCTION refuse_change('bank_order_moves_by_change');
CREATE TRIGGER bank_order_is_kept BEFORE DELETE ON bank_order
    FOR EACH ROW EXECUTE FUNCTION refuse_change('bank_order_is_kept');
CREATE TRIGGER bank_order_is_not_truncated BEFORE TRUNCATE ON bank_order
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('bank_order_is_kept');

CREATE FUNCTION bank_order_has_history() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.bank_order_change WHERE order_id = NEW.id AND from_status IS NULL) THEN
        RAISE EXCEPTION 'order % has no beginning', NEW.id
            USING ERRCODE = '23514', CONSTRAINT = 'bank_order_has_history';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bank_order_has_history() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER bank_order_has_history AFTER INSERT ON bank_order
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION bank_order_has_history();
"""

UNDO_ORDERS = """
DROP FUNCTION bank_order_has_history() CASCADE;
DROP FUNCTION account_closed_has_no_order() CASCADE;
DROP FUNCTION bank_order_of_open_wallet() CASCADE;
"""

MOVES = """
-- Whether a transaction, of just now and of that type, moved an order's money: all of the amount, continuing what the
-- order set aside where there is something, and through no other wallet than the order's.
CREATE FUNCTION bank_order_money_moved(
    moved_by uuid, due text, ordered public.bank_order, due_amount bigint
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT j.id
          FROM public.journal_transaction j
          JOIN public.ledger_entry e ON e.transaction_id = j.id AND e.created_at = j.created_at
          JOIN public.account a ON a.id = e.account_id
         WHERE j.id = moved_by AND j.type = due AND j.xact = pg_current_xact_id()
           AND (j.type <> 'WITHDRAWAL' OR j.id = ordered.opening_id)
           AND (j.type NOT IN ('SETTLEMENT', 'RELEASE') OR j.continues_id = ordered.opening_id)
         GROUP BY j.id
        HAVING sum(e.amount) FILTER (WHERE e.amount > 0) = due_amount
           AND bool_and(a.kind <> 'WALLET' OR coalesce(a.parent_id, a.id) = ordered.account_id)
           -- A deposit waits for its wallet; only what comes back may find it closed, or full.
           AND (due <> 'DEPOSIT' OR bool_and(a.kind <> 'SUSPENSE')));
END $$;
REVOKE ALL ON FUNCTION bank_order_money_moved(uuid, text, public.bank_order, bigint) FROM PUBLIC;

CREATE FUNCTION bank_order_moves() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ordered public.bank_order;
    due text;
BEGIN
    IF TG_RELID <> 'public.bank_order_change'::regclass THEN
        RAISE EXCEPTION 'only a change moves an order'
            USING ERRCODE = '23514', CONSTRAINT = 'bank_order_moves_by_change';
    END IF;
    -- What has ended needs no next step; whoever wants one asks for it.
    UPDATE public.bank_order
       SET status = NEW.to_status,
           next_step_at = CASE WHEN NEW.to_status IN ('COMPLETED', 'FAILED') THEN NULL ELSE next_step_at END
     WHERE id = NEW.order_id AND status = coalesce(NEW.from_status, NEW.to_status)
    RETURNING * INTO ordered;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'order % is not %', NEW.order_id, NEW.from_status
            USING ERRCODE = '23514', CONSTRAINT = 'bank_order_move_from_state';
    END IF;
    due := CASE
        WHEN (ordered.kind, NEW.to_status) = ('WITHDRAWAL', 'PENDING') THEN 'WITHDRAWAL'
        WHEN (ordered.kind, NEW.to_status) = ('WITHDRAWAL', 'COMPLETED') THEN 'SETTLEMENT'
        WHEN (ordered.kind, NEW.to_status) = ('WITHDRAWAL', 'FAILED') THEN 'RELEASE'
        WHEN (ordered.kind, NEW.to_status) = ('DEPOSIT', 'COMPLETED') THEN 'DEPOSIT'
    END;
    IF (due IS NULL) <> (NEW.transaction_id IS NULL)
       OR due IS NOT NULL AND NOT public.bank_order_money_moved(NEW.transaction_id, due, ordered, ordered.amount) THEN
        RAISE EXCEPTION 'transaction % is not what moves the money of order % to %',
                NEW.transaction_id, NEW.order_id, NEW.to_status
            USING ERRCODE = '23514', CONSTRAINT = 'bank_order_move_moves_money';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bank_order_moves() FROM PUBLIC;
-- After the row, so that its own constraints have spoken.
CREATE TRIGGER bank_order_moves AFTER INSERT ON bank_order_change
    FOR EACH ROW EXECUTE FUNCTION bank_order_moves();

CREATE FUNCTION bank_return_counts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ordered public.bank_order;
    due text;
BEGIN
    IF TG_RELID <> 'public.bank_return'::regclass THEN
        RAISE EXCEPTION 'only a return counts' USING ERRCODE = '23514', CONSTRAINT = 'bank_order_moves_by_change';
    END IF;
    -- The CHECK bank_order_returned_within_amount decides; the order's lock serialises.
    UPDATE public.bank_order SET returned = returned + NEW.amount
     WHERE id = NEW.order_id AND status = 'COMPLETED'
    RETURNING * INTO ordered;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'order % is not completed', NEW.order_id
            USING ERRCODE = '23514', CONSTRAINT = 'bank_return_of_completed';
    END IF;
    due := CASE ordered.kind WHEN 'DEPOSIT' THEN 'CHARGEBACK' ELSE 'RETURN' END;
    IF NOT public.bank_order_money_moved(NEW.transaction_id, due, ordered, NEW.amount) THEN
        RAISE EXCEPTION 'transaction % is not what moves % of order % back',
                NEW.transaction_id, NEW.amount, NEW.order_id
            USING ERRCODE = '23514', CONSTRAINT = 'bank_return_moves_money';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION bank_return_counts() FROM PUBLIC;
CREATE TRIGGER bank_return_counts AFTER INSERT ON bank_return
    FOR EACH ROW EXECUTE FUNCTION bank_return_counts();

-- Give them to wallet_book, which may write what they write and cannot log in (ledger/migrations/0003_rules.py).
GRANT SELECT ON bank_order TO wallet_book;
GRANT UPDATE (status, returned, next_step_at) ON bank_order TO wallet_book;
GRANT CREATE ON SCHEMA public TO wallet_book;
ALTER FUNCTION bank_order_money_moved(uuid, text, public.bank_order, bigint) OWNER TO wallet_book;
ALTER FUNCTION bank_order_moves() OWNER TO wallet_book;
ALTER FUNCTION bank_return_counts() OWNER TO wallet_book;
REVOKE CREATE ON SCHEMA public FROM wallet_book;

-- Money of orders moves with its order, judged at COMMIT. What releases a hold is no order's.
CREATE FUNCTION journal_has_bank_order() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM public.bank_order_change WHERE transaction_id = NEW.id)
       OR EXISTS (SELECT FROM public.bank_return WHERE transaction_id = NEW.id)
       OR NEW.type = 'RELEASE' AND EXISTS (
           SELECT FROM public.journal_transaction WHERE id = NEW.continues_id AND type = 'HOLD') THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'transaction % of type % belongs to no order', NEW.id, NEW.type
        USING ERRCODE = '23514', CONSTRAINT = 'journal_has_bank_order';
END $$;
REVOKE ALL ON FUNCTION journal_has_bank_order() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER journal_has_bank_order AFTER INSERT ON journal_transaction
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.type IN ('WITHDRAWAL', 'SETTLEMENT', 'RELEASE', 'RETURN', 'CHARGEBACK'))
    EXECUTE FUNCTION journal_has_bank_order();
"""

UNDO_MOVES = """
DROP FUNCTION journal_has_bank_order() CASCADE;
DROP FUNCTION bank_return_counts() CASCADE;
DROP FUNCTION bank_order_moves() CASCADE;
DROP FUNCTION bank_order_money_moved(uuid, text, public.bank_order, bigint);
"""

HISTORY = """
CREATE TRIGGER bank_order_change_is_kept BEFORE UPDATE OR DELETE ON bank_order_change
    FOR EACH ROW EXECUTE FUNCTION refuse_change('bank_order_change_is_kept');
CREATE TRIGGER bank_order_change_is_not_truncated BEFORE TRUNCATE ON bank_order_change
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('bank_order_change_is_kept');
CREATE TRIGGER bank_return_is_kept BEFORE UPDATE OR DELETE ON bank_return
    FOR EACH ROW EXECUTE FUNCTION refuse_change('bank_return_is_kept');
CREATE TRIGGER bank_return_is_not_truncated BEFORE TRUNCATE ON bank_return
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('bank_return_is_kept');
CREATE TRIGGER bank_notice_is_kept BEFORE UPDATE OR DELETE ON bank_notice
    FOR EACH ROW EXECUTE FUNCTION refuse_change('bank_notice_is_kept');
CREATE TRIGGER bank_notice_is_not_truncated BEFORE TRUNCATE ON bank_notice
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('bank_notice_is_kept');
"""

UNDO_HISTORY = """
DROP TRIGGER bank_notice_is_not_truncated ON bank_notice;
DROP TRIGGER bank_notice_is_kept ON bank_notice;
DROP TRIGGER bank_return_is_not_truncated ON bank_return;
DROP TRIGGER bank_return_is_kept ON bank_return;
DROP TRIGGER bank_order_change_is_not_truncated ON bank_order_change;
DROP TRIGGER bank_order_change_is_kept ON bank_order_change;
"""


class Migration(migrations.Migration):
    dependencies = [("transfers", "0003_bank_orders")]

    operations = [
        migrations.RunSQL(ORDERS, UNDO_ORDERS),
        migrations.RunSQL(MOVES, UNDO_MOVES),
        migrations.RunSQL(HISTORY, UNDO_HISTORY),
    ]
