"""How an agent does each task with the peers, in the way that is best with each."""

import re

from .catalog import FORTY, FOUR_HUNDRED, THREE, Scene
from .ours import EDIT, MISS, Steps
from .talk import Talk
from .workspace import MANY, NEW_NAME, OLD_NAME


def _path(scene: Scene, relative: str) -> str:
    return scene.workspace.path(relative)


# --- the reference filesystem server -------------------------------------------------------------------------------


def _fs_edit(change: dict[str, str]) -> Steps:
    edits = [{"oldText": change["old_text"], "newText": change["new_text"]}]
    return lambda talk, scene: talk.call("edit_file", path=_path(scene, "app/settings.py"), edits=edits)


def _fs_change_many(talk: Talk, scene: Scene) -> None:
    for number in range(MANY):
        old = f"    return client.get(url, {OLD_NAME}=3)"
        edits = [{"oldText": old, "newText": old.replace(OLD_NAME, NEW_NAME)}]
        talk.call("edit_file", path=_path(scene, f"app/jobs/job_{number:02d}.py"), edits=edits)


FILESYSTEM: dict[str, Steps] = {
    "read 200 lines": lambda talk, scene: talk.call(
        "read_text_file", path=_path(scene, "django/db/models/base.py"), head=200
    ),
    "last 50 lines of a log": lambda talk, scene: talk.call("read_text_file", path=_path(scene, "server.log"), tail=51),
    "find files by name": lambda talk, scene: talk.call(
        "search_files", path=_path(scene, "django"), pattern="**/*middleware*"
    ),
    "edit": _fs_edit(EDIT),
    "edit, near miss": _fs_edit(MISS),
    "write 40 lines": lambda talk, scene: talk.call("write_file", path=_path(scene, "new.py"), content=FORTY),
    "write 400 lines": lambda talk, scene: talk.call("write_file", path=_path(scene, "new.py"), content=FOUR_HUNDRED),
    "read three files": lambda talk, scene: talk.call(
        "read_multiple_files", paths=[_path(scene, path) for path in THREE]
    ),
    "stat": lambda talk, scene: talk.call("get_file_info", path=_path(scene, "server.log")),
    "change 30 files, one by one": _fs_change_many,
}


# --- Desktop Commander ---------------------------------------------------------------------------------------------


def _search(talk: Talk, scene: Scene, pattern: str, kind: str, **options: object) -> None:
    """A search runs in the background: its first rows come at once, the rest by pages until it is done."""
    reply = talk.call("start_search", path=_path(scene, "django"), pattern=pattern, searchType=kind, **options)
    found = re.search(r"search_\w+", reply)
    if found is None:
        return
    offset = 0
    for _ in range(50):
        reply = talk.call("get_more_search_results", sessionId=found[0], offset=offset, length=100)
        if shown := re.search(r"next: get_more_search_results.*?offset: (\d+)|offset: (\d+)", reply, re.IGNORECASE):
            following = int(shown[1] or shown[2])
            if following > offset:
                offset = following
                continue
        if "COMPLETED" in reply or "isComplete" in reply or "completed" in reply:
            return


def _process(talk: Talk, command: str) -> str:
    """A command, read to its end."""
    reply = talk.call("start_process", command=command, timeout_ms=30_000)
    pid = re.search(r"PID (\d+)", reply)
    if pid and ("running" in reply.lower()) and "finished" not in reply.lower() and "completed" not in reply.lower():
        reply += talk.call("read_process_output", pid=int(pid[1]), timeout_ms=30_000)
    return reply


def _dc_repl(talk: Talk, _: Scene) -> None:
    reply = talk.call("start_process", command="python3 -i", timeout_ms=8_000)
    pid = int(re.findall(r"PID (\d+)", reply)[0])
    talk.call("interact_with_process", pid=pid, input="x = 42", timeout_ms=8_000)
    talk.call("interact_with_process", pid=pid, input="print(x ** 2)", timeout_ms=8_000)
    talk.call("force_terminate", pid=pid)


def _dc_write_long(talk: Talk, scene: Scene) -> None:
    """Its own advice: pieces of at most 30 lines."""
    lines = FOUR_HUNDRED.splitlines(keepends=True)
    for first in range(0, len(lines), 30):
        mode = "append" if first else "rewrite"
        talk.call("write_file", path=_path(scene, "new.py"), content="".join(lines[first : first + 30]), mode=mode)


def _dc_edit(change: dict[str, str]) -> Steps:
    words = {"old_string": change["old_text"], "new_string": change["new_text"]}
    return lambda talk, scene: talk.call("edit_block", file_path=_path(scene, "app/settings.py"), **words)


def _dc_change_many(talk: Talk, scene: Scene) -> None:
    for number in range(MANY):
        path = _path(scene, f"app/jobs/job_{number:02d}.py")
        talk.call("edit_block", file_path=path, old_string=OLD_NAME, new_string=NEW_NAME)


def _dc_concept(talk: Talk, scene: Scene) -> None:
    """As an agent looks for "password hashing with a salt" where only words can be searched for."""
    _search(talk, scene, "hasher", "files")
    _search(talk, scene, "def make_password|class .*PasswordHasher|def salt", "content", contextLines=0)
    talk.call("read_file", path=_path(scene, "django/contrib/auth/hashers.py"), offset=0, length=120)


DESKTOP_COMMANDER: dict[str, Steps] = {
    "read 200 lines": lambda talk, scene: talk.call(
        "read_file", path=_path(scene, "django/db/models/base.py"), offset=0, length=200
    ),
    "last 50 lines of a log": lambda talk, scene: talk.call("read_file", path=_path(scene, "server.log"), offset=-50),
    "tree, two levels": lambda talk, scene: talk.call("list_directory", path=_path(scene, "django"), depth=2),
    "find files by name": lambda talk, scene: _search(talk, scene, "middleware", "files"),
    "search, many hits": lambda talk, scene: _search(talk, scene, "def save\\(", "content"),
    "search, one hit": lambda talk, scene: _search(talk, scene, "class MultiPartParserError", "content"),
    "edit": _dc_edit(EDIT),
    "edit, near miss": _dc_edit(MISS),
    "write 40 lines": lambda talk, scene: talk.call(
        "write_file", path=_path(scene, "new.py"), content=FORTY, mode="rewrite"
    ),
    "write 400 lines": _dc_write_long,
    "5,000-line test run": lambda talk, scene: _process(talk, f"cd {scene.workspace.root} && python3 run_tests.py"),
    "ls -R": lambda talk, scene: _process(talk, f"ls -R {scene.workspace.root}"),
    "REPL, three steps": _dc_repl,
    "which process is it": lambda talk, _: talk.call("list_processes"),
    "kill a process": lambda talk, scene: talk.call("kill_process", pid=scene.pid),
    "state of the machine": lambda talk, _: talk.call("get_config"),
    "where is a concept": _dc_concept,
    "read three files": lambda talk, scene: talk.call(
        "read_multiple_files", paths=[_path(scene, path) for path in THREE]
    ),
    "stat": lambda talk, scene: talk.call("get_file_info", path=_path(scene, "server.log")),
    "change 30 files, one by one": _dc_change_many,
    "change 30 files by a command": lambda talk, scene: _process(
        talk, f"sed -i 's/{OLD_NAME}/{NEW_NAME}/' {scene.workspace.root}/app/jobs/job_*.py"
    ),
}
