"""How an agent does each task with our server: in hybrid mode by the listed tools, or in code where that is natural."""

import json
from collections.abc import Callable

from ..client import Client, ClientError
from .catalog import FORTY, FOUR_HUNDRED, THREE, Scene
from .talk import Talk
from .workspace import NEW_NAME, OLD_NAME

Steps = Callable[[Talk, Scene], object]

_SLOW = "    if request.is_slow:\n"
EDIT = {"old_text": f"{_SLOW}        return 30", "new_text": f"{_SLOW}        return 45"}
MISS = {"old_text": f"{_SLOW}      return 30\n", "new_text": f"{_SLOW}      return 45\n"}


def build_index(client: Client) -> None:
    """Before anything is measured: searches of code build the index when they are first asked, once per folder."""
    for _ in range(20):
        try:
            client.call("rag_index", {})
            return
        except ClientError as exc:  # a build that takes longer than a call goes on by itself
            if "RESOURCE_BUSY" not in str(exc):
                raise


def one_call(tool: str, **arguments: object) -> Steps:
    return lambda talk, _: talk.call(tool, **arguments)


def _code(*lines: str) -> Steps:
    return one_call("execute_code", code="\n".join(lines))


def _hits(pattern: str) -> Steps:
    return _code(
        f"for h in linux_search_content('django', {pattern!r}, context_lines=0)['hits']:",
        "    print(h['path'], h['line'], h['snippet'])",
    )


# What both modes do alike.
_SHARED: dict[str, Steps] = {
    "read 200 lines": one_call("read_file", path="django/db/models/base.py", max_lines=200),
    "last 50 lines of a log": one_call("read_file", path="server.log", offset_lines=-50),
    "tree, two levels": one_call("list_dir", path="django", depth=2),
    "edit": one_call("linux_fs_edit", path="app/settings.py", **EDIT),
    "edit, near miss": one_call("linux_fs_edit", path="app/settings.py", **MISS),
    "write 40 lines": one_call("linux_fs_write", path="new.py", content=FORTY),
    "write 400 lines": one_call("linux_fs_write", path="new.py", content=FOUR_HUNDRED),
    "5,000-line test run": one_call("run_cmd", command="python3 run_tests.py"),
    "ls -R": one_call("run_cmd", command="ls -R"),
    "change 30 files, one by one": _code(
        "for file in linux_search_files('app/jobs', 'job_')['hits']:",
        f"    linux_fs_edit(file['path'], '{OLD_NAME}', '{NEW_NAME}')",
    ),
    "change 30 files by a command": one_call(
        "run_cmd", command=f"bash -c \"sed -i 's/{OLD_NAME}/{NEW_NAME}/' app/jobs/job_*.py\""
    ),
}

HYBRID: dict[str, Steps] = {
    **_SHARED,
    "find files by name": _code("for h in linux_search_files('django', 'middleware')['hits']: print(h['path'])"),
    "search, many hits": _hits("def save\\("),
    "search, one hit": _hits("class MultiPartParserError"),
    "REPL, three steps": _code(
        "p = linux_proc_start('python3')['proc_id']",
        "linux_proc_send(p, 'x = 42', 500)",
        "print(linux_proc_send(p, 'print(x ** 2)', 500)['output'])",
        "linux_proc_stop(p)",
    ),
    "which process is it": _code("print(linux_proc_list(name='benchmark-marker')['processes'])"),
    "kill a process": lambda talk, scene: talk.call("execute_code", code=f"linux_proc_kill({scene.pid})"),
    "state of the machine": _code("print(linux_sys_snapshot()['short_summary'])"),
    "where is a concept": _code(
        "for s in rag_search('password hashing with a salt')['snippets']: print(s['src'], s['text'])"
    ),
    "read three files": _code(f"for f in linux_fs_read_many({list(THREE)})['files']: print(f['content'])"),
    "stat": _code("print(stat('server.log')['data'])"),
}


def _repl(talk: Talk, _: Scene) -> None:
    process = json.loads(talk.call("linux_proc_start", command="python3"))["proc_id"]
    talk.call("linux_proc_send", proc_id=process, input="x = 42", read_timeout_ms=500)
    talk.call("linux_proc_send", proc_id=process, input="print(x ** 2)", read_timeout_ms=500)
    talk.call("linux_proc_stop", proc_id=process)


def _search(pattern: str) -> Steps:
    return one_call("linux_search_content", root="django", pattern=pattern, context_lines=0)


CLASSIC: dict[str, Steps] = {
    **_SHARED,
    "find files by name": one_call("linux_search_files", root="django", pattern="middleware"),
    "search, many hits": _search("def save\\("),
    "search, one hit": _search("class MultiPartParserError"),
    "REPL, three steps": _repl,
    "which process is it": one_call("linux_proc_list", name="benchmark-marker"),
    "kill a process": lambda talk, scene: talk.call("linux_proc_kill", pid=scene.pid),
    "state of the machine": one_call("linux_sys_snapshot"),
    "where is a concept": one_call("rag_search", query="password hashing with a salt"),
    "read three files": one_call("linux_fs_read_many", paths=list(THREE)),
    "stat": one_call("stat", path="server.log"),
}
