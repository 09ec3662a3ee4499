"""Names that the file and search tools keep away from, in one place.

Secret names (`.env`, private keys …) are never read, protected names (`.git/hooks/*`, `.mcp.json` …) never written.
A pattern is a shell glob: one without a slash is about a file's own name, one with a slash about the end of its path.
The lists are the operator's; a command in the sandbox is not bound by them.
"""

import fnmatch
import re
from collections.abc import Iterable
from typing import NamedTuple

from .errors import PermissionDenied

_END = re.compile(r"\)\\[zZ]\Z")  # how fnmatch ends a pattern: by \Z, since Python 3.14 by \z


class NameRules(NamedTuple):
    """A list of globs and the exceptions from it."""

    matching: re.Pattern[str]
    except_for: re.Pattern[str]

    def covers(self, path: str) -> bool:
        """Whether a path (`/` separated) is meant."""
        path = f"/{path.lstrip('/')}"
        return self.matching.search(path) is not None and self.except_for.search(path) is None


def name_rules(patterns: Iterable[str], exceptions: Iterable[str] = ()) -> NameRules:
    """Compile globs."""
    return NameRules(_any_of(patterns), _any_of(exceptions))


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    alternatives = "|".join(_translate(pattern) for pattern in patterns)
    return re.compile(f"/(?:{alternatives})$" if alternatives else r"(?!)")


def _translate(pattern: str) -> str:
    translated = _END.sub("", fnmatch.translate(pattern.strip("/")).removeprefix("(?s:"))
    return translated if "/" in pattern.strip("/") else translated.replace(".*", "[^/]*")


def refuse_secret(asked: str) -> PermissionDenied:
    """What is said when a secret is asked for."""
    return PermissionDenied(
        f"{asked}: its name says that it holds secrets",
        hint="The operator may allow it: mcp.policy.secret_names or mcp.policy.secret_exceptions.",
    )


def refuse_protected(asked: str) -> PermissionDenied:
    """What is said when something protected would be changed."""
    return PermissionDenied(
        f"{asked}: protected, no file tool changes it",
        hint="The list is the operator's: mcp.policy.protected_names.",
    )
