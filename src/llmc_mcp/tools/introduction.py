"""What the server tells a model about itself, made from what is in force: it never names a tool that isn't there."""

from .. import __version__
from ..app import App
from ..context import Toolbox

# Intent → the tools for it, best first; a line is shown with those of them that a client can call.
_INTENTS = (
    ("read, tail, page a file or handle", ("read_file",)),
    ("look around", ("list_dir", "linux_fs_list")),
    ("find text or files", ("linux_search_content", "linux_search_files")),
    ("find code by what it does, who uses it", ("rag_search", "rag_where_used", "inspect")),
    ("create or rewrite a file", ("linux_fs_write",)),
    ("change a part, rename", ("linux_fs_edit", "linux_fs_apply_diff", "code_edit")),
    ("move, delete, undo, review changes", ("linux_fs_move", "linux_fs_delete", "linux_fs_undo", "linux_fs_changes")),
    ("run a command or the tests", ("run_cmd", "run_pytest")),
    ("talk to a REPL or debugger", ("linux_proc_start", "linux_proc_send", "linux_proc_read", "linux_proc_stop")),
    ("processes, state of the machine", ("linux_proc_list", "linux_proc_kill", "linux_sys_snapshot")),
    ("many steps, loops, filters", ("execute_code",)),
)

_REPLIES = {
    True: "Replies: a line of JSON about the body, then the body. A cut one has next_offset or a handle for read_file.",
    False: "Replies: one JSON object. A cut one says truncated, with next_offset or a handle for linux_handle_read.",
}


def instructions(app: App, toolbox: Toolbox) -> str:
    """For the handshake: at most 400 characters, whatever the roots are called."""
    listed = {tool.name for tool in toolbox.listed}
    text = f"Work on Linux below {app.files.roots[0].shown[:120]}; relative paths start there."
    if "execute_code" in listed and len(toolbox.tools) > len(listed):
        text += " execute_code has every tool as a Python function: tools() lists them."
    return f"{text} 00_INIT explains." if "00_INIT" in listed else text


def bootstrap(app: App, toolbox: Toolbox) -> str:
    """What 00_INIT says."""
    listed = {tool.name for tool in toolbox.listed}
    in_code = "execute_code" in listed
    roots = ", ".join(root.shown for root in app.files.roots[:5])
    lines = [
        f"LLMC MCP {__version__}, {app.config.mode} mode. Roots: {roots}. Relative paths start at the first.",
        f"Commands: {'; '.join(part for part in (app.command_confinement(), app.command_terms()) if part)}.",
        _REPLIES[app.config.lean_replies()],
        "Errors: code, message, hint: follow it.",
    ]
    for intent, names in _INTENTS:
        direct = [name for name in names if name in listed]
        nested = [name for name in names if name not in listed and name in toolbox.tools and in_code]
        if direct or nested:
            lines.append(f"- {intent}: {', '.join([*direct, *(f'{name}*' for name in nested)])}")
    if in_code:
        lines.append(
            "* a function in execute_code, as all tools are; results are dicts: read_file('a.txt')['data']. tools() "
            "lists, help(name) explains. What code writes by itself is ephemeral: persist it with a tool."
        )
    return "\n".join(lines)
