"""Holds, and the rules that plain constraints cannot express. Each raises by name (docs/adr/0002).

What must agree across tables (the hold, its money, its transactions) is judged at COMMIT, when all of it is written.
"""

import datetime

import django.contrib.postgres.functions
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

RULES = """
CREATE FUNCTION hold_fits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM public.held_money m JOIN public.journal_transaction j ON j.id = m.transaction_id
                    WHERE j.id = NEW.transaction_id AND j.type = 'HOLD' AND j.created_at = NEW.created_at
                      AND m.account_id = NEW.account_id) THEN
        RAISE EXCEPTION 'transaction % set nothing aside of account % at that time, or for no hold',
                NEW.transaction_id, NEW.account_id
            USING ERRCODE = '23514', CONSTRAINT = 'hold_fits_transaction';
    END IF;
    IF NEW.to_account_id IS NOT NULL AND NOT EXISTS (
           SELECT FROM public.account payee JOIN public.account payer ON payer.id = NEW.account_id
            WHERE payee.id = NEW.to_account_id AND payee.id <> payer.id AND payee.kind = 'WALLET'
              AND payee.parent_id IS NULL AND payee.status = 'ACTIVE' AND payee.currency = payer.currency) THEN
        RAISE EXCEPTION 'account % cannot be the payee of account %', NEW.to_account_id, NEW.account_id
            USING ERRCODE = '23514', CONSTRAINT = 'hold_fits_payee';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION hold_fits() FROM PUBLIC;
CREATE TRIGGER hold_fits BEFORE INSERT ON hold FOR EACH ROW EXECUTE FUNCTION hold_fits();

-- What was promised stays so, and ends once.
CREATE TRIGGER hold_is_fixed BEFORE UPDATE ON hold FOR EACH ROW
    WHEN (OLD.transaction_id <> NEW.transaction_id OR OLD.account_id <> NEW.account_id
          OR OLD.to_account_id IS DISTINCT FROM NEW.to_account_id OR OLD.expires_at <> NEW.expires_at
          OR OLD.created_at <> NEW.created_at)
    EXECUTE FUNCTION refuse_change('hold_is_fixed');
CREATE TRIGGER hold_is_final BEFORE UPDATE ON hold FOR EACH ROW
    WHEN (OLD.status <> 'ACTIVE') EXECUTE FUNCTION refuse_change('hold_is_final');
CREATE TRIGGER hold_is_kept BEFORE DELETE ON hold FOR EACH ROW EXECUTE FUNCTION refuse_change('hold_is_kept');
CREATE TRIGGER hold_is_not_truncated BEFORE TRUNCATE ON hold
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('hold_is_kept');

-- Asked at COMMIT, whether the hold or its money was written.
CREATE FUNCTION hold_matches_money() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept record;
    taken record;
BEGIN
    SELECT h.*, m.amount > m.spent + m.released AS has_money, m.released > 0 AS gave_back INTO kept
      FROM public.held_money m
      JOIN public.journal_transaction j ON j.id = m.transaction_id
      LEFT JOIN public.hold h ON h.transaction_id = m.transaction_id
     WHERE m.transaction_id = NEW.transaction_id AND j.type = 'HOLD';
    IF NOT FOUND THEN
        RETURN NULL;  -- What a withdrawal set aside.
    ELSIF kept.status IS NULL OR (kept.status = 'ACTIVE') <> kept.has_money
          OR kept.status = 'ACTIVE' AND kept.gave_back THEN
        RAISE EXCEPTION 'hold % is %, and money is left: %, or came back: %',
                NEW.transaction_id, coalesce(kept.status, 'missing'), kept.has_money, kept.gave_back
            USING ERRCODE = '23514', CONSTRAINT = 'hold_matches_money';
    ELSIF kept.gave_back AND (SELECT count(*) FROM public.journal_transaction r
                               WHERE r.continues_id = kept.transaction_id AND r.type = 'RELEASE') > 1 THEN
        RAISE EXCEPTION 'hold % was released more than once', NEW.transaction_id
            USING ERRCODE = '23514', CONSTRAINT = 'hold_released_once';
    ELSIF kept.status <> 'ACTIVE' AND NOT EXISTS (
           SELECT FROM public.journal_transaction e
            WHERE e.id = kept.ended_by_id AND e.continues_id = kept.transaction_id AND e.created_at = kept.ended_at
              AND e.type = CASE kept.status WHEN 'CAPTURED' THEN 'CAPTURE' ELSE 'RELEASE' END) THEN
        RAISE EXCEPTION 'hold % was not % by transaction % at %',
                NEW.transaction_id, kept.status, kept.ended_by_id, kept.ended_at
            USING ERRCODE = '23514', CONSTRAINT = 'hold_matches_ending';
    END IF;
    -- What was captured just now.
    SELECT bool_or(c.created_at >= kept.expires_at) AS late,
           bool_or(coalesce(a.parent_id, a.id) = kept.account_id
                   OR coalesce(a.parent_id, a.id) <> kept.to_account_id) AS elsewhere,
           count(*) > 0 AS any
      INTO taken
      FROM public.journal_transaction c
      JOIN public.ledger_entry e ON e.transaction_id = c.id AND e.created_at = c.created_at AND e.amount > 0
      JOIN public.account a ON a.id = e.account_id
     WHERE c.continues_id = NEW.transaction_id AND c.type = 'CAPTURE' AND c.xact = pg_current_xact_id();
    IF taken.late THEN
        RAISE EXCEPTION 'hold % expired at %', NEW.transaction_id, kept.expires_at
            USING ERRCODE = '23514', CONSTRAINT = 'hold_not_expired';
    ELSIF taken.elsewhere THEN
        RAISE EXCEPTION 'hold % was captured for somebody else than its payee', NEW.transaction_id
            USING ERRCODE = '23514', CONSTRAINT = 'hold_captured_by_payee';
    ELSIF taken.any AND kept.to_account_id IS NULL AND EXISTS (
           SELECT FROM public.account_freeze f
            WHERE f.account_id = kept.account_id
              AND NOT EXISTS (SELECT FROM public.account_thaw t WHERE t.freeze_id = f.id)) THEN
        -- Whom nobody was promised, the payer names now: no way out for a frozen one.
        RAISE EXCEPTION 'account %, which names the payee, is frozen', kept.account_id
            USING ERRCODE = '23514', CONSTRAINT = 'hold_payer_not_frozen';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION hold_matches_money() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER hold_matches_money AFTER INSERT OR UPDATE ON hold
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_matches_money();
CREATE CONSTRAINT TRIGGER held_money_matches_hold AFTER INSERT OR UPDATE ON held_money
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_matches_money();
"""

UNDO_RULES = """
DROP TRIGGER held_money_matches_hold ON held_money;
DROP FUNCTION hold_matches_money() CASCADE;
DROP FUNCTION hold_fits() CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_rules"),
        ("ledger", "0003_rules"),
        ("transfers", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Hold",
            fields=[
                (
                    "transaction",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="ledger.journaltransaction",
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("ACTIVE", "Active"),
                            ("CAPTURED", "Captured"),
                            ("VOIDED", "Voided"),
                            ("EXPIRED", "Expired"),
                        ],
                        db_default="ACTIVE",
                        default="ACTIVE",
                        max_length=8,
                    ),
                ),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("stuck_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "to_account",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "ended_by",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.journaltransaction",
                    ),
                ),
            ],
            options={
                "db_table": "hold",
                "indexes": [
                    models.Index(fields=["account", "-transaction"], name="hold_of_payer"),
                    models.Index(
                        condition=~Q(to_account=None), fields=["to_account", "-transaction"], name="hold_of_payee"
                    ),
                    models.Index(condition=Q(status="ACTIVE"), fields=["expires_at"], name="hold_due"),
                    models.Index(fields=["status", "-transaction"], name="hold_by_status"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(status__in=["ACTIVE", "CAPTURED", "VOIDED", "EXPIRED"]), name="hold_status_known"
                    ),
                    models.CheckConstraint(
                        condition=Q(status="ACTIVE", ended_by=None, ended_at=None)
                        | ~Q(status="ACTIVE") & Q(ended_by__isnull=False, ended_at__isnull=False),
                        name="hold_ended_when",
                    ),
                    models.CheckConstraint(
                        condition=~Q(status__in=["CAPTURED", "EXPIRED"])
                        | Q(status="CAPTURED", ended_at__lt=F("expires_at"))
                        | Q(status="EXPIRED", ended_at__gte=F("expires_at")),
                        name="hold_ended_in_time",
                    ),
                    models.CheckConstraint(
                        condition=Q(
                            expires_at__gt=F("created_at"),
                            expires_at__lte=F("created_at") + datetime.timedelta(days=31),
                        ),
                        name="hold_expires_in_time",
                    ),
                ],
            },
        ),
        migrations.RunSQL(RULES, UNDO_RULES),
    ]
