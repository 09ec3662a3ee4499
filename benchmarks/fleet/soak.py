"""Replicas of the HTTP server on one workspace and one PostgreSQL, while some of them are killed and it restarts.

Each replica runs as on a machine of its own: as root it has its own pid namespace, in which no other can see whether
it lives, and its own mount of the workspace at a path of its own. Writers add a line of their own to shared files
(an edit, which fails when somebody was faster), replace whole files, delete and undo. What must hold afterwards:

- every line whose edit was confirmed is there exactly once; one without a reply is there once or not at all
- no file was ever seen half written
- every confirmed change is in the journal, none lacks what undoing it needs, and no two leases overlapped
- nothing is left half-done: no pending change, no lease, no temporary file
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2 as httpx

from llmc_mcp.changes.journal import Journal, limits_from
from llmc_mcp.changes.records import PutRecord
from llmc_mcp.config.schema import Config
from llmc_mcp.errors import LlmcError
from llmc_mcp.store.opening import open_store
from llmc_mcp.store.transfer import findings
from tests.support.http_server import OPEN_HANDED, TOKEN, HttpServer
from tests.support.postgres import Cluster, cluster

_LINES, _WHOLE = 4, 4  # shared files of each kind
_END = "END\n"
_TTL_S = 10
_SETTLED_S = 60  # after the last kill, within which everything must be settled


@dataclass
class Tally:
    """What happened."""

    confirmed: list[list[str]] = field(default_factory=lambda: [[] for _ in range(_LINES)])
    unknown: list[set[str]] = field(default_factory=lambda: [set[str]() for _ in range(_LINES)])
    made: list[str] = field(default_factory=list[str])  # the changes that were confirmed
    calls: Counter[str] = field(default_factory=Counter[str])
    torn: list[str] = field(default_factory=list[str])
    overlaps: list[str] = field(default_factory=list[str])
    kills: int = 0
    restarts: int = 0


class Replica:
    """A server that may be killed and started again."""

    def __init__(self, number: int, workspace: Path, work: Path, url: str) -> None:
        self._workspace, self._url = workspace, url
        self._home = work / f"machine-{number}"
        self._home.mkdir()
        self._mount = self._home / "workspace"
        self._apart = os.getuid() == 0 and shutil.which("unshare") is not None
        if self._apart:
            self._mount.mkdir()
        self._server: HttpServer | None = None
        self.address = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        env = {"LLMC_DATA_DIR": str(self._home / "data"), "LLMC_MCP_STORE_URL": self._url}
        limits = ("--set", f"limits.lease_ttl_sec={_TTL_S}", "--set", "limits.concurrency_per_token=64")
        words = ("-m", "llmc_mcp.server", *limits, *OPEN_HANDED)
        if self._apart:
            server = _ApartServer(self._workspace, self._mount, words, env)
        else:
            server = HttpServer(self._workspace, env=env, program=words)
        self._server, self.address = server, server.url

    def kill(self) -> None:
        """End it as a power cut would."""
        self.address = ""
        if self._server is not None:
            self._server.stop(signal.SIGKILL)
            self._server = None


class _ApartServer(HttpServer):
    """A server in namespaces of its own, to which the workspace has another path."""

    def __init__(self, workspace: Path, mount: Path, words: tuple[str, ...], env: dict[str, str]) -> None:
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        script = 'mount --bind "$0" "$1" && shift && exec "$@"'
        program = [*namespaces, "sh", "-c", script, str(workspace), str(mount), sys.executable, *words]
        arguments = ["--transport", "http", "--port", "0", "--root", str(mount)]
        environment = {**os.environ, "LLMC_MCP_TOKEN": TOKEN, **env}
        self.process = subprocess.Popen(
            [*program, *arguments], stderr=subprocess.PIPE, env=environment, cwd=workspace, text=True
        )
        self.token = TOKEN
        self._lines: list[str] = []
        self._listening = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._listening.wait(120) or not self.url:
            raise RuntimeError(f"the server does not listen:\n{self.log}")


class Soak:
    """The writers, the one who kills, and the one who looks."""

    def __init__(self, work: Path, database: Cluster, replicas: int, writers: int) -> None:
        self.workspace = work / "workspace"
        (self.workspace / "own").mkdir(parents=True)
        for number in range(_LINES):
            (self.workspace / f"lines-{number}.txt").write_text(_END)
        for number in range(_WHOLE):
            (self.workspace / f"whole-{number}.txt").write_text(_whole(0))
        self.database, self.url = database, database.fresh()
        self.store = open_store(self.url, str(work / "observer"))
        self.tally, self._over = Tally(), threading.Event()
        self.replicas = [Replica(number, self.workspace, work, self.url) for number in range(replicas)]
        self._writers = [
            threading.Thread(target=self._write, args=(number, self.replicas[number % replicas]))
            for number in range(replicas * writers)
        ]

    def run(self, seconds: float, kill_every: float, restart_every: float) -> None:
        """Let them work until a server was killed and the database restarted at least once, then settle everything."""
        looking = [threading.Thread(target=one) for one in (self._look_at_files, self._look_at_leases)]
        for thread in (*self._writers, *looking):
            thread.start()
        until = time.monotonic() + seconds
        next_kill, next_restart = time.monotonic() + kill_every, time.monotonic() + restart_every
        while time.monotonic() < until or not (self.tally.kills and self.tally.restarts):
            if time.monotonic() >= next_restart:
                self.database.stop(random.choice(("immediate", "fast")))
                self.database.start()
                self.tally.restarts += 1
                next_restart = time.monotonic() + restart_every * random.uniform(0.5, 1.5)
            elif time.monotonic() >= next_kill:
                replica = random.choice(self.replicas)
                replica.kill()
                self.tally.kills += 1
                replica.start()
                next_kill = time.monotonic() + kill_every * random.uniform(0.5, 1.5)
            self._over.wait(0.1)
        self._over.set()
        for thread in (*self._writers, *looking):
            thread.join()
        self._settle()

    def close(self) -> None:
        for replica in self.replicas:
            replica.kill()
        self.store.close()

    # --- working ---------------------------------------------------------------------------------

    def _write(self, number: int, replica: Replica) -> None:
        turn = 0
        with httpx.Client(timeout=60, trust_env=False, headers={"X-LLMC-Token": TOKEN}) as client:
            while not self._over.is_set():
                turn += 1
                kind = random.choices((self._add_line, self._replace, self._delete_and_undo), (6, 3, 1))[0]
                kind(client, replica, number, turn)

    def _call(self, client: httpx.Client, replica: Replica, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        """The code of a reply (`ok`; `none` where there was no reply) and what it says."""
        address = replica.address
        if not address:
            self._over.wait(0.05)
            return "away", {}
        try:
            reply = client.post(
                f"{address}/tool", json={"session_id": f"S{threading.get_ident()}", "name": name, "args": arguments}
            )
            body = reply.json()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            self._over.wait(0.05)
            return "away", {}
        except (httpx.HTTPError, ValueError):
            self.tally.calls["none"] += 1
            return "none", {}
        code = "ok" if reply.status_code == 200 else str(_found(body, "code") or reply.status_code)
        self.tally.calls[code] += 1
        if code == "ok" and (change := _found(body, "undo_id")):
            self.tally.made.append(change)
        return code, body

    def _add_line(self, client: httpx.Client, replica: Replica, number: int, turn: int) -> None:
        chosen, line = random.randrange(_LINES), f"w{number}-{turn}"
        edit = {"old_text": _END, "new_text": f"{line}\n{_END}"}
        code, _ = self._call(client, replica, "linux_fs_edit", path=f"lines-{chosen}.txt", **edit)
        if code == "ok":
            self.tally.confirmed[chosen].append(line)
        elif code == "none":
            self.tally.unknown[chosen].add(line)

    def _replace(self, client: httpx.Client, replica: Replica, number: int, turn: int) -> None:
        path = f"whole-{random.randrange(_WHOLE)}.txt"
        self._call(client, replica, "linux_fs_write", path=path, content=_whole(number * 1_000_000 + turn))

    def _delete_and_undo(self, client: httpx.Client, replica: Replica, number: int, turn: int) -> None:
        path = f"own/w{number}.txt"
        self._call(client, replica, "linux_fs_write", path=path, content=f"{turn}\n")
        code, body = self._call(client, replica, "linux_fs_delete", path=path)
        if code == "ok" and (undo_id := _found(body, "undo_id")):
            self._call(client, random.choice(self.replicas), "linux_fs_undo", undo_id=undo_id)

    # --- looking ---------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        while not self._over.wait(0.02):
            for number in range(_WHOLE):
                text = (self.workspace / f"whole-{number}.txt").read_text()
                if not _is_whole(text):
                    self.tally.torn.append(f"whole-{number}: {len(text)} characters")

    def _look_at_leases(self) -> None:
        while not self._over.wait(0.05):
            with suppress(LlmcError):
                rows = self.store.query("SELECT key, tree FROM leases ORDER BY key")
                trees = [str(key) for key, tree in rows if tree]
                for key, _ in rows:
                    over = [tree for tree in trees if str(key).startswith(f"{tree}/")]
                    self.tally.overlaps += [f"{key} in {tree}" for tree in over]
                if len({key for key, _ in rows}) != len(rows):
                    self.tally.overlaps.append("a key twice")

    def _settle(self) -> None:
        """Have each replica make changes until nothing is pending."""
        until = time.monotonic() + _SETTLED_S
        with httpx.Client(timeout=60, trust_env=False, headers={"X-LLMC-Token": TOKEN}) as client:
            while time.monotonic() < until and self._left():
                for number, replica in enumerate(self.replicas):
                    self._call(client, replica, "linux_fs_write", path=f"last-{number}.txt", content="settled\n")
                time.sleep(0.5)

    def _left(self) -> list[str]:
        """What is not settled."""
        pending = self.store.query("SELECT id FROM changes WHERE state<>'done'")
        leases = self.store.query("SELECT key FROM leases")
        litter = [path.name for path in self.workspace.rglob(".llmc-*")]
        return [*(f"change {row[0]}" for row in pending), *(f"lease {row[0]}" for row in leases), *litter]

    def judge(self) -> list[str]:
        """What is wrong, a sentence each."""
        tally, wrong = self.tally, list[str]()
        for number in range(_LINES):
            *lines, end = (self.workspace / f"lines-{number}.txt").read_text().splitlines()
            found, confirmed = Counter(lines), Counter(tally.confirmed[number])
            wrong += [f"lost update: {line}" for line in confirmed if found[line] != 1]
            stray = [line for line in found if line not in confirmed and line not in tally.unknown[number]]
            wrong += [f"a line that was refused is there: {line}" for line in stray]
            wrong += [f"a line is there twice: {line}" for line, count in found.items() if count > 1]
            wrong += [] if end == _END.strip() else [f"lines-{number} has no end"]
        wrong += [f"torn: {one}" for one in tally.torn]
        wrong += [f"leases overlap: {one}" for one in tally.overlaps]
        wrong += findings(self.store)
        journaled = {str(change) for (change,) in self.store.query("SELECT id FROM changes WHERE state='done'")}
        wrong += [f"confirmed, and not in the journal: {change}" for change in tally.made if change not in journaled]
        wrong += [f"left: {one}" for one in self._left()]
        return [*wrong, *self._without_image()]

    def _without_image(self) -> list[str]:
        images = {str(name) for (name,) in self.store.query("SELECT sha256 FROM images")}
        journal = Journal(self.store, limits_from(Config()), None)
        return [
            f"{change.id} lacks the image of {effect.path}"
            for change in journal.history(None, None, 100_000)
            for effect in change.effects
            if isinstance(effect, PutRecord) and effect.before and effect.kept and not change.dropped
            if effect.before.sha256 not in images
        ]


def _whole(number: int) -> str:
    body = f"{number}\n" * random.randrange(1, 2_000)
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def _is_whole(text: str) -> bool:
    head, _, body = text.partition("\n")
    return hashlib.sha256(body.encode()).hexdigest() == head


def _found(body: object, name: str) -> Any:
    """The first value of a name anywhere in a reply."""
    inside: list[object] = []
    if isinstance(body, dict):
        pairs = cast(dict[str, object], body)
        if name in pairs:
            return pairs[name]
        inside = list(pairs.values())
    elif isinstance(body, list):
        inside = cast(list[object], body)
    return next((value for one in inside if (value := _found(one, name)) is not None), None)


@contextmanager
def soak(replicas: int, writers: int) -> Generator[Soak]:
    """A fleet on a database and a workspace of its own; all of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as work, cluster() as database:
        fleet = Soak(Path(work), database, replicas, writers)
        try:
            yield fleet
        finally:
            fleet.close()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet soak", description="replicas that are killed under writers")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--writers", type=int, default=8, help="of each replica")
    parser.add_argument("--kill-every", type=float, default=8)
    parser.add_argument("--restart-every", type=float, default=30)
    given = parser.parse_args(words)
    with soak(given.replicas, given.writers) as fleet:
        fleet.run(given.seconds, given.kill_every, given.restart_every)
        wrong, tally = fleet.judge(), fleet.tally
    print(f"{given.replicas} replicas x {given.writers} writers, {given.seconds:.0f} s:", end=" ")
    print(f"{tally.kills} kills, {tally.restarts} restarts of PostgreSQL")
    print("calls:", ", ".join(f"{count:,} {code}" for code, count in tally.calls.most_common()))
    confirmed, unknown = sum(map(len, tally.confirmed)), sum(map(len, tally.unknown))
    print(f"{len(tally.made):,} changes and {confirmed:,} lines confirmed, {unknown:,} lines without a reply")
    for sentence in wrong[:20]:
        print(f"- {sentence}")
    print(f"{len(wrong)} findings")
    return 1 if wrong else 0
