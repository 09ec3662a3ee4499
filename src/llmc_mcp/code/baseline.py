"""What a project was before: at a commit, or when a session began; and which files differ from that."""

import os
from collections.abc import Callable
from typing import NamedTuple

from ..commands.allowlist import Programs
from ..commands.git_log import ENVIRONMENT, QUIET
from ..errors import InvalidArgument, NotFound, TooLarge
from ..files.filesystem import Root
from ..sandbox.sandbox import Sandbox

_MOST_BYTES = 32 << 20
_MOST_FILES = 200


class Baseline(NamedTuple):
    """The former texts of the files that have changed; None for a file that is new."""

    name: str
    files: dict[str, bytes | None]  # by path below the project
    commit: str = ""  # if it is one


class GitBaseline:
    """Reads commits by git, in a sandbox that allows no changes."""

    def __init__(self, sandbox: Sandbox, programs: Programs, root: Root) -> None:
        self._sandbox, self._programs, self._root = sandbox, programs, root

    def at(self, revision: str, wanted: Callable[[str], bool], check: Callable[[], None]) -> Baseline:
        """The files below the project that differ from a commit."""
        if revision.startswith("-"):
            raise InvalidArgument(f"{revision!r} is no revision")
        commit = self._git(["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], check)
        if commit is None:
            raise NotFound(f"there is no commit {revision} here", hint='since="session" needs none.')
        name = commit.decode().strip()
        listed = self._git(["diff", "--name-status", "--no-renames", "--relative", "-z", name, "--"], check) or b""
        words = listed.split(b"\0")
        changed = {os.fsdecode(path): status for status, path in zip(words[::2], words[1::2], strict=False)}
        new = (self._git(["ls-files", "--others", "--exclude-standard", "-z"], check) or b"").split(b"\0")
        found = {path: status for path, status in changed.items() if status != b"D"}
        found |= {os.fsdecode(path): b"A" for path in new if path}
        found = {path: status for path, status in found.items() if wanted(path)}
        if len(found) > _MOST_FILES:
            raise TooLarge(f"{len(found):,} files differ from {revision}", hint="Name some of them: paths.")
        texts = {path: None if status == b"A" else self._text(name, path, check) for path, status in found.items()}
        return Baseline(name[:10], texts, name)

    def _text(self, commit: str, path: str, check: Callable[[], None]) -> bytes | None:
        return self._git(["cat-file", "blob", f"{commit}:./{path}"], check)

    def _git(self, words: list[str], check: Callable[[], None]) -> bytes | None:
        """What git prints; None if it fails."""
        settings = [part for setting in QUIET for part in (b"-c", setting)]
        program = os.fsencode(self._programs.locate("git", "/"))
        level = self._sandbox.another(read_only=True)
        printed = bytearray()
        try:
            argv = [program, b"--no-pager", *settings, *map(os.fsencode, words)]
            with self._sandbox.start(argv, self._root.fd, env=ENVIRONMENT, level=level) as child:
                for piece in child.output(check):
                    printed += piece
                    if len(printed) > _MOST_BYTES:
                        raise TooLarge("a commit is too large to compare with")
                return bytes(printed) if child.exit_code == 0 else None
        finally:
            level.close()
