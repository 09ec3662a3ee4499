"""What commands need to act for a person: a session, a gate without an agent's limits, the folder that is meant."""

import os
import re
import sys

from ..app import App
from ..config.load import load
from ..context import Context
from ..errors import InvalidArgument, LlmcError
from ..files import names
from ..gate.catalog import Catalog
from ..gate.dispatch import Gate
from ..gate.log import Log, correlation_id
from ..policy import is_broad, project_of
from ..session import PERSON, Session
from ..store.data_dir import data_directory

_TIME_S = 600.0  # a first index of a large repository


def session() -> Session:
    """The session of this process."""
    return Session(principal=f"uid:{os.getuid()}", session_id=f"llmc-{os.getpid()}", agent_id=PERSON)


def gate_on(folder: str) -> Gate:
    """The way to the tools, on a folder that the person named. Limits that protect an agent's context do not apply."""
    loaded = load()
    config = loaded.config
    config.policy.rules, config.policy.ask = (), ()  # they are about agents
    config.rag.jit_context_enabled = True
    config.rag.roots = (shown(folder),)
    config.tools.read_timeout = config.linux_ops.process_limits.max_timeout_sec = _TIME_S
    config.limits.max_reply_bytes_cap = 1 << 30
    log = Log(enabled=True, level="error", log_format="text", with_ids=True)
    return Gate(App(config, [folder], loaded.data_dir, loaded.files, loaded.trusted_files), Catalog(config), log)


def context(gate: Gate) -> Context:
    """One call of this process."""
    return gate.context(session(), correlation_id())


def never() -> None:
    """The cancellation check of a person's call: never cancelled, a person presses ^C."""


def shown(path: str) -> str:
    """A path as people and agents see it: one line, whatever its name holds."""
    return names.show(os.fsencode(path))


def path_of(text: str) -> str:
    """The path that `shown` gives a text for; the text itself where it stands for none."""
    try:
        return os.fsdecode(names.parse(text))
    except LlmcError:
        return text


def indexed_folder(folder: str, *, named: bool = False) -> str:
    """The folder whose index is meant: the repository that contains a folder, else the folder itself.

    A whole machine or home directory is indexed only if the person named it, or says yes on a terminal.
    """
    from ..rag.store.layout import home_of

    if not os.path.isdir(folder):
        meant = path_of(folder)  # a folder that has this very name comes first
        if not os.path.isdir(meant):
            raise InvalidArgument(f"{shown(folder)}: not a folder")
        folder = meant
    project = project_of(folder)
    is_repository = os.path.exists(os.path.join(project, ".git"))
    is_indexed = home_of(data_directory(), os.fsencode(project)).current() is not None
    if is_broad(project) and not (named or is_repository or is_indexed or _says_yes(project)):
        raise InvalidArgument(
            f"{shown(project)} is not a repository, and too large to index unless you name it",
            hint=f"Go to the folder of a project first, or name this one: llmc index {shown(project)}.",
        )
    return project


def _says_yes(folder: str) -> bool:
    """Whether the person at the terminal wants all of a folder indexed; nobody is asked elsewhere."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(
        f"{shown(folder)} is not a repository: index everything below it? That may take long. [y/N] ",
        end="",
        file=sys.stderr,
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# What tools tell an agent, as a person does it.
_IN_OTHER_WORDS = (
    (re.compile(r"linux_fs_changes\(session='all'\)"), "llmc changes --all"),
    (re.compile(r"linux_fs_changes"), "llmc changes"),
    (re.compile(r"undo_id=(U_\w+)"), r"llmc undo \1"),
    (re.compile(r", or force=\[paths\]"), ""),
    (re.compile(r"force=true"), "--force"),
    (re.compile(r"rag_index\(path=([^)]+)\)"), r"llmc index \1"),
    (re.compile(r"rag_search"), "llmc search"),
    (re.compile(r"linux_search_content"), "rg"),
)


def for_people(hint: str) -> str:
    """A hint that was written for an agent, with the commands that a person has."""
    for pattern, words in _IN_OTHER_WORDS:
        hint = pattern.sub(words, hint)
    return hint
