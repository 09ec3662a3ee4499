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
_LONGEST_HEAD = 8_192
_STAT = b"core.checkStat=minimal"  # owners differ in a sandbox: git would read every file again
_MARK = b"\1\n"  # between what git diff and git ls-files print
# Both scripts get the number of their words, the words, and how git is called.
_CHANGED = """
shift; revision=$1; shift
commit=$("$@" rev-parse --verify --quiet "$revision^{commit}") || exit 1
echo "$commit"
"$@" diff --name-status --no-renames --relative -z "$commit" -- || exit 1
printf '\\1\\n'
exec "$@" ls-files --others --exclude-standard -z
"""
_CONTENTS = """
count=$1; shift
while [ "$count" -gt 0 ]; do list="$list$1
"; shift; count=$((count - 1)); done
printf %s "$list" | exec "$@" cat-file --batch
"""


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
        printed = self._run(_CHANGED, [revision], check)
        if printed is None:
            raise NotFound(f"there is no commit {revision} here", hint='since="session" needs none.')
        name, _, rest = printed.partition(b"\n")
        listed, _, others = rest.partition(_MARK)
        words, commit = listed.split(b"\0"), name.decode()
        changed = {os.fsdecode(path): status for status, path in zip(words[::2], words[1::2], strict=False)}
        new = others.split(b"\0")
        found = {path: status for path, status in changed.items() if status != b"D"}
        found |= {os.fsdecode(path): b"A" for path in new if path}
        found = {path: status for path, status in found.items() if wanted(path)}
        if len(found) > _MOST_FILES:
            raise TooLarge(f"{len(found):,} files differ from {revision}", hint="Name some of them: paths.")
        known = [path for path, status in found.items() if status != b"A" and "\n" not in path]
        texts: dict[str, bytes | None] = dict.fromkeys(found) | self._texts(commit, known, check)
        return Baseline(commit[:10], texts, commit)

    def _texts(self, commit: str, paths: list[str], check: Callable[[], None]) -> dict[str, bytes | None]:
        """The files of a commit: git prints `id blob size`, the content and a newline for each."""
        found: dict[str, bytes | None] = {}
        printed = self._run(_CONTENTS, [f"{commit}:./{path}" for path in paths], check) if paths else b""
        at = 0
        for path in paths:
            head, _, _ = (printed or b"")[at : at + _LONGEST_HEAD].partition(b"\n")
            words = head.split(b" ")
            size = int(words[2]) if len(words) == 3 and words[1] == b"blob" else -1
            at += len(head) + 1
            found[path] = None if size < 0 or printed is None else printed[at : at + size]
            at += size + 1 if size >= 0 else 0
        return found

    def _run(self, script: str, words: list[str], check: Callable[[], None]) -> bytes | None:
        """What a script with git prints; None if it fails. One script costs one sandbox."""
        settings = [part for setting in (*QUIET, _STAT) for part in (b"-c", setting)]
        git = [os.fsencode(self._programs.locate("git", "/")), b"--no-pager", *settings]
        level = self._sandbox.another(read_only=True)
        printed = bytearray()
        try:
            argv = [os.fsencode(self._programs.locate("sh", "/")), b"-c", script.encode(), b"sh", b"%d" % len(words)]
            argv += [*map(os.fsencode, words), *git]
            with self._sandbox.start(argv, self._root.fd, env=ENVIRONMENT, level=level) as child:
                for piece in child.output(check):
                    printed += piece
                    if len(printed) > _MOST_BYTES:
                        raise TooLarge("a commit is too large to compare with")
                return bytes(printed) if child.exit_code == 0 else None
        finally:
            level.close()
