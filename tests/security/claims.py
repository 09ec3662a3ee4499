"""DOCS/security.md, made from what is claimed and the tests that show it.

    python -m tests.security.claims > DOCS/security.md

A claim without a test, a test of an attack without a claim, or a stale page fails `test_b_claims.py`.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "DOCS" / "security.md"


class Claim(NamedTuple):
    """One attack and what each level promises against it; a promise that begins with `not:` is none."""

    attack: str
    workspace: str
    landlock: str


_SAME = "same"
_NO_LIST = "not offered: commands have no network, and it is said"

CLAIMS: dict[str, Claim] = {
    "B01": Claim(
        "an allowed program runs another or writes by itself (130 ways: find -exec, git aliases and hooks, tar, awk, "
        "make, env, ld.so, interpreters …)",
        "no effect outside the roots",
        _SAME,
    ),
    "B02": Claim("a program under another's name, or first in PATH", "the list compares device and inode", _SAME),
    "B03": Claim("a program swapped between check and start", "whatever starts is in the sandbox", _SAME),
    "B04": Claim("LD_PRELOAD, BASH_ENV, GIT_* … in the server's environment", "built from nothing", _SAME),
    "B05": Claim("shell metacharacters in arguments", "plain text; a shell runs only as the first word", _SAME),
    "B06": Claim("NUL, 3 MB of arguments, none at all", "BAD_ARGS (also past 8,900 words)", "BAD_ARGS"),
    "B07": Claim(
        "writes outside: files, links, renames, modes, times, attributes",
        "none of it",
        "contents, names, links and extended attributes: none. not: mode, times and owner of files that the user owns",
    ),
    "B08": Claim(
        "reads outside: ~/.ssh, ~/.aws, /etc/shadow, the server's data",
        "not there",
        "contents and listings: none. not: whether a known path exists, its size and times (stat), where a link leads",
    ),
    "B09": Claim(
        "network while it is off: TCP, UDP, ICMP, raw, vsock, DNS, unix sockets",
        "an empty network of its own; loopback inside works",
        "no socket can be made, so servers on loopback inside do not work either",
    ),
    "B11": Claim(
        "the server's memory, environment, limits, or life",
        "in another world of processes",
        "denied; signals to outside need Linux 6.12",
    ),
    "B12": Claim(
        "as root: kernel settings, devices, capabilities",
        "no capabilities, another uid, /proc/sys read-only",
        "not as root: commands run as mcp.sandbox.run_as; /proc and /sys out of reach",
    ),
    "B13": Claim(
        "namespaces, mount, io_uring, bpf, keyctl, userfaultfd, perf, TIOCSTI, x32 and 32-bit calls",
        "refused by seccomp",
        _SAME,
    ),
    "B14": Claim("set-uid programs", "gain nothing (no_new_privs)", _SAME),
    "B15": Claim("inherited descriptors", "only 0, 1 and 2", _SAME),
    "B16": Claim("the protocol's stdin and stdout", "not reachable; input is empty unless given", _SAME),
    "B17": Claim("a working directory outside, removed, or swapped", "refused; by descriptor", _SAME),
    "B18": Claim("no bubblewrap, no user namespaces, no Landlock", "the next level, or no commands; said", _SAME),
    "B19": Claim("env, shell or disable_sandbox as arguments", "BAD_ARGS", _SAME),
    "B20": Claim("a sandbox that does not hold", "fails its self-test: FEATURE_UNAVAILABLE", _SAME),
    "B21": Claim("a link in the root that bubblewrap would follow (CVE-2026-87766)", "nothing made outside", _SAME),
    "B22": Claim("a poisoned .git/config, hook, .envrc, .mcp.json", "allowed in the roots, and reported", _SAME),
    "B23": Claim("docker.sock and other sockets in the file system", "not there", "no socket can be made"),
    "B25": Claim(
        "a command that prints what bubblewrap prints when it fails",
        "not believed: only bubblewrap can say so, on a descriptor that nothing inside has",
        "nothing printed counts",
    ),
    "B26": Claim(
        "a level that is made to fail, or whose self-test is made to time out, so that a weaker one is taken",
        "FEATURE_UNAVAILABLE, or RESOURCE_BUSY where it could not be tested; never less than has held since the "
        "machine was started",
        _SAME,
    ),
    "B27": Claim(
        "a program made to run as its owner (set-uid), a server of root's without bubblewrap",
        "the set-uid bit, for root also the set-gid bit, can't be set. not: set-gid by an ordinary user",
        "the set-uid bit can't be set; refused as root without mcp.sandbox.run_as. not: set-gid",
    ),
    "B29": Claim(
        "a path outside, a link to one, or a pipe as the program to run",
        "the same answer whether or not it exists; nothing waits for a pipe",
        _SAME,
    ),
    "B31": Claim(
        "what no path leads to: inotify, System V IPC, message queues, attributes, priority and scheduling of others",
        "the command's own, or refused",
        "refused, inotify in the roots too. not: reading links outside",
    ),
    "B33": Claim("a command that resets its oom_score_adj", "/proc is read-only", "/proc/self is out of reach"),
    "B28": Claim(
        "a start file, a client's or an editor's project file, .git/commondir, a link as .git/hooks, made by a "
        "command, a REPL, pytest or an operator's program",
        "allowed in the roots, and reported: those right below a root and the working directory, whatever times they "
        "are given. not: deeper in the tree",
        _SAME,
    ),
    "B24": Claim(
        "the server's own code inside a root (a clone that is served, an environment in a project): changed, added to, "
        "moved, or reached by a link put above it",
        "read-only, and no folder above it up to the root can be moved; no commands where a root lies in it or a "
        "link in a root leads to it. Below the root / too, by whatever name a mount shows it. not: hard links to its "
        "files elsewhere in a root, but for uv's cache",
        "not used there",
    ),
    "B30": Claim(
        "what is hidden inside a root, / too: moved away, replaced by a link, made later",
        "covered at every start as it is then, can't be moved, nor a folder above it; no commands where a link in a "
        "root leads to it",
        "not used there",
    ),
    "B32": Claim(
        "unix sockets that lie inside a root",
        "not: they can be reached, with the network off as well; `llmc doctor` names them. With the root / none can",
        "no socket can be made",
    ),
    "B34": Claim(
        "with a network allowlist, around the proxy: variables unset, raw TCP, UDP, ICMP, QUIC, DNS, a relay inside, "
        "unix sockets of the host, the proxy's port taken, another session's proxy",
        "nothing else is there: the proxy's socket is the only way out of the session's network",
        _NO_LIST,
    ),
    "B35": Claim(
        "hosts that are not listed: addresses in decimal, octal, hex, mapped, NAT64 or with a zone; dots, case, IDNA, "
        "NUL, userinfo, suffixes and wildcards; names that lead to loopback, private, shared or metadata addresses, or "
        "rebind",
        "refused: a name is looked up once, every address checked, a checked one dialled. not: exfiltration to a "
        "listed host, nor by the names that a listed *.suffix is asked for",
        _NO_LIST,
    ),
    "B36": Claim(
        "a tunnel for something else: another SNI, none, several, ECH, a ClientHello in pieces or too long, plain text",
        "refused before anybody is dialled; a second ClientHello that the server asks for, before it is sent. not: "
        "what happens inside TLS with a listed host, such as fronting",
        _NO_LIST,
    ),
    "B37": Claim(
        "plain HTTP: Host other than the URI, smuggling, folded headers, bare newlines, a second request, an upgrade, "
        "a redirect to a host that is not listed",
        "refused, or never read: one strictly parsed request a connection",
        _NO_LIST,
    ),
    "B38": Claim(
        "the proxy exhausted or confused: slow clients, 10,000 connections, endless bodies, forged lines for a log, "
        "its end",
        "bounded in time, connections and memory; one printable line; without it nobody is reached, and the next "
        "command brings another",
        _NO_LIST,
    ),
    "C01": Claim("a timeout with daemons that ignore TERM", "0 survivors", _SAME),
    "C02": Claim("the server, its launcher or a supervisor killed", "0 survivors", _SAME),
    "C03": Claim("a child outliving the thread that asked", "it does", _SAME),
    "C04": Claim("a child that prints without end", "bounded memory, both ends kept, all in a handle", _SAME),
    "C05": Claim("output that is no text", "replaced and made visible", _SAME),
    "C06": Claim("a background process that holds the output", "the call returns, the process ends", _SAME),
    "C07": Claim("a child that ignores signals", "KILL after a second", _SAME),
    "C08": Claim("a child that stops itself", "ended by the timeout", _SAME),
    "C12": Claim(
        "a fork bomb",
        "bounded: RLIMIT_NPROC, for root a pids control group. not: root where no control group can be made",
        _SAME,
    ),
    "C13": Claim("a memory bomb", "bounded per process (RLIMIT_DATA); first to go when memory runs out", _SAME),
    "C14": Claim(
        "a full disk",
        "size of a file, and of /tmp as a whole. not: many files in a root",
        "size of a file. not: many files in a root or in the temporary folder",
    ),
    "C15": Claim("many commands", "no zombie, descriptor or memory growth", _SAME),
    "C16": Claim("many commands at once", "as many as the server has workers, each a tree of its own", _SAME),
    "C09": Claim("kill: pid 1, the server, its ancestors, another user, 0 and negatives", "refused", _SAME),
    "C10": Claim("a pid that was given away again", "signals go through a pidfd, never to the new process", _SAME),
    "C11": Claim("a signal that is none", "BAD_ARGS", _SAME),
    "C17": Claim("^C in a REPL", "interrupts the busy program and nothing else", _SAME),
    "C18": Claim("a line of 5,000 characters typed into a REPL", "arrives whole", _SAME),
    "C19": Claim("a program that prints a prompt", "waiting is the kernel's word, not the text's", _SAME),
    "C20": Claim("echo, ^D, a closed terminal", "echo is not doubled, end of input ends, state is told", _SAME),
    "C21": Claim("no output, half a character", "returns at its deadline; the half waits for its other half", _SAME),
    "C23": Claim(
        "titles, device strings and colours that never end, backspaces and carriage returns by the million",
        "time in proportion to the output; what never ends is dropped in bounded memory",
        _SAME,
    ),
    "C27": Claim(
        "^D behind a line of 5,000 characters, in a program that waits or is busy",
        "the program sees its input end",
        _SAME,
    ),
    "C22": Claim("a call taken back", "the whole tree dies, nothing is answered twice", _SAME),
    "C25": Claim(
        "files that make a child of the server's own fill memory: ripgrep, the index, git, systemctl",
        "bounded per process (RLIMIT_DATA), goes before the server when memory runs out; the reply says what happened",
        _SAME,
    ),
    "C24": Claim(
        "a test report (JUnit XML) with entities, or of gigabytes, from tests that pytest runs",
        "read by a confined process with bounds: an error, with the tests' output still there",
        _SAME,
    ),
    "C26": Claim(
        "a killed server's temporary folders",
        "removed by the next server; never those of a living one, of another user, or behind a link",
        _SAME,
    ),
}

# Attacks on everything but commands; what is claimed is what its tests say, sentence by sentence.
OTHERS: dict[str, str] = {
    "A": "Paths and files",
    "D": "Code in execute_code",
    "E": "Protocol, configuration, HTTP and models",
    "F": "Rules, approvals and identities",
}

_HEAD = """\
# Security

Made by `python -m tests.security.claims` from the claims and the tests that show them; a test fails when this page is
stale. Attacks have ids: A paths and files, B commands, C processes, D code, E protocol and models, F rules and
identities.

Files are reached below root directories by openat2 with RESOLVE_BENEATH: the kernel decides what a path may lead to,
at the moment it is opened. Searches run ripgrep in a Landlock domain that can read below the roots and nothing else.
Code in execute_code runs in an interpreter that has no machine behind it, only the tools; or, where the operator chose
`engine = "python"`, in CPython inside the sandbox of commands, without the roots, with a folder of its own that is
gone afterwards and a socket to the tools that no other process has. What follows is about commands; the rest is listed
at the end.

## Commands

The tests of this part run as root and as an ordinary user at both levels.

The list of allowed programs keeps an agent to what the operator had in mind. It is no boundary: every shell and
interpreter on it can start anything. The boundary is the sandbox, which the kernel enforces.

| level | needs | what it is |
|---|---|---|
| `workspace` | bubblewrap, user namespaces | only the roots, a private /tmp and read-only system folders exist; \
own process, network, IPC and host name spaces; seccomp |
| `landlock` | Linux 6.2 (6.12 for signals) | Landlock and seccomp: the same files are out of reach, in the same \
name spaces as everything else |
| `read_only` | | no commands |
| `off` | the operator's word | commands run as the server does, with a clean environment and bounds |

`auto`, the default, takes the first of `workspace` and `landlock` that passes its self-test on this machine: a small
program runs inside and tries to get out. Where neither does, command tools answer FEATURE_UNAVAILABLE with the
reason. `llmc doctor` shows each attempt. Nothing in a call weakens the level.

`auto` chooses once. A level that has held since the machine was started is never exchanged for a weaker one: when it
fails, commands answer FEATURE_UNAVAILABLE with the reason, and it is tried again with the next one. A self-test that
could not be finished, for want of time or memory, answers RESOURCE_BUSY and says nothing about the level. Who wants
the weaker level names it: `mcp.sandbox.level`.

A server that runs as root gives its commands no capabilities and, in `workspace`, another uid inside; files of root
in the roots stay usable. `mcp.sandbox.run_as` names a user for them instead. The `landlock` level needs it: root's
commands could change modes and times of root's files anywhere (see B07), so it is refused to them.

The server's data directory, the user's secrets (~/.ssh, ~/.aws, ~/.config, ~/.netrc and the like) and what
`mcp.sandbox.deny_read` names are absent. If they lie inside a root, `workspace` covers them where they are, and
`landlock`, which can't, is not used. File and search tools keep away from them as well, unless the operator named a
root inside. Configuration that the next start trusts (`--config`, `LLMC_CONFIG`, the user's own file) is read-only for
commands, or hidden where it does not exist yet.

A root of `/` or a home directory is served like any other, though it is rarely what you want. Commands then need
bubblewrap. Of `/` they may change what the user may, but for the system's folders, `/etc` and `/boot`, which are
read-only (`mcp.sandbox.extra_write = ["/etc/cron.d"]` opens one); `/proc` and `/dev` are their own, `/sys` and `/run`
are absent, `/etc/shadow`, host keys and every user's secrets are hidden, and there are no unix sockets, since behind
those programs outside the sandbox listen. File tools change neither the system's programs and libraries nor what the
dynamic linker reads. `llmc repo validate` lists what is hidden and read-only.

Files with secret names (`mcp.policy.secret_names`: `.env`, `*.pem`, `id_*` …) below a root are refused by file and
search tools: not read, and not changed once they exist. Commands can read them at both levels. To hide them there, a
file would have to be mounted over each, in folders that other commands may be changing at that moment (bubblewrap
before 0.12 follows a link put in their place), and Landlock can't at all; certificates of a test suite would be
empty, and committed so. What an operator wants hidden from commands, too, `mcp.sandbox.deny_read` names.

Toolchains in the home of the server's user (`mcp.sandbox.toolchains`) are readable for commands: the folders with
programs and installations of pyenv, nvm, rustup, cargo, go, uv and pipx, and `~/.local/bin`. What lies beside them,
such as `.cargo/credentials.toml` or `.npmrc`, is absent; pip.conf and npmrc of an installation are hidden.

What the user allows (`llmc allow`, `llmc config set`) is written into the user's own configuration file, which no
tool changes and no command sees. A running server reads it again when it changed and takes over the programs, the
network and the extra folders; the level and everything else stay until the next start.

Whoever can change the server's code, or the Python it starts next, is no longer confined. Where that code lies inside
a root, no file tool changes it or moves a folder above it, and commands see it read-only; a root inside it is not
served. Folders that are merely on the import path, because the server was started in them or by PYTHONPATH, are taken
off it. The start and `llmc doctor` say so. Better: a server that is installed outside of every root.

The network is off unless the user allows hosts or all of it. Hosts (`mcp.tools.network_allow`) are reached through a
proxy of the server's, at the level `workspace` alone: [network.md](network.md). It is one process per server, without
capabilities, in a Landlock domain that reads what looking up names takes and writes nothing, with a seccomp filter; it
holds no credential. Not claimed: that nothing leaves the machine by way of a listed host, whose servers take uploads or
front for others inside TLS. Connections to a host that is taken off the list end at once. What a command leaves running
ends with it.

`llmc ports PORT` passes connections from this machine's 127.0.0.1 on to a port in the network of a session, for as long
as the user lets it run, and only where `mcp.sandbox.forward_ports` is set; no workspace file can set it.

### What is claimed, and what is not

"""


def shown_by_tests() -> dict[str, list[str]]:
    """Every test whose name carries the id of an attack of section B or C."""
    return {number: names for number, names in _by_attack().items() if number[0] in "BC"}


@cache
def _by_attack() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in re.findall(r"(?<=_)[a-f]\d\d(?=_)", node.name):
                    found.setdefault(number.upper(), []).append(f"{path.name}::{node.name}")
    return found


def document() -> str:
    """The whole page."""
    tests = shown_by_tests()
    rows = ["| id | attack | workspace | landlock | shown by |", "|---|---|---|---|---|"]
    for number, claim in sorted(CLAIMS.items()):
        landlock = claim.workspace if claim.landlock == _SAME else claim.landlock
        names = "<br>".join(f"`{name.partition('::')[2]}`" for name in tests.get(number, []))
        rows.append(f"| {number} | {claim.attack} | {claim.workspace} | {landlock} | {names} |")
    return _HEAD + "\n".join(rows) + "\n" + "".join(_section(*part) for part in OTHERS.items())


def _section(letter: str, title: str) -> str:
    """The attacks of one kind, and what was seen when they were tried."""
    rows = [f"\n## {title}\n", "| id | what was seen |", "|---|---|"]
    for number, tests in sorted(_by_attack().items()):
        if number.startswith(letter):
            names = dict.fromkeys(name.partition("::")[2] for name in tests)
            rows.append(f"| {number} | {'<br>'.join(f'`{name}`' for name in names)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(document(), end="")
