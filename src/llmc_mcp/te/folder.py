"""The root set of `te`: the repository around the current folder or, outside of one, the folder.

An agent's `te` reads what was kept there or further down. A person's (no TE_AGENT_ID) also reads what was kept in a
folder further up, as a person who changed into a subfolder expects; neither reads what was kept beside it. That keeps
projects apart; it is no boundary against whoever may read the data directory itself.
"""

import os

from ..store.root_sets import RootSet


def root_set(*, from_above: bool = False) -> RootSet:
    """The root set of a command in the current folder; empty where the folder was removed."""
    try:
        here = os.getcwd()
    except OSError:
        return RootSet([])
    return RootSet([_shown(_repository_of(here))], from_above=from_above)


def reader() -> RootSet:
    """The root set for reading handles and statistics."""
    return root_set(from_above=not os.environ.get("TE_AGENT_ID"))


def _repository_of(folder: str) -> str:
    """The repository's top, or the folder itself. A home directory under version control does not count."""
    home = os.path.realpath(os.path.expanduser("~"))
    at = folder
    while at not in (home, "/"):
        if os.path.lexists(os.path.join(at, ".git")):
            return at
        at = os.path.dirname(at)
    return folder


def _shown(path: str) -> str:
    if path.isascii() and path.isprintable() and "\\" not in path:
        return path
    from ..files import names  # needs regular expressions, which running a command does not

    return names.show(os.fsencode(path))
