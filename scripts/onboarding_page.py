"""`python -m scripts.onboarding_page`: DOCS/onboarding.md, from real runs of the three flows.

The folder of downloads is made here and always the same, so a test can tell when its report is stale. The other two are
about a real tree and a real machine: this repository or whatever is named, and the machine that makes the page.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).parent.parent
PAGE = TOP / "DOCS" / "onboarding.md"
_LLMC = os.path.join(os.path.dirname(sys.executable), "llmc")
_DAY = 86_400
_2023 = 1_680_000_000
_LOOSE = {
    "invoice-{n}.pdf": 34,
    "Screenshot {n}.png": 70,
    "IMG_{n}.JPG": 41,
    "song {n}.mp3": 12,
    "lecture-{n}.mp4": 4,
    "backup-{n}.tar.gz": 6,
    "tool_{n}_amd64.deb": 5,
    "export-{n}.csv": 9,
    "notebook-{n}.ipynb": 3,
    "novel-{n}.epub": 2,
    "thing-{n}": 2,
}

HEAD = """\
# Onboarding

Three things to try first. Each is a command (`llmc onboard FLOW`), a tool (`linux_mcp_run_onboarding`) and a prompt
that a client offers by its name; the reports are the same. This page is made by `python -m scripts.onboarding_page`
from real runs.

| flow | what it does | changes anything |
|---|---|---|
| `organize_downloads` | plans how the loose files of a folder would be sorted, and sorts them | only with `--apply` |
| `explain_repo` | what a repository is, where it starts, how it is run and tested, what is unusual | no |
| `system_health` | the state of the machine, what is unusual, and why that matters | no |
"""
ORGANIZE = """
## Tidy a folder of downloads

The plan comes first. Files go into folders by what they are, many of a kind also by year; a name that is taken gets a
number. Folders, links, hidden files, unfinished downloads and files with secret names stay. A
folder that looks like a project, and your home folder itself, are refused.
"""
UNDO = """
All moves are one change: a crash in the middle leaves the old state or the new one, and one undo takes everything back.
If something was edited, deleted or put in the way since, the undo says so and does nothing, unless `--force` is given.
"""
EXPLAIN = """
## Explain a repository

From what its own files say: nothing is run, and nothing is needed but the files. With a code index, the most important
definitions follow. At most 800 tokens.
"""
HEALTH = """
## Check this machine

Whatever is unusual comes with the reason and a next step: disks and inodes above 90 %, load per core, little
memory, swap, time lost to waiting, processes killed for lack of memory, zombies, failed units. Processes of other users
are not counted unless the operator shows them.
"""


def downloads(folder: Path) -> None:
    """A folder as many people have one, the same every time."""
    for kind, (pattern, count) in enumerate(_LOOSE.items()):
        for number in range(count):
            path = folder / pattern.format(n=number + 1)
            path.write_bytes(b"x" * (1_000 + 137 * number + 5_000 * kind))
            written = _2023 + (number * 97 + kind * 31) % 900 * _DAY
            os.utime(path, (written, written))
    for name in ("distro.iso.part", "film.mkv.crdownload", ".directory", "id_ed25519"):
        (folder / name).write_text("x")
    (folder / "old project" / ".git").mkdir(parents=True)
    (folder / "holiday pictures").mkdir()
    (folder / "Documents").mkdir()
    (folder / "Documents" / "invoice-1.pdf").write_text("an older one of the same name")


def run(*arguments: str, cwd: Path, data: Path) -> str:
    """What a command prints."""
    environment = {**os.environ, "LLMC_DATA_DIR": str(data), "TZ": "UTC"}
    done = subprocess.run([_LLMC, *arguments], capture_output=True, text=True, check=True, cwd=cwd, env=environment)
    return done.stdout


def organize_part() -> str:
    """The first flow: plan, apply, undo."""
    with tempfile.TemporaryDirectory(prefix="onboarding-") as base:
        folder, data = Path(base).resolve() / "Downloads", Path(base) / "data"
        folder.mkdir()
        downloads(folder)
        before = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        flow = ("onboard", "organize_downloads", str(folder))
        plan, done = run(*flow, cwd=folder, data=data), run(*flow, "--apply", cwd=folder, data=data)
        undo_id = done.partition("llmc undo ")[2].partition("`")[0]
        sorted_files = [path for path in folder.rglob("*") if path.is_file()]
        run("undo", undo_id, cwd=folder, data=data)
        if sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) != before:
            raise SystemExit("undo did not bring everything back")
        if len(sorted_files) != len([name for name in before if (folder / name).is_file()]):
            raise SystemExit("files were lost")
    plan = _block("llmc onboard organize_downloads", plan.replace(str(folder), "~/Downloads"))
    last = done.splitlines()[0].replace(undo_id, "U_0123456789")
    return f"{ORGANIZE}\n{plan}\n{_block('llmc onboard organize_downloads --apply', last)}{UNDO}"


def explain_part(folder: Path) -> str:
    """The second flow, on a real tree."""
    with tempfile.TemporaryDirectory() as data:
        run("index", cwd=folder, data=Path(data))
        told = run("onboard", "explain_repo", str(folder), cwd=folder, data=Path(data))
    return f"{EXPLAIN}\n{_block('llmc onboard explain_repo', told)}"


def health_part() -> str:
    """The third flow, on this machine."""
    with tempfile.TemporaryDirectory() as data:
        told = run("onboard", "system_health", cwd=TOP, data=Path(data))
    return f"{HEALTH}\n{_block('llmc onboard system_health', told)}"


def _block(command: str, printed: str) -> str:
    return f"```console\n$ {command}\n{printed.strip()}\n```\n"


def main() -> None:
    """Write the page; a folder to explain may be named."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TOP
    PAGE.write_text(HEAD + organize_part() + explain_part(folder) + health_part())


if __name__ == "__main__":
    main()
