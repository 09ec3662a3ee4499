"""Which folder to serve to a client that does not start servers in a project: ask, or refuse; never guess."""

import os
import sys

from ...errors import InvalidArgument
from ...policy import is_broad
from ..terminal import ask, has_person
from .clients import Client

_TRIES = 3


def roots_asked_for(client: Client) -> list[str]:
    """The folder that the person names; refused where nobody can be asked."""
    if not has_person():
        raise InvalidArgument(
            "it does not start servers in a project; which folder shall it work in?",
            hint=f"Name it: llmc install {client.name} --root DIR.",
        )
    offered = os.getcwd() if _may_be_offered(os.getcwd()) else ""
    for _ in range(_TRIES):
        typed = ask(f"Which folder shall {client.title} work in?" + (f" [{offered}]" if offered else ""))
        answer = os.path.abspath(os.path.expanduser(typed)) if typed else offered
        if answer and os.path.isdir(answer):
            return [answer]
        print(f"{answer}: no such folder" if answer else "Name a folder, or press ^C.", file=sys.stderr)
    raise InvalidArgument("no folder was named", hint=f"llmc install {client.name} --root DIR names it.")


def _may_be_offered(folder: str) -> bool:
    """Not a whole home, and not the folder that holds the server's own code."""
    real = os.path.realpath(folder)
    own = os.path.realpath(os.path.dirname(sys.executable))
    return not is_broad(real) and os.path.commonpath([real, own]) != real
