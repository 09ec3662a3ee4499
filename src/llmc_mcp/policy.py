"""File names that the file and search tools refuse, and what counts as inside a folder.

Secret names (`.env`, private keys …) are never read, protected names (`.git`, `.mcp.json` …) never written.
A pattern is a shell glob: one without a slash is about a file's own name, one with a slash about the end of its path.
The lists are the operator's; a command in the sandbox is not bound by them, but what it changes of the protected names
is reported.
"""

import fnmatch
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from .errors import PermissionDenied

# The file in a project in which each client of `llmc install` finds the servers to start.
CLIENT_FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "zed": ".zed/settings.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
    "copilot": ".github/mcp.json",
    "roo": ".roo/mcp.json",
    "junie": ".junie/mcp/mcp.json",
    "amazon-q": ".amazonq/mcp.json",
    "continue": ".continue/mcpServers/llmc.json",
}
# Files that make another program run something. A folder that is protected as a whole is listed itself too: otherwise
# a link could take its place. HEAD is what makes a folder a repository, whatever the folder's name.
PROTECTED_NAMES = (
    *(".git", ".git/*", "*.git/config", "*.git/commondir", "*.git/hooks", "*.git/hooks/*"),  # x.git: a bare repository
    *("HEAD", ".gitmodules", ".gitconfig", ".config/git/config"),
    *("llmc.toml", *CLIENT_FILES.values()),
    *(".claude/settings.json", ".claude/settings.local.json", ".claude/hooks", ".claude/hooks/*"),
    *(".kilocode/mcp.json", ".continue/mcpServers", ".continue/mcpServers/*", "opencode.jsonc"),
    *(".codex", ".codex/*", ".cursor", ".cursor/*", ".windsurf", ".windsurf/*", ".zed", ".zed/*"),
    *(".vscode", ".vscode/*", "*.code-workspace", ".idea", ".idea/*"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".config/fish", ".config/fish/*"),
    *(".envrc", ".direnvrc", ".config/direnv/direnvrc", ".xprofile", ".xinitrc", ".xsessionrc"),
    *(".config/autostart", ".config/autostart/*", ".config/systemd", ".config/systemd/*"),
    *(".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".config/nvim/init.lua", ".config/nvim/init.vim"),
    *(".emacs", ".emacs.d/init.el", ".dir-locals.el", ".gdbinit", ".lldbinit"),
    *(".ssh/authorized_keys", ".ssh/config", ".ssh/rc"),
)
_GIT_FOLDER = ".git/*"
# The files in it that configure git; the rest changes with every commit.
_GIT_OBEYS = (".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks")
_GIT_HOOKS = ".git/hooks"
# The same of a folder with a HEAD in it that is not called .git: a bare repository, or one kept apart from its files.
GIT_FILES = frozenset((b"config", b"config.worktree", b"commondir", b"hooks"))
GIT_FOLDERS = frozenset((b"hooks", b"modules", b"worktrees"))
_WILD = frozenset("*?[")

_END = re.compile(r"\)\\[zZ]\Z")  # how fnmatch ends a pattern: by \Z, since Python 3.14 by \z


class NameRules(NamedTuple):
    """A list of globs and the exceptions from it."""

    matching: re.Pattern[str]
    except_for: re.Pattern[str]

    def covers(self, path: str) -> bool:
        """Whether the rules apply to a path (separated by `/`)."""
        path = f"/{path.lstrip('/')}"
        return self.matching.search(path) is not None and self.except_for.search(path) is None


def name_rules(patterns: Iterable[str], exceptions: Iterable[str] = ()) -> NameRules:
    """Compile globs."""
    return NameRules(_any_of(patterns), _any_of(exceptions))


def folders_above(patterns: Iterable[str]) -> list[str]:
    """The folders that patterns with a slash name: whatever leads there in their place leads to other files."""
    found: dict[str, None] = {}
    for pattern in patterns:
        head = pattern.strip("/").rpartition("/")[0]
        while head:
            found[head] = None
            head = head.rpartition("/")[0]
    return list(found)


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both are real paths. The only definition of that in the package."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_below_any(path: str, folders: Iterable[str]) -> bool:
    """Whether one of the folders is `path` or holds it."""
    return any(is_below(path, folder) for folder in folders)


def is_broad(folder: str) -> bool:
    """Whether a folder is a whole home directory or holds one, as `/` does."""
    return bool(folder) and is_below(os.path.realpath(os.path.expanduser("~")), os.path.realpath(folder))


def project_of(folder: str) -> str:
    """The repository that contains a folder, else the folder itself; a whole home directory is not taken for one."""
    here = above = os.path.realpath(folder)
    while not is_broad(above):
        if os.path.exists(os.path.join(above, ".git")):
            return above
        above = os.path.dirname(above)
    return here


def watchable(patterns: Iterable[str]) -> tuple[list[str], list[str]]:
    """The files and the folders right below a directory that patterns name; those with a wildcard name none."""
    files: dict[str, None] = {}
    folders: dict[str, None] = {}
    for pattern in (pattern.strip("/") for pattern in patterns):
        if pattern == _GIT_FOLDER:
            files.update(dict.fromkeys(_GIT_OBEYS))
            folders[_GIT_HOOKS] = None
        elif not _WILD & set(pattern):
            files[pattern] = None
        elif pattern.endswith("/*") and not _WILD & set(pattern[:-2]):
            folders[pattern[:-2]] = None
    return list(files), list(folders)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    alternatives = "|".join(_translate(pattern) for pattern in patterns)
    return re.compile(f"/(?:{alternatives})$" if alternatives else r"(?!)")


def _translate(pattern: str) -> str:
    translated = _END.sub("", fnmatch.translate(pattern.strip("/")).removeprefix("(?s:"))
    return translated if "/" in pattern.strip("/") else translated.replace(".*", "[^/]*")


def refuse_secret(path: str) -> PermissionDenied:
    """The error for reading a file with a secret name."""
    return PermissionDenied(
        f"{path}: its name says that it holds secrets",
        hint="The operator may allow it: mcp.policy.secret_names or mcp.policy.secret_exceptions.",
    )


def refuse_protected(path: str) -> PermissionDenied:
    """The error for changing a protected file."""
    return PermissionDenied(
        f"{path}: protected, no file tool changes it",
        hint="The list is the operator's: mcp.policy.protected_names.",
    )
