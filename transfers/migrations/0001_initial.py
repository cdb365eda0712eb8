"""What the example consumer tells users."""

import django.contrib.postgres.functions
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0002_rules"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Notification",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("transaction_id", models.UUIDField()),
                ("type", models.CharField(max_length=32)),
                ("amount", models.BigIntegerField()),
                ("currency", models.CharField(max_length=3)),
                ("occurred_at", models.DateTimeField()),
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
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "notification",
                "indexes": [models.Index(fields=["user", "-id"], name="notification_of_user")],
                "constraints": [
                    models.UniqueConstraint(fields=("transaction_id", "account"), name="notification_once"),
                    models.CheckConstraint(
                        condition=models.Q(("amount", 0), _negated=True), name="notification_tells_of_money"
                    ),
                ],
            },
        ),
    ]
