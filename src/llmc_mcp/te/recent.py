"""The session's recent commands, by their names: what a text is likely read for.

They are kept where nothing reaches a disk: in the user's runtime directory (XDG_RUNTIME_DIR, a tmpfs), in one small
file per TE_SESSION_ID. Without either, every command stands alone.
"""

import os

_COMMANDS = 5
_LONGEST = 1_000  # characters of a command that are remembered as names


def lines() -> list[str]:
    """The names of the commands before this one, the oldest first; a line for each."""
    path = _file()
    if not path:
        return []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(fd, _COMMANDS * (_LONGEST + 1)).decode("utf-8", "replace").splitlines()
    finally:
        os.close(fd)


def remember(command: str) -> None:
    """Add a command; nothing depends on whether that works."""
    path = _file()
    if not path:
        return
    from ..envelope.names import names_in

    names = b" ".join(names_in(command[:_LONGEST].encode("utf-8", "replace"))).decode()
    kept = [*lines(), names][-_COMMANDS:]
    new = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, "\n".join(kept).encode())
        finally:
            os.close(fd)
        os.replace(new, path)
    except OSError:
        return


def _file() -> str:
    session, folder = os.environ.get("TE_SESSION_ID", ""), os.environ.get("XDG_RUNTIME_DIR", "")
    if not session or not os.path.isabs(folder):
        return ""
    try:
        if os.stat(folder).st_uid != os.getuid():
            return ""
    except OSError:
        return ""
    from hashlib import sha256

    agent = os.environ.get("TE_AGENT_ID", "")
    return os.path.join(folder, "llmc-te", sha256(f"{agent}\0{session}".encode("utf-8", "replace")).hexdigest()[:32])
