"""What plain constraints cannot express: no event is deleted before it was published. And the relays' one row."""

from django.db import migrations

RULES = """
CREATE FUNCTION outbox_event_is_kept() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'event % was not published yet', OLD.event_id
        USING ERRCODE = '23514', CONSTRAINT = 'outbox_event_is_kept';
END $$;
REVOKE ALL ON FUNCTION outbox_event_is_kept() FROM PUBLIC;
CREATE TRIGGER outbox_event_is_kept BEFORE DELETE ON outbox_event
    FOR EACH ROW WHEN (NOT OLD.published) EXECUTE FUNCTION outbox_event_is_kept();

-- Rows are written once, updated once and deleted: without this a big table would be vacuumed once in a blue moon.
ALTER TABLE outbox_event SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000);

INSERT INTO outbox_relay (id) VALUES (1);
"""

UNDO_RULES = """
DELETE FROM outbox_relay;
ALTER TABLE outbox_event RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
DROP FUNCTION outbox_event_is_kept() CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [("outbox", "0001_initial")]

    operations = [migrations.RunSQL(RULES, UNDO_RULES)]
