"""Attacks on paths: nothing outside the roots is reached, shown, or confirmed to exist."""

import os
import socket
import stat as stat_bits
import unicodedata
from pathlib import Path

import pytest

from ..support.client import Client
from ..support.workspace import SECRET, Workspace, require
from .attack import PATH_TOOLS, READERS, OpenWatch, assert_alive, assert_refused_alike, refusal, status_kb, use

NOTHING = "nothing-is-called-like-this"


def everything_said(client: Client) -> str:
    """All that the server has sent so far."""
    return b"".join(client.raw_lines).decode()


# --- leaving by spelling ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way_out",
    [
        "..",
        "sub/../..",
        "./..",
        "sub//..//..",
        "sub/deeper/../../..",
        "sub/./.././..",
        "sub/../sub/../..",
    ],
)
def test_a01_dotdot_paths_are_refused_for_every_tool(workspace: Workspace, server: Client, way_out: str) -> None:
    workspace.file("sub/deeper/inside.txt", "inside\n")
    for start in ("", f"{workspace.root}/"):
        assert_refused_alike(server, f"{start}{way_out}/outside/secret.txt", f"{start}{way_out}/outside/{NOTHING}")
        assert_refused_alike(server, f"{start}{way_out}/outside", f"{start}{way_out}/{NOTHING}")
    assert SECRET not in everything_said(server)
    assert_alive(server)


def test_a01_dotdot_as_deep_as_a_path_can_be_is_refused(server: Client) -> None:
    for steps in (10, 100, 300):
        assert_refused_alike(server, "../" * steps + "etc/passwd", "../" * steps + NOTHING)
    for tool in PATH_TOOLS:
        assert use(server, tool, "../" * 1300 + "etc/passwd").code == "INVALID_PATH"
    assert "root:" not in everything_said(server)
    assert_alive(server)


def test_a01_repo_read_stays_below_the_repository_it_is_given(workspace: Workspace, server: Client) -> None:
    workspace.file("repo/file.txt", "inside\n")
    workspace.file("beside.txt", "in the root, not in the repository\n")
    (workspace.root / "repo" / "leak").symlink_to(workspace.outside / "secret.txt")
    assert server.call("repo_read", root="repo", path="file.txt").body == "inside\n"
    outside = ("../beside.txt", "../../outside/secret.txt", "leak", "/etc/passwd")
    for path in (*outside, f"../{NOTHING}", f"../../outside/{NOTHING}"):
        assert server.call("repo_read", root="repo", path=path).is_error, path
    for root in ("..", "repo/../..", str(workspace.outside), "repo/leak", "/"):
        assert server.call("repo_read", root=root, path="secret.txt").is_error, root
    said = everything_said(server)
    assert SECRET not in said
    assert "not in the repository" not in said


def test_a02_absolute_paths_outside_are_refused_for_every_tool(workspace: Workspace, server: Client) -> None:
    assert_refused_alike(server, str(workspace.outside / "secret.txt"), str(workspace.outside / NOTHING))
    assert_refused_alike(server, f"/{workspace.outside}/secret.txt", f"/{workspace.outside}/{NOTHING}")
    assert_refused_alike(server, "/etc/passwd", f"/etc/{NOTHING}")
    assert_refused_alike(server, "//etc/passwd", f"//etc/{NOTHING}")
    assert_refused_alike(server, "///etc//passwd", f"///etc//{NOTHING}")
    assert_refused_alike(server, "/", f"/{NOTHING}")
    assert_refused_alike(server, str(workspace.root.parent), str(workspace.root.parent / NOTHING))
    said = everything_said(server)
    assert SECRET not in said
    assert "root:" not in said
    assert_alive(server)


@pytest.mark.parametrize("suffix", ["-evil", ".bak", "x", " "])
def test_a03_a_sibling_that_starts_like_the_root_is_outside(workspace: Workspace, server: Client, suffix: str) -> None:
    sibling = workspace.root.with_name(workspace.root.name + suffix)
    sibling.mkdir()
    (sibling / "secret.txt").write_text(SECRET)
    assert_refused_alike(server, f"{sibling}/secret.txt", f"{sibling}/{NOTHING}")
    assert_refused_alike(server, str(sibling), f"{workspace.root}{suffix}{NOTHING}")
    assert SECRET not in everything_said(server)


# --- leaving by a link -----------------------------------------------------------------------------


def link_out(workspace: Workspace, name: str, target: str, *, absolute: bool) -> None:
    """A link in the root to something outside."""
    up = "/".join([".."] * (name.count("/") + 1))
    path = workspace.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(workspace.outside / target if absolute else f"{up}/outside/{target}")


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a04_a_link_to_an_outside_file_is_refused(workspace: Workspace, server: Client, absolute: bool) -> None:
    link_out(workspace, "leak", "secret.txt", absolute=absolute)
    link_out(workspace, "none", NOTHING, absolute=absolute)
    link_out(workspace, "sub/leak", "secret.txt", absolute=absolute)
    link_out(workspace, "sub/none", NOTHING, absolute=absolute)
    followers = tuple(tool for tool in PATH_TOOLS if tool != "stat")
    assert_refused_alike(server, "leak", "none", followers)
    assert_refused_alike(server, "sub/leak", "sub/none", followers)
    assert_refused_alike(server, f"{workspace.root}/leak", f"{workspace.root}/none", followers)
    assert SECRET not in everything_said(server)
    assert_alive(server)


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a04_a_link_to_an_outside_directory_is_refused(workspace: Workspace, server: Client, absolute: bool) -> None:
    link_out(workspace, "door", ".", absolute=absolute)
    link_out(workspace, "wall", NOTHING, absolute=absolute)
    assert_refused_alike(server, "door/secret.txt", f"wall/{NOTHING}")
    assert_refused_alike(server, "door/secret.txt", f"door/{NOTHING}")
    assert_refused_alike(server, "door/", "wall/")
    assert_refused_alike(server, "door/.", "wall/.")
    assert_refused_alike(server, "door/..", "wall/..")
    assert SECRET not in everything_said(server)


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute"])
def test_a04_stat_of_a_link_that_leads_out_tells_of_the_link_only(
    workspace: Workspace, server: Client, absolute: bool
) -> None:
    link_out(workspace, "leak", "secret.txt", absolute=absolute)
    link_out(workspace, "none", "secret.xxx", absolute=absolute)  # a target as long as the other: same size
    os.utime(workspace.root / "leak", (1, 1), follow_symlinks=False)
    os.utime(workspace.root / "none", (1, 1), follow_symlinks=False)
    leak, none = use(server, "stat", "leak").meta, use(server, "stat", "none").meta
    assert leak["type"] == "symlink"
    assert "sha256" not in leak
    assert leak.pop("link_target") != none.pop("link_target")
    assert leak == none


def test_a04_listing_and_searching_around_links_never_follows_them_out(workspace: Workspace, server: Client) -> None:
    workspace.file("inside.txt", "inside\n")
    for absolute in (False, True):
        link_out(workspace, f"door-{absolute}", ".", absolute=absolute)
        link_out(workspace, f"leak-{absolute}", "secret.txt", absolute=absolute)
    listed = use(server, "list_dir", ".").body.split("\n")
    assert sorted(listed) == ["door-False", "door-True", "inside.txt", "leak-False", "leak-True"]
    found = use(server, "linux_search_content", ".")
    assert found.meta["total_hits"] == 1
    assert "inside.txt" in found.body
    assert SECRET not in everything_said(server)


def test_a04_of_many_files_the_good_ones_are_read_and_the_bad_ones_refused(
    workspace: Workspace, server: Client
) -> None:
    workspace.file("inside.txt", "inside\n")
    link_out(workspace, "leak", "secret.txt", absolute=True)
    os.mkfifo(workspace.root / "fifo")
    paths = ["leak", "../outside/secret.txt", str(workspace.outside / "secret.txt"), "inside.txt", "fifo", "nul\0"]
    reply = server.call("linux_fs_read_many", paths=paths)
    assert not reply.is_error, reply.text
    assert "inside\n" in reply.text
    assert reply.text.count("INVALID_PATH") == 3
    assert SECRET not in reply.text
    assert_alive(server)


def test_a05_a_relative_link_that_stays_inside_is_followed(workspace: Workspace, server: Client) -> None:
    workspace.file("real/file.txt", "inside\n")
    (workspace.root / "link.txt").symlink_to("real/file.txt")
    (workspace.root / "linked").symlink_to("real")
    (workspace.root / "real" / "up").symlink_to("../real/file.txt")
    for path in ("link.txt", "linked/file.txt", "linked/up", "real/up"):
        for tool in READERS:
            assert use(server, tool, path).body == "inside\n", (tool, path)
        assert use(server, "linux_search_content", path).meta["total_hits"] == 1, path
        assert use(server, "stat", path).meta["type"] == "file", path
    assert use(server, "list_dir", "linked").body.split("\n") == ["file.txt", "up"]


def test_a06_an_absolute_link_that_stays_inside_is_followed(workspace: Workspace, server: Client) -> None:
    workspace.file("real/file.txt", "inside\n")
    (workspace.root / "link.txt").symlink_to(workspace.root / "real" / "file.txt")
    (workspace.root / "linked").symlink_to(workspace.root / "real")
    (workspace.root / "around").symlink_to(workspace.root / "linked" / ".." / "link.txt")
    (workspace.root / "top").symlink_to(workspace.root)
    for path in ("link.txt", "linked/file.txt", "around", "top/top/linked/file.txt"):
        for tool in READERS:
            assert use(server, tool, path).body == "inside\n", (tool, path)
        assert use(server, "linux_search_content", path).meta["total_hits"] == 1, path
        assert use(server, "stat", path).meta["type"] == "file", path
    assert use(server, "list_dir", "linked").body == "file.txt"


def test_a06_an_absolute_link_from_one_root_into_another_is_followed(workspace: Workspace) -> None:
    second = workspace.root.with_name("second")
    second.mkdir()
    (second / "file.txt").write_text("second\n")
    (workspace.root / "over").symlink_to(second / "file.txt")
    (workspace.root / "past").symlink_to(second / ".." / "outside" / "secret.txt")
    (workspace.root / "gone").symlink_to(second / ".." / "outside" / NOTHING)
    with Client("--root", str(workspace.root), "--root", str(second)) as client:
        assert use(client, "read_file", "over").body == "second\n"
        assert_refused_alike(client, "past", "gone", READERS)
        assert SECRET not in everything_said(client)


def test_a07_links_in_the_middle_and_chains_that_leave_are_refused(workspace: Workspace, server: Client) -> None:
    root, outside = workspace.root, workspace.outside
    workspace.file("real/file.txt", "inside\n")
    for end in ("secret.txt", NOTHING):
        (root / f"first-{end}").symlink_to(f"second-{end}")
        (root / f"second-{end}").symlink_to(root / f"third-{end}")
        (root / f"third-{end}").symlink_to(outside / end)
        (root / f"dots-{end}").symlink_to(f"real/../../outside/{end}")
        (root / f"rooted-{end}").symlink_to(f"{root}/real/../../outside/{end}")
        (root / "real" / f"up-{end}").symlink_to(f"../../outside/{end}")
    (root / "door").symlink_to("../outside")
    (root / "hall").symlink_to(root / "door")
    followers = tuple(tool for tool in PATH_TOOLS if tool != "stat")
    for path in ("first", "second", "dots", "rooted", "real/up"):
        assert_refused_alike(server, f"{path}-secret.txt", f"{path}-{NOTHING}", followers)
    for path in ("door", "hall", "real/../hall", "hall/../outside"):
        assert_refused_alike(server, f"{path}/secret.txt", f"{path}/{NOTHING}")
    assert SECRET not in everything_said(server)
    assert_alive(server)


def test_a08_link_loops_are_refused(workspace: Workspace, server: Client) -> None:
    root = workspace.root
    (root / "self").symlink_to("self")
    (root / "ping").symlink_to("pong")
    (root / "pong").symlink_to("ping")
    (root / "tick").symlink_to(root / "tock")
    (root / "tock").symlink_to(root / "tick")
    (root / "grow").symlink_to(f"{root}/grow/grow")
    for loop in ("self", "ping", "tick", "grow"):
        for path in (loop, f"{loop}/below"):
            for tool in PATH_TOOLS:
                reply = use(server, tool, path)
                if tool == "stat" and path == loop:
                    assert reply.meta["type"] == "symlink"
                else:
                    assert refusal(reply, path)["code"] == "INVALID_PATH", (tool, path)
    assert_alive(server)


# --- the server's own insides ----------------------------------------------------------------------

CANARY = "canary-4c1d7e"
INSIDES = (
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/proc/self/fd/0",
    "/proc/thread-self/environ",
    "/dev/fd/0",
    "/dev/stdin",
)


def test_a09_process_files_are_refused_directly_and_through_a_link(workspace: Workspace) -> None:
    with Client("--root", str(workspace.root), env={"LLMC_TEST_CANARY": CANARY}) as client:
        for number, path in enumerate((*INSIDES, f"/proc/{client.process.pid}/environ")):
            (workspace.root / f"link{number}").symlink_to(path)
            for tool in PATH_TOOLS:
                assert refusal(use(client, tool, path), path)["code"] == "INVALID_PATH", (tool, path)
                if tool != "stat":
                    reply = use(client, tool, f"link{number}")
                    assert refusal(reply, path)["code"] == "INVALID_PATH", (tool, path)
        assert CANARY not in everything_said(client)


def test_a09_the_environment_is_unreadable_even_with_the_whole_machine_as_root(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("/proc/self/environ")
    with Client("--root", "/", env={"LLMC_TEST_CANARY": CANARY}) as client:
        pid = client.process.pid
        paths = (
            *INSIDES,
            f"/proc/{pid}/environ",
            f"/proc/{pid}/task/{pid}/environ",
            f"/proc/self/root/proc/{pid}/environ",
            f"{workspace.root}/link",
        )
        for path in paths:
            for tool in READERS:
                code = refusal(use(client, tool, path), path)["code"]
                assert code in ("INVALID_PATH", "PERMISSION_DENIED", "NOT_A_FILE"), (tool, path, code)
        for path in (*paths, f"/proc/{pid}", f"/proc/{pid}/task"):
            for multiline in (False, True):
                client.call(
                    "linux_search_content", root=path, pattern=CANARY[:6], multiline=multiline, include_ignored=True
                )
        assert CANARY not in everything_said(client)
        assert_alive(client)


def test_a09_a_huge_machine_is_no_excuse_to_read_what_was_not_asked(workspace: Workspace) -> None:
    path = workspace.file("file.txt", "inside\n")
    with Client("--root", "/") as client:
        assert use(client, "read_file", str(path)).body == "inside\n"
        assert use(client, "read_file", f"{path.parent}/../root/file.txt").body == "inside\n"


# --- things that are no files ----------------------------------------------------------------------


def assert_not_a_file(client: Client, name: str) -> None:
    """Every tool handles `name` as what it is, and says so."""
    for tool in (*READERS, "linux_search_content"):
        envelope = refusal(use(client, tool, name), name)
        assert envelope["code"] == "NOT_A_FILE", (tool, envelope)
        assert "not a " in envelope["message"]
    assert refusal(use(client, "list_dir", name), name)["code"] == "NOT_A_DIRECTORY"
    assert use(client, "stat", name).meta["type"] == "other"
    assert name in use(client, "list_dir", ".").body.split("\n")
    found = use(client, "linux_search_content", ".")
    assert found.meta["total_hits"] == 1


def test_a12_a_fifo_never_blocks_any_tool(workspace: Workspace, server: Client) -> None:
    workspace.file("neighbour.txt", "inside\n")
    fifo = workspace.root / "fifo"
    os.mkfifo(fifo)
    with OpenWatch(fifo) as watch:
        assert_not_a_file(server, "fifo")
        assert not watch.opened
    assert_alive(server)


def test_a12_a_fifo_behind_a_link_never_blocks_any_tool(workspace: Workspace, server: Client) -> None:
    os.mkfifo(workspace.root / "fifo")
    (workspace.root / "link").symlink_to("fifo")
    (workspace.root / "rooted").symlink_to(workspace.root / "fifo")
    for name in ("link", "rooted"):
        for tool in (*READERS, "linux_search_content"):
            assert refusal(use(server, tool, name), name)["code"] == "NOT_A_FILE", (tool, name)
    assert_alive(server)


def test_a13_a_socket_is_refused(workspace: Workspace, server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.file("neighbour.txt", "inside\n")
    monkeypatch.chdir(workspace.root)  # the name of a socket is short; pytest's folders are not
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        listener.listen()
        assert_not_a_file(server, "sock")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert_alive(server)


@pytest.mark.parametrize(
    ("kind", "device"),
    [(stat_bits.S_IFCHR, os.makedev(1, 5)), (stat_bits.S_IFCHR, os.makedev(1, 8)), (stat_bits.S_IFBLK, 0)],
    ids=["zero", "random", "block"],
)
def test_a13_a_device_is_refused_without_being_opened(
    workspace: Workspace, server: Client, kind: int, device: int
) -> None:
    require(os.geteuid() == 0, "root, to make a device node")
    workspace.file("neighbour.txt", "inside\n")
    node = workspace.root / "node"
    os.mknod(node, kind | 0o666, device)
    with OpenWatch(node) as watch:
        assert_not_a_file(server, "node")
        assert not watch.opened
    assert_alive(server)


def test_a13_the_watch_of_these_tests_does_notice_an_open(workspace: Workspace) -> None:
    path = workspace.file("file.txt", "inside\n")
    with OpenWatch(path) as watch:
        os.close(os.open(path, 0o10000000))  # O_PATH: a handle, not an open
        assert not watch.opened
        os.close(os.open(path, os.O_RDONLY))
        assert watch.opened


# --- too much --------------------------------------------------------------------------------------

REPLY_LIMIT = 10_000
SPARE_KB = 64 << 10


def test_a14_a_sparse_terabyte_costs_nothing(workspace: Workspace, server: Client) -> None:
    workspace.file("neighbour.txt", "inside\n")
    use(server, "linux_search_content", ".")
    before = status_kb(server.process.pid, "VmHWM")
    with (workspace.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for tool in READERS:
        reply = use(server, tool, "sparse")
        assert not reply.is_error
        assert "1,099,511,627,776 bytes" in reply.body
    stat = use(server, "stat", "sparse").meta
    assert stat["size"] == 1 << 40
    assert "sha256" not in stat
    assert use(server, "linux_search_content", ".").meta["total_hits"] == 1
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


def test_a14_a_terabyte_that_starts_as_text_is_cut_and_says_so(workspace: Workspace, server: Client) -> None:
    before = status_kb(server.process.pid, "VmHWM")
    with (workspace.root / "sparse.txt").open("wb") as file:
        file.write(b"a line of text\n" * 10_000)
        file.truncate(1 << 40)
    for tool in READERS:
        reply = use(server, tool, "sparse.txt")
        assert reply.body.startswith("a line of text\n")
        assert reply.meta["truncated"] is True
        assert reply.meta["next_offset"] == reply.body.count("\n")
        assert len(reply.text.encode()) <= REPLY_LIMIT
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


def test_a14_a_line_of_20_megabytes_is_cut_and_says_so(workspace: Workspace, server: Client) -> None:
    before = status_kb(server.process.pid, "VmHWM")
    workspace.file("long.txt", b"x" * 20_000_000 + b"\nlast\n")
    for tool in READERS:
        reply = use(server, tool, "long.txt")
        assert len(reply.text.encode()) <= REPLY_LIMIT
        assert "line cut, 20,000,001 bytes" in reply.body
        assert reply.body.endswith("last\n")
        assert reply.meta["total_lines"] == 2
    found = server.call("linux_search_content", root=".", pattern="x$", context_lines=0)
    assert found.meta["total_hits"] == 1
    assert len(found.text.encode()) <= REPLY_LIMIT
    assert status_kb(server.process.pid, "VmHWM") - before < SPARE_KB


def test_a14_an_endless_device_behind_a_link_is_refused(workspace: Workspace, server: Client) -> None:
    (workspace.root / "endless").symlink_to("/dev/zero")
    (workspace.root / "nowhere").symlink_to(f"/dev/{NOTHING}")
    assert_refused_alike(server, "endless", "nowhere", (*READERS, "list_dir", "linux_search_content"))
    assert use(server, "stat", "endless").meta["type"] == "symlink"
    assert_alive(server)


# --- strange names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "",
        "\0",
        "file.txt\0",
        "\0/../../outside/secret.txt",
        "file.txt\0.png",
        "\\x00",
        "x" * 256,
        "é" * 128,
        "sub/" + "x" * 256,
        "x/" * 2048,
        "./" * 2048 + "file.txt",
        "../" * 2000 + "outside/secret.txt",
    ],
    ids=lambda path: f"{len(path)}-{path[:6]!r}",
)
def test_a18_paths_that_no_file_can_have_are_bad_arguments(workspace: Workspace, server: Client, path: str) -> None:
    workspace.file("file.txt", "inside\n")
    for tool in PATH_TOOLS:
        reply = use(server, tool, path)
        assert reply.code == "BAD_ARGS", (tool, reply.text)
        assert "Traceback" not in reply.text
        assert len(reply.text) < 2_000
    assert_alive(server)


def test_a18_a_lone_surrogate_is_refused_and_its_caller_told(server: Client) -> None:
    for number, (tool, (argument, _)) in enumerate(PATH_TOOLS.items(), 1000):
        for text in (r"\ud800", r"a\udfffb", r"\udc80\ud800"):
            server.send_raw(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{"%s":"%s"}}}\n'
                % (number, tool.encode(), argument.encode(), text.encode())
            )
            assert server.wait(number)["error"]["code"] == -32700
    assert_alive(server)


ODD_NAMES = [
    b"latin1-\xe9",
    b"\xff\xfe",
    b"cut-\xc3",
    b"surrogate-\xed\xa0\x80",
    b"new\nline",
    b"tab\tand\x1b[31mcolour",
    b"\\xff\\xfe",  # what the second one is shown as, as a name of its own
    b"back\\slash",
    b"\\x5cxff",
    "right-\u202e-left".encode(),
    "c1-\u0085-control".encode(),
    b"-rf",
    b" ",
    b"'\"$(x)`",
]


def test_a19_every_name_is_listed_in_a_form_that_opens_exactly_that_file(workspace: Workspace, server: Client) -> None:
    root = os.fsencode(workspace.root)
    for number, name in enumerate(ODD_NAMES):
        Path(os.fsdecode(root + b"/" + name)).write_text(f"number {number}\n")
    listed = use(server, "list_dir", ".").body.split("\n")
    assert len(listed) == len(ODD_NAMES), listed
    contents: set[str] = set()
    for shown in listed:
        for tool in READERS:
            contents.add(use(server, tool, shown).body)
            contents.add(use(server, tool, f"{workspace.root}/{shown}").body)
        assert use(server, "stat", shown).meta["type"] == "file"
    assert contents == {f"number {number}\n" for number in range(len(ODD_NAMES))}


def test_a19_search_names_odd_files_in_a_form_that_opens_them(workspace: Workspace) -> None:
    searchable = [name for name in ODD_NAMES if b"\n" not in name]
    root = os.fsencode(workspace.root)
    for number, name in enumerate(searchable):
        Path(os.fsdecode(root + b"/" + name)).write_text(f"number {number}\n")
    with Client("--root", str(workspace.root), "--mode", "classic") as client:
        hits = client.call("linux_search_content", root=".", pattern="number").meta["hits"]
        assert len(hits) == len(searchable)
        for hit in hits:
            assert client.call("read_file", path=hit["path"]).meta["data"].rstrip("\n") == hit["snippet"]
            assert client.call("linux_search_content", root=hit["path"], pattern="number").meta["hits"] == [hit]


def test_a20_names_that_look_alike_stay_different_files(workspace: Workspace, server: Client) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "café.txt"), unicodedata.normalize("NFD", "café.txt")
    twins = {composed: "composed\n", decomposed: "decomposed\n", "README": "upper\n", "readme": "lower\n"}
    for name, content in twins.items():
        workspace.file(name, content)
    for name, content in twins.items():
        assert use(server, "read_file", name).body == content
        assert use(server, "linux_search_content", name).body.endswith(content.strip())
    assert sorted(use(server, "list_dir", ".").body.split("\n")) == sorted(twins)
    (workspace.root / decomposed).unlink()
    (workspace.root / "readme").unlink()
    assert use(server, "read_file", decomposed).code == "NOT_FOUND"
    assert use(server, "read_file", "readme").code == "NOT_FOUND"


LITERAL = [
    "file:///etc/passwd",
    "file:/etc/passwd",
    "file://localhost/etc/passwd",
    "%2e%2e/outside/secret.txt",
    "..%2foutside%2fsecret.txt",
    "%2Fetc%2Fpasswd",
    "..\\outside\\secret.txt",
    "\\x2e\\x2e/outside/secret.txt",
    "\\x2e\\x2e\\x2foutside\\x2fsecret.txt",
    "\uff0e\uff0e/outside/secret.txt",  # fullwidth dots
    "\u2025/outside/secret.txt",  # two dots in one character
    "..\uff0foutside\uff0fsecret.txt",  # fullwidth slashes
    "$HOME/.profile",
    "${HOME}/.profile",
    "$(cat /etc/passwd)",
    "~root/.profile",
    "...",
    " ../outside/secret.txt",
]


@pytest.mark.parametrize("path", LITERAL)
def test_a21_nothing_in_a_path_is_decoded_or_expanded(workspace: Workspace, path: str) -> None:
    with Client("--root", str(workspace.root), env={"HOME": str(workspace.outside)}) as client:
        for tool in PATH_TOOLS:
            assert refusal(use(client, tool, path), path)["code"] == "NOT_FOUND", (tool, path)
        workspace.file(path, "literal\n")
        for tool in READERS:
            assert use(client, tool, path).body == "literal\n", (tool, path)
        assert SECRET not in everything_said(client)


def test_a21_only_a_leading_tilde_slash_means_home_and_home_is_no_way_out(workspace: Workspace) -> None:
    workspace.file("sub/file.txt", "inside\n")
    workspace.file("~/file.txt", "tilde\n")
    with Client("--root", str(workspace.root), env={"HOME": str(workspace.root / "sub")}) as client:
        assert use(client, "read_file", "~/file.txt").body == "inside\n"
        assert use(client, "read_file", "./~/file.txt").body == "tilde\n"
        assert use(client, "list_dir", "~").body.split() == ["file.txt"]
        assert_refused_alike(client, "~/../../outside/secret.txt", f"~/../../outside/{NOTHING}")
    with Client("--root", str(workspace.root), env={"HOME": str(workspace.outside)}) as client:
        assert_refused_alike(client, "~/secret.txt", f"~/{NOTHING}")
        assert_refused_alike(client, "~//etc/passwd", f"~//etc/{NOTHING}")
        said = everything_said(client)
        assert SECRET not in said
        assert str(workspace.outside) not in said


@pytest.mark.parametrize("ending", ["/", "//", "/.", "/..", "/../file.txt", "/./", "/below"])
@pytest.mark.parametrize("name", ["file.txt", "link", "rooted", "sub/rooted"])
def test_a22_a_file_is_no_directory_however_it_is_spelled(
    workspace: Workspace, server: Client, name: str, ending: str
) -> None:
    workspace.file("file.txt", "inside\n")
    (workspace.root / "sub").mkdir()
    (workspace.root / "link").symlink_to("file.txt")
    (workspace.root / "rooted").symlink_to(workspace.root / "file.txt")
    (workspace.root / "sub" / "rooted").symlink_to(workspace.root / "file.txt")
    for tool in PATH_TOOLS:
        path = name + ending
        assert refusal(use(server, tool, path), path)["code"] == "NOT_A_DIRECTORY", (tool, path)


# --- the root itself -------------------------------------------------------------------------------


def test_a26_a_root_that_is_replaced_while_the_server_runs_is_still_the_old_one(
    workspace: Workspace, server: Client
) -> None:
    workspace.file("file.txt", "inside\n")
    workspace.file("real/deep.txt", "inside too\n")
    (workspace.root / "rooted").symlink_to(workspace.root / "real")
    assert use(server, "read_file", "file.txt").body == "inside\n"
    workspace.root.rename(workspace.root.with_name("moved"))
    workspace.root.symlink_to(workspace.outside)
    for prefix in ("", f"{workspace.root}/"):
        assert use(server, "read_file", f"{prefix}file.txt").body == "inside\n"
        assert use(server, "read_file", f"{prefix}rooted/deep.txt").body == "inside too\n"
        assert use(server, "list_dir", f"{prefix}.").body.split("\n")[:2] == ["file.txt", "real/"]
        assert use(server, "linux_search_content", f"{prefix}.").meta["total_hits"] == 2
        for tool in PATH_TOOLS:
            path = f"{prefix}secret.txt"
            assert refusal(use(server, tool, path), path)["code"] == "NOT_FOUND"
    assert SECRET not in everything_said(server)


def test_a26_a_root_that_is_deleted_and_made_anew_by_somebody_else_is_not_entered(
    workspace: Workspace, server: Client
) -> None:
    assert_alive(server)
    workspace.root.rmdir()
    workspace.root.mkdir()
    workspace.file("planted.txt", SECRET)
    for tool in PATH_TOOLS:
        assert refusal(use(server, tool, "planted.txt"), "planted.txt")["code"] == "NOT_FOUND"
    assert SECRET not in everything_said(server)
    assert_alive(server)
