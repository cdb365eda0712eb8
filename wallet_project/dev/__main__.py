"""The commands: `python -m wallet_project.dev run | test | soak | psql | kafka | kafka-jars | reset`"""

import os
import sys
from collections.abc import Sequence

from wallet_project.dev import kafka, root, run, servers, stack, suite
from wallet_project.dev.processes import DevError


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    stack.forget_our_variables()
    try:
        match arguments:
            case ["run"]:
                return run.run()
            case ["test", *rest]:
                return suite.test(rest)
            case ["soak", *rest]:
                return suite.soak(rest)
            case ["psql", *rest]:
                return psql(rest)
            case ["kafka"]:
                return kafka.run()
            case ["kafka-jars"]:
                return kafka.fetch()
            case ["reset"]:
                return reset()
    except DevError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(__doc__, file=sys.stderr)
    return 2


def psql(arguments: Sequence[str]) -> int:
    """Become psql, logged in as the application to the database that runs."""
    if not run.ENVIRONMENT_FILE.exists():
        raise DevError("Nothing runs here; start it with `make run`.")
    url = stack.read_environment(run.ENVIRONMENT_FILE)["DATABASE_URL"]
    program = servers.postgres_binaries() / "psql"
    os.execv(program, [program.name, url, *arguments])  # noqa: S606  No shell is wanted.


def reset() -> int:
    """Forget all data of this checkout."""
    with run.sole_owner_of_home():
        stack.stop_leftovers(run.HOME)
        root.remove_home(run.HOME)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
