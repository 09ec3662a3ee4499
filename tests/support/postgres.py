"""A throw-away PostgreSQL on a socket of its own, from Debian's packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from glob import glob
from pathlib import Path
from urllib.parse import quote

import psycopg

from llmc_mcp.errors import LlmcError
from llmc_mcp.store.base import Store

NEEDED = "PostgreSQL (apt-get install postgresql)"


@cache
def programs() -> str:
    """The folder of PostgreSQL's programs; empty where it is not installed."""
    found = sorted(glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    named = found[-1] if found else shutil.which("initdb") or ""
    return os.path.dirname(named)


class Cluster:
    """A running database server; every schema of it is a store of its own."""

    def __init__(self, folder: Path, *, synced: bool = False) -> None:
        """`synced`: what is committed is on the disk, as in production; tests need not wait for that."""
        self._folder, self._schemas, self._fsync = folder, 0, "on" if synced else "off"
        self._data, self._sockets = folder / "data", folder / "run"
        self._as_user: list[str] = []
        self._sockets.mkdir()
        if os.getuid() == 0:  # it refuses to run as root
            self._as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            for path in (folder, self._sockets):
                os.chown(path, 65534, 65534)
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "llmc", "--no-sync", "-E", "UTF8")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self._sockets} -c listen_addresses= -c max_connections=200 -c fsync={self._fsync}"
        self._run(
            "pg_ctl", "-D", str(self._data), "-w", "-l", str(self._folder / "run" / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` is what a crash looks like."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    def fresh(self) -> str:
        """The address of a store in which nothing is yet."""
        self._schemas += 1
        name = f"s{self._schemas}"
        address = f"postgresql://llmc@/postgres?host={quote(str(self._sockets))}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{address}&options={quote(f'-csearch_path={name}')}"

    def dump(self, address: str, archive: Path) -> None:
        """Back a store up while servers use it."""
        with archive.open("wb") as file:
            subprocess.run([os.path.join(programs(), "pg_dump"), "-Fc", address], check=True, stdout=file)

    def restore(self, archive: Path, database: str, like: str) -> str:
        """Restore a backup into a database of its own; returns the address of the store there."""
        with psycopg.connect(like, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())
        address = like.replace("/postgres?", f"/{database}?")
        subprocess.run([os.path.join(programs(), "pg_restore"), "-d", address, str(archive)], check=True)
        return address

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._as_user, os.path.join(programs(), program), *words],
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}"


@contextmanager
def cluster(*, synced: bool = False) -> Generator[Cluster]:
    """A cluster below /tmp, where another user may reach it and a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp", ignore_cleanup_errors=True) as folder:
        running = Cluster(Path(folder), synced=synced)
        try:
            yield running
        finally:
            running.stop()


def answers(store: Store) -> bool:
    """Whether a store's database is there."""
    try:
        return store.query("SELECT 1") == [(1,)]
    except LlmcError:
        return False
