"""The outbox, its relays' one row, and the inbox of consumers. The rules: 0002."""

import django.contrib.postgres.functions
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="InboxMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("consumer", models.CharField(max_length=64)),
                ("message_id", models.CharField(max_length=64)),
                ("received_at", models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())),
            ],
            options={
                "db_table": "inbox_message",
                "constraints": [models.UniqueConstraint(fields=("consumer", "message_id"), name="inbox_message_once")],
            },
        ),
        migrations.CreateModel(
            name="OutboxEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.CharField(max_length=64)),
                ("key", models.CharField(blank=True, db_default="", default="", max_length=64)),
                ("event_id", models.UUIDField(db_default=models.Func(function="gen_random_uuid"), unique=True)),
                ("payload", models.JSONField()),
                ("created_at", models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())),
                ("published", models.BooleanField(db_default=False, default=False)),
                ("published_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("parked", models.BooleanField(db_default=False, default=False)),
                (
                    "lane",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.Func(
                            output_field=models.SmallIntegerField(),
                            template="(hashtextextended(topic || ':' || key, 0) & 3)::smallint",
                        ),
                        output_field=models.SmallIntegerField(),
                    ),
                ),
            ],
            options={
                "db_table": "outbox_event",
                "permissions": [("retry_outboxevent", "Can send parked events again")],
                "indexes": [
                    models.Index(
                        condition=models.Q(("published", False)), fields=["lane", "id"], name="outbox_event_unpublished"
                    ),
                    models.Index(condition=models.Q(("parked", True)), fields=["id"], name="outbox_event_parked"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("published", False), ("published_at__isnull", False), _connector="OR"),
                        name="outbox_event_published_when",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("parked", False),
                            models.Q(("published", False), models.Q(("last_error", ""), _negated=True)),
                            _connector="OR",
                        ),
                        name="outbox_event_parked_why",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ParkedMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("consumer", models.CharField(max_length=64)),
                ("topic", models.CharField(max_length=249)),
                ("partition", models.IntegerField()),
                ("offset", models.BigIntegerField()),
                ("key", models.BinaryField(null=True)),
                ("value", models.BinaryField(null=True)),
                ("headers", models.JSONField()),
                ("error", models.TextField()),
                ("parked_at", models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "inbox_parked_message",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("consumer", "topic", "partition", "offset"), name="inbox_parked_message_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RelayState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("floor", models.BigIntegerField(db_default=0, default=0)),
                ("ceiling", models.BigIntegerField(db_default=0, default=0)),
                ("horizon", models.BigIntegerField(db_default=0, default=0)),
                ("published_total", models.BigIntegerField(db_default=0, default=0)),
                ("parked_total", models.BigIntegerField(db_default=0, default=0)),
                ("rate", models.FloatField(db_default=0.0, default=0)),
                ("rate_at", models.DateTimeField(db_default=django.contrib.postgres.functions.TransactionNow())),
                ("runs_total", models.BigIntegerField(db_default=0, default=0)),
                ("run_seconds_total", models.FloatField(db_default=0.0, default=0)),
                ("last_run_seconds", models.FloatField(db_default=0.0, default=0)),
                ("last_run_at", models.DateTimeField(blank=True, null=True)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("lagging_since", models.DateTimeField(blank=True, null=True)),
                ("bloated_since", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "outbox_relay",
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="outbox_relay_is_one_row")],
            },
        ),
    ]
