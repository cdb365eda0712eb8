"""The rules of accounts that plain constraints cannot express, the user `system`, and the groups of staff.

A refusal is SQLSTATE 23514 with the rule's name as its constraint. A WHEN clause is judged before the function is
called, so on the hot path these triggers cost next to nothing.
"""

from django.apps.registry import Apps
from django.contrib.auth.hashers import make_password
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

RULES = """
-- Updates of a balance stay in their page: room for them, and no index on what changes.
ALTER TABLE account SET (fillfactor = 70);
COMMENT ON INDEX account_shard_unique IS 'From a parent to its shards';

CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = '23514', CONSTRAINT = TG_ARGV[0], TABLE = TG_TABLE_NAME;
END $$;
REVOKE ALL ON FUNCTION refuse_change() FROM PUBLIC;

-- Rule 3: the balance moves only through an entry. The posting trigger of the ledger runs as wallet_book.
CREATE TRIGGER account_balance_by_entry BEFORE UPDATE ON account FOR EACH ROW
    WHEN ((OLD.balance <> NEW.balance OR OLD.last_entry_at IS DISTINCT FROM NEW.last_entry_at)
          AND current_user <> 'wallet_book')
    EXECUTE FUNCTION refuse_change('account_balance_by_entry');
CREATE TRIGGER account_opens_empty BEFORE INSERT ON account FOR EACH ROW
    WHEN (NEW.balance <> 0 OR NEW.last_entry_at IS NOT NULL)
    EXECUTE FUNCTION refuse_change('account_opens_empty');

-- Rule 9: what an account is never changes, and it is never deleted. Closed is for ever.
CREATE TRIGGER account_identity_is_fixed BEFORE UPDATE ON account FOR EACH ROW
    WHEN (OLD.id <> NEW.id OR OLD.owner_id <> NEW.owner_id OR OLD.currency <> NEW.currency OR OLD.kind <> NEW.kind
          OR OLD.allow_negative <> NEW.allow_negative OR OLD.parent_id IS DISTINCT FROM NEW.parent_id
          OR OLD.shard_no IS DISTINCT FROM NEW.shard_no OR OLD.created_at <> NEW.created_at)
    EXECUTE FUNCTION refuse_change('account_identity_is_fixed');
CREATE TRIGGER account_closed_is_final BEFORE UPDATE ON account FOR EACH ROW
    WHEN (OLD.status = 'CLOSED' AND NEW.status <> 'CLOSED')
    EXECUTE FUNCTION refuse_change('account_closed_is_final');
CREATE TRIGGER account_is_kept BEFORE DELETE ON account FOR EACH ROW
    EXECUTE FUNCTION refuse_change('account_is_kept');
CREATE TRIGGER account_is_not_truncated BEFORE TRUNCATE ON account FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change('account_is_kept');

CREATE FUNCTION account_shard_matches_parent() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.account p
                    WHERE p.id = NEW.parent_id AND p.parent_id IS NULL AND p.owner_id = NEW.owner_id
                      AND p.currency = NEW.currency AND p.kind = NEW.kind
                      AND p.allow_negative = NEW.allow_negative) THEN
        RAISE EXCEPTION 'shard does not match its parent %', NEW.parent_id
            USING ERRCODE = '23514', CONSTRAINT = 'account_shard_matches_parent';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION account_shard_matches_parent() FROM PUBLIC;
CREATE TRIGGER account_shard_matches_parent BEFORE INSERT ON account FOR EACH ROW
    WHEN (NEW.parent_id IS NOT NULL) EXECUTE FUNCTION account_shard_matches_parent();

-- A tier is a wallet's, in its currency; one that somebody was refused by stays what it was.
CREATE FUNCTION account_tier_fits() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.kind <> 'WALLET' OR NEW.parent_id IS NOT NULL
       OR NOT EXISTS (SELECT FROM public.tier t WHERE t.id = NEW.tier_id AND t.currency = NEW.currency) THEN
        RAISE EXCEPTION 'tier % does not fit account %', NEW.tier_id, NEW.id
            USING ERRCODE = '23514', CONSTRAINT = 'account_tier_fits';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION account_tier_fits() FROM PUBLIC;
CREATE TRIGGER account_tier_fits BEFORE INSERT OR UPDATE OF tier_id ON account FOR EACH ROW
    WHEN (NEW.tier_id IS NOT NULL) EXECUTE FUNCTION account_tier_fits();
CREATE TRIGGER tier_is_kept BEFORE UPDATE OR DELETE ON tier FOR EACH ROW
    EXECUTE FUNCTION refuse_change('tier_is_kept');
CREATE TRIGGER tier_is_not_truncated BEFORE TRUNCATE ON tier FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change('tier_is_kept');

-- Freezes and thaws are history.
CREATE TRIGGER freeze_is_kept BEFORE UPDATE OR DELETE ON account_freeze FOR EACH ROW
    EXECUTE FUNCTION refuse_change('freeze_is_kept');
CREATE TRIGGER freeze_is_not_truncated BEFORE TRUNCATE ON account_freeze FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change('freeze_is_kept');
CREATE TRIGGER thaw_is_kept BEFORE UPDATE OR DELETE ON account_thaw FOR EACH ROW
    EXECUTE FUNCTION refuse_change('thaw_is_kept');
CREATE TRIGGER thaw_is_not_truncated BEFORE TRUNCATE ON account_thaw FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_change('thaw_is_kept');

-- One family per kind and currency: a parent, and the shards among which each posting draws one. Idempotent;
-- `migrate` calls it for every currency of the settings, and only the owner has the rights that it needs.
CREATE FUNCTION account_open_system_families(code text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.account (owner_id, currency, kind, allow_negative, name)
    SELECT u.id, code, k.kind, k.kind IN ('BANK_CLEARING', 'RECEIVABLE'), k.kind || ' ' || code
      FROM unnest(ARRAY['BANK_CLEARING', 'RECEIVABLE', 'HOLD', 'SUSPENSE']) AS k (kind), public.wallet_user u
     WHERE u.username = 'system'
    ON CONFLICT (kind, currency) WHERE kind <> 'WALLET' AND parent_id IS NULL DO NOTHING;

    INSERT INTO public.account (owner_id, currency, kind, allow_negative, name, parent_id, shard_no)
    SELECT p.owner_id, p.currency, p.kind, p.allow_negative, p.name, p.id, n
      FROM public.account p, generate_series(0, 15) AS n
     WHERE p.kind <> 'WALLET' AND p.parent_id IS NULL AND p.currency = code
    ON CONFLICT (parent_id, shard_no) DO NOTHING;
$$;
REVOKE ALL ON FUNCTION account_open_system_families(text) FROM PUBLIC;
"""

UNDO_RULES = """
DROP FUNCTION account_open_system_families(text);
DROP FUNCTION account_tier_fits() CASCADE;
DROP FUNCTION account_shard_matches_parent() CASCADE;
DROP FUNCTION refuse_change() CASCADE;
ALTER TABLE account RESET (fillfactor);
"""


def add_system_user(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """The inactive user who owns the system accounts and whose password is no password."""
    users = apps.get_model("accounts", "User").objects.using(schema_editor.connection.alias)
    users.get_or_create(username="system", defaults={"is_active": False, "password": make_password(None)})


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.RunSQL(RULES, UNDO_RULES),
        # There is no way back for the user alone: the system accounts are his.
        migrations.RunPython(add_system_user, migrations.RunPython.noop),
    ]
