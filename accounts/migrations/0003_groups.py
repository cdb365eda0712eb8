"""The groups of staff and what they may do. The application only reads these tables, so groups change by migration.

Permissions are rows that Django makes after all migrations have run; those that the groups need are made here, with the
words that Django would use, and found there later.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# Who may look at what. The models by their labels: this migration runs before those of the apps above.
VIEWED = {
    "accounts": ["user", "account", "freeze"],
    "ledger": ["journal transaction", "ledger entry", "reconciliation run", "reconciliation finding"],
    "outbox": ["outbox event", "parked message"],
    "transfers": ["notification", "hold", "bank order", "bank notice"],
}
# What finance does, by the permissions that the models name.
DONE_BY_FINANCE = [
    ("accounts", "account", "freeze_account", "Can freeze and thaw accounts"),
    ("ledger", "journaltransaction", "reverse_journaltransaction", "Can reverse transactions"),
    ("transfers", "bankorder", "ask_bank", "Can ask the bank about orders"),
    ("outbox", "outboxevent", "retry_outboxevent", "Can send parked events again"),
]
GROUPS = ["Support", "Finance"]


def add_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    alias = schema_editor.connection.alias
    groups = apps.get_model("auth", "Group").objects.using(alias)
    views = [
        _permission(apps, alias, app, (model := name.replace(" ", "")), f"view_{model}", f"Can view {name}")
        for app, names in VIEWED.items()
        for name in names
    ]
    actions = [_permission(apps, alias, *permission) for permission in DONE_BY_FINANCE]
    groups.create(name="Support").permissions.set(views)
    groups.create(name="Finance").permissions.set([*views, *actions])


def _permission(apps: Apps, alias: str, app: str, model: str, codename: str, name: str) -> object:
    content_types = apps.get_model("contenttypes", "ContentType").objects.using(alias)
    content_type, _ = content_types.get_or_create(app_label=app, model=model)
    permission, _ = (
        apps.get_model("auth", "Permission")
        .objects.using(alias)
        .get_or_create(content_type=content_type, codename=codename, defaults={"name": name})
    )
    return permission


def remove_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias).filter(name__in=GROUPS).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_rules"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(add_groups, remove_groups)]
