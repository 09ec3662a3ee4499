"""Which folders are indexed.

An ordinary root is, as a whole. A home directory or the root `/` is not: of those, the project in which the server was
started is indexed, or what the setting `mcp.rag.roots` names, and more where a client asks for it.
"""

import os
from collections.abc import Iterable

from ...errors import FeatureUnavailable, InvalidArgument
from ...files.filesystem import Filesystem, Place, Root
from ...kernel import syscalls
from ...policy import is_below, is_broad, project_of

HOW_TO_INDEX = "rag_index(path=FOLDER) indexes a folder; the setting mcp.rag.roots names folders for every start."


def indexed_roots(files: Filesystem, configured: Iterable[str], working_directory: str) -> list[Root]:
    """The folders to index, as roots of their own; none lies in another."""
    named = [root_at(files, files.locate(os.path.abspath(os.path.expanduser(path)))) for path in configured]
    chosen = named or [root for root in files.roots if not is_broad(os.fsdecode(root.real))]
    if not named and working_directory:
        project = project_of(working_directory)
        broad = [os.fsdecode(root.real) for root in files.roots if root not in chosen]
        if not is_broad(project) and any(is_below(project, root) for root in broad):
            chosen.append(root_at(files, files.locate(project)))
    return [root for root in dict.fromkeys(chosen) if not any(is_inside(root, other) for other in chosen)]


def root_at(files: Filesystem, place: Place) -> Root:
    """A folder below the roots as a root of its own."""
    fd = files.open(place, syscalls.O_PATH | os.O_DIRECTORY)
    real = os.readlink(b"/proc/self/fd/%d" % fd)
    known = next((root for root in files.roots if root.real == real), None)
    if known is not None:
        os.close(fd)
        return known
    return Root(fd, os.path.normpath(os.path.join(place.root.path, place.below)), real)


def is_inside(root: Root, other: Root) -> bool:
    """Whether a root lies in another one."""
    return root.real != other.real and is_below(os.fsdecode(root.real), os.fsdecode(other.real))


def refuse_broad(root: Root) -> None:
    """Refuse to index a whole machine or home directory because a client asks for it."""
    if is_broad(os.fsdecode(root.real)):
        raise InvalidArgument(
            f"{root.shown} is too much to index",
            hint="Name the folder of a project; the operator may index more with the setting mcp.rag.roots.",
        )


def nothing_indexed(files: Filesystem) -> FeatureUnavailable:
    """The error of a query where there is no project to index."""
    roots = ", ".join(root.shown for root in files.roots)
    return FeatureUnavailable(
        f"no folder is indexed: {roots} is too much, and the server was not started in a project", hint=HOW_TO_INDEX
    )
