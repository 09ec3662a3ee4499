"""A recorded run on its checkout: every command that changes files is undone, compared, and done again."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from llmc_mcp.app import App
from llmc_mcp.config.schema import Config
from llmc_mcp.context import Context
from llmc_mcp.errors import LlmcError
from llmc_mcp.gate.log import correlation_id
from llmc_mcp.session import Session
from llmc_mcp.tools.exec import CommandOutput, run_cmd
from llmc_mcp.tools.linux_ops.changes import linux_fs_undo

from ..shell.copies import Checkout
from ..shell.recorded import PLACE, Run
from .seen import SeenFolder

_SESSION = Session(principal="bench", session_id="bench")


class Replayed(NamedTuple):
    """A command that changed files. `silent`: a difference after the undo that nobody was told of."""

    name: str
    command: str
    files: int
    bytes_before: int
    restored: bool = False
    said: str = ""
    silent: str = ""
    redone: bool = False


def replay(run: Run, checkouts: Path, limit_s: float, environments: Sequence[Path]) -> Iterator[Replayed]:
    """The commands of one run, in their order."""
    with tempfile.TemporaryDirectory(prefix="undo-") as folder:
        place = Path(folder, "testbed")
        checkout = Checkout(checkouts / run.repository, [run.commit], place)
        if not checkout.commits:
            return  # the repository does not have all of it
        checkout.go_to(run.commit)
        config = Config()
        if environments:
            config.sandbox.toolchains = tuple(map(str, environments))
        app = App(config, [str(place)], f"{folder}/data")
        try:
            before = SeenFolder(place)
            for number, recorded in enumerate(run.commands):
                done = _run(app, recorded.replace(PLACE, str(place)), limit_s)
                after = SeenFolder(place, before)
                changed = before.differences(after)
                if changed or before.later(after):
                    name = f"{run.name}#{number}"
                    yield _undone(app, place, (before, after), Replayed(name, recorded, len(changed), 0), done)
                    after = SeenFolder(place, after)
                before = after
        finally:
            app.close()


def _run(app: App, command: str, limit_s: float) -> CommandOutput | LlmcError:
    started = time.monotonic()
    try:
        done = run_cmd(_context(app), command, timeout=limit_s)
        told = [done.meta.undo_id]
        while done.process is not None:
            left = limit_s - (time.monotonic() - started)
            done = run_cmd(_context(app), process=done.process, yield_after=max(left, 0.1), stop=left < 0)
            told.append(done.meta.undo_id)
    except LlmcError as exc:
        return exc
    done.meta.warnings = [*(done.meta.warnings or []), *(f"id {one}" for one in told if one)]
    return done


def _context(app: App) -> Context:
    return Context(app, _SESSION, correlation_id=correlation_id())


def _undone(
    app: App, place: Path, looks: tuple[SeenFolder, SeenFolder], one: Replayed, done: CommandOutput | LlmcError
) -> Replayed:
    before, after = looks
    said = _said(done)
    ids = _ids(done)
    if not ids:
        return one._replace(said=said, silent="" if said else f"no undo_id; {before.differences(after)[:3]}")
    redo: list[str] = []
    try:
        for undo_id in reversed(ids):
            undone = linux_fs_undo(_context(app), undo_id=undo_id).undone
            redo.append(undone[0].redo_id or "")
            said += "".join(f" {row.path}" for row in undone if row.action == "not brought back")
    except LlmcError as exc:
        return one._replace(said=f"{said} {exc.code}: {exc.message}")
    now = SeenFolder(place, after)
    wrong, late = before.differences(now), before.later(now)
    silent = f"differs: {wrong[:3]}" if wrong and not said else f"times: {late[:3]}" if late and not said else ""
    one = one._replace(restored=not wrong and not late, said=said, silent=silent)
    try:
        for undo_id in reversed(redo):
            linux_fs_undo(_context(app), undo_id=undo_id)
    except LlmcError as exc:
        return one._replace(said=f"{said} redo: {exc.message}")
    return one._replace(redone=not after.differences(SeenFolder(place, now)))


def _ids(done: CommandOutput | LlmcError) -> list[str]:
    if isinstance(done, LlmcError):
        words = (done.hint or "").split()
        return [words[words.index("undo_id") + 1]] if "undo_id" in words else []
    return [line[3:] for line in done.meta.warnings or [] if line.startswith("id U_")]


def _said(done: CommandOutput | LlmcError) -> str:
    if isinstance(done, LlmcError):
        return done.hint if "undo: none" in (done.hint or "") and done.hint else ""
    lines = [line for line in done.meta.warnings or [] if line.startswith("Undo does not")]
    return " ".join([*([done.meta.undo] if done.meta.undo else []), *lines])


def safely(run: Run, checkouts: Path, limit_s: float, environments: Sequence[Path]) -> "list[Replayed] | str":
    """A checkout that can't be made must not end the whole run."""
    try:
        return list(replay(run, checkouts, limit_s, environments))
    except subprocess.CalledProcessError as exc:
        return f"{run.name}: {(exc.stderr or b'').decode(errors='replace').strip()[-200:]}"
