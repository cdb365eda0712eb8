"""Servers for a measurement: those that the environment names, or fresh ones."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import django

from wallet_project.dev import kafka, processes, root, stack


@contextmanager
def servers(*, apache: bool) -> Iterator[None]:
    """Database, Valkey and a broker, with all tables made, named in this process's environment; Django is set up.

    Args:
        apache: Apache Kafka as the broker.
    """
    processes.listen_for_stop()
    home = Path(tempfile.mkdtemp(prefix="wallet-bench-")).resolve()
    if os.geteuid() == 0:
        home.chmod(root.OTHERS_MAY_PASS)
    try:
        with ExitStack() as exits:
            if apache:
                os.environ["KAFKA_BOOTSTRAP_SERVERS"] = exits.enter_context(kafka.running(home / "kafka")).url
            running = exits.enter_context(stack.running(home, wallet_env="test", needs_superuser=True))
            running.make_roles()
            running.manage("migrate", name="migrate")
            os.environ.update(running.child_environment())
            django.setup()
            yield
    finally:
        root.remove_home(home)
