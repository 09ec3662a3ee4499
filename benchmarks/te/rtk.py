"""What rtk 0.16.0 prints, by the rules in its source, for commands whose recorded output is what its own run would see.

Its program was not run. Reproduced are `rtk grep`, `find`, `ls`, `read`, `git diff` and `pytest` at their defaults, for
lines that are one such command; rtk's hook puts it in front of those. Other flags and pipelines are left out of the
comparison, and so are outputs that rtk gets by other flags (`ls` without -l, `grep` without -n, `git status`). Above
a diff it also prints `git diff --stat`, which was not recorded: its savings there are a little too high.
"""

import os
import re
from collections import Counter

from llmc_mcp.envelope.lines import NotSimple, speaking

_GREP_HITS, _GREP_PER_FILE, _GREP_LINE = 50, 10, 80
_FOUND = 50
_DIFF_LINES, _HUNK_LINES = 100, 10
_FAILURES = 5
_BLANK_LINES = re.compile(r"\n{3,}")
_NOISE = frozenset(
    (
        *("node_modules", ".git", "target", "__pycache__", ".next", "dist", "build", ".cache", ".turbo", ".vercel"),
        *(".pytest_cache", ".mypy_cache", ".tox", ".venv", "venv", "coverage", ".nyc_output", ".idea"),
    )
)


def rtk_output(line: str, output: str) -> tuple[str, str] | None:
    """The rule and what it prints; None where it does not apply."""
    try:
        spoken = speaking(line)
    except NotSimple:
        return None
    if len(spoken) != 1 or len(spoken[0]) != 1 or not output.strip():
        return None
    program, *words = spoken[0][0].argv
    flags = "".join(word.lstrip("-") for word in words if word.startswith("-"))
    names = [word for word in words if not word.startswith("-")]
    if program == "grep" and "n" in flags and set(flags) <= set("rnHiEI"):
        return "grep", _grep(output, names)
    if program == "find" and set(words[1:2]) <= {"-name", "-type"}:
        return "find", _find(output)
    if program == "ls" and "l" in flags:
        return "ls -l", _ls(output, "a" in flags)
    if program == "cat" and len(words) == 1 and words[0].endswith(".py"):
        return "cat (read)", _read(output)
    if [program, *words[:1]] == ["git", "diff"] and "stat" not in flags and "name" not in flags:
        return "git diff", _diff(output)
    if os.path.basename(program) == "pytest" or [program, *words[:2]] == ["python", "-m", "pytest"]:
        return "pytest", _pytest(output)
    return None


def _grep(output: str, names: list[str]) -> str:
    files: dict[str, list[tuple[str, str]]] = {}
    for line in output.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            files.setdefault(parts[0], []).append((parts[1], parts[2]))
        elif len(parts) == 2:
            files.setdefault(names[-1] if names else ".", []).append((parts[0], parts[1]))
    total, shown = sum(map(len, files.values())), 0
    lines = [f"🔍 {total} in {len(files)}F:", ""]
    for file, hits in sorted(files.items()):
        if shown >= _GREP_HITS:
            break
        lines.append(f"📄 {_short_path(file)} ({len(hits)}):")
        chosen = hits[: min(_GREP_PER_FILE, _GREP_HITS - shown)]
        lines += [f"  {number:>4}: {_short_line(text)}" for number, text in chosen]
        shown += len(chosen)
        lines += [f"  +{len(hits) - _GREP_PER_FILE}"] if len(hits) > _GREP_PER_FILE else []
        lines.append("")
    return "\n".join([*lines, *([f"... +{total - shown}"] if total > shown else [])]) + "\n"


def _short_path(path: str) -> str:
    parts = path.split("/")
    return path if len(path) <= 50 or len(parts) <= 3 else f"{parts[0]}/.../{parts[-2]}/{parts[-1]}"


def _short_line(line: str) -> str:
    """rtk centres on the pattern; the length is the same."""
    line = line.strip()
    return line if len(line) <= _GREP_LINE else line[: _GREP_LINE - 3] + "..."


def _find(output: str) -> str:
    """Its own walk skips hidden and ignored files; here it gets the recorded ones."""
    folders: dict[str, list[str]] = {}
    for path in output.splitlines():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder or ".", []).append(name)
    total, shown = sum(map(len, folders.values())), 0
    lines = [f"📁 {total}F {len(folders)}D:", ""]
    for folder in sorted(folders):
        if shown >= _FOUND:
            break
        chosen = folders[folder][: _FOUND - shown]
        lines.append(f"{folder if len(folder) <= 50 else '...' + folder[-47:]}/ {' '.join(chosen)}")
        shown += len(chosen)
    lines += [f"+{total - shown} more"] if shown < total else []
    return "\n".join(lines) + "\n"


def _ls(output: str, show_all: bool) -> str:
    folders, files, endings = list[str](), list[str](), Counter[str]()
    for line in output.splitlines():
        parts = line.split()
        name = " ".join(parts[8:])
        if line.startswith("total ") or len(parts) < 9 or name in (".", "..") or (not show_all and name in _NOISE):
            continue
        if parts[0].startswith("d"):
            folders.append(f"{name}/")
        elif parts[0][0] in "-l":
            files.append(f"{name}  {_size(int(parts[4]) if parts[4].isdigit() else 0)}")
            endings[name[name.rfind(".") :] if "." in name else "no ext"] += 1
    told = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(5))
    more = f", +{len(endings) - 5} more" if len(endings) > 5 else ""
    summary = f"📊 {len(files)} files, {len(folders)} dirs" + (f" ({told}{more})" if told else "")
    return "\n".join([*folders, *files, "", summary]) + "\n" if folders or files else "(empty)\n"


def _size(count: int) -> str:
    if count >= 1 << 20:
        return f"{count / (1 << 20):.1f}M"
    return f"{count / 1024:.1f}K" if count >= 1024 else f"{count}B"


def _read(output: str) -> str:
    """Comments are removed; docstrings stay."""
    kept, in_docstring = list[str](), False
    for line in output.splitlines():
        text = line.strip()
        if text.startswith('"""'):
            in_docstring = not in_docstring
        elif not in_docstring and text.startswith("#"):
            continue
        kept.append(line if text else "")
    return _BLANK_LINES.sub("\n\n", "\n".join(kept)).strip() + "\n"


def _diff(output: str) -> str:
    lines: list[str] = []
    file, added, removed, inside, shown = "", 0, 0, False, 0
    for line in output.splitlines():
        if line.startswith("diff --git"):
            lines += [f"  +{added} -{removed}"] if file and (added or removed) else []
            file, added, removed, inside = line.partition(" b/")[2], 0, 0, False
            lines.append(f"\n📄 {file}")
        elif line.startswith("@@"):
            inside, shown = True, 0
            lines.append(f"  @@ {line.split('@@')[1].strip()} @@")
        elif inside:
            changed = line[:1] in ("+", "-") and not line.startswith(("+++", "---"))
            added, removed = added + (changed and line[0] == "+"), removed + (changed and line[0] == "-")
            if shown < _HUNK_LINES and (changed or (shown and not line.startswith("\\"))):
                lines.append(f"  {line}")
                shown += 1
            if shown == _HUNK_LINES:
                lines.append("  ... (truncated)")
                shown += 1
        if len(lines) >= _DIFF_LINES:
            lines.append("\n... (more changes truncated)")
            break
    lines += [f"  +{added} -{removed}"] if file and (added or removed) else []
    return "\n".join(lines) + "\n"


def _pytest(output: str) -> str:
    failures, current, state, summary = list[list[str]](), list[str](), "", ""
    for line in map(str.strip, output.splitlines()):
        if line.startswith("==="):
            state = next((name for name in ("FAILURES", "short test summary") if name in line), state)
            summary = line if "passed" in line or "failed" in line else summary
        elif state == "FAILURES" and line:
            if line.startswith("___"):
                current = list[str]()
                failures.append(current)
            current.append(line)
        elif state == "short test summary" and line.startswith(("FAILED", "ERROR")):
            failures.append([line])
    numbers = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped)", summary)}
    passed, failed = numbers.get("passed", 0), numbers.get("failed", 0)
    if not failed:
        return f"✓ Pytest: {passed} passed\n" if passed else "Pytest: No tests collected\n"
    skipped = f", {numbers['skipped']} skipped" if numbers.get("skipped") else ""
    shown = [line for at, one in enumerate(failures[:_FAILURES], 1) for line in _failure(at, one)]
    more = [f"... +{len(failures) - _FAILURES} more failures"] if len(failures) > _FAILURES else []
    return (
        "\n".join([f"Pytest: {passed} passed, {failed} failed{skipped}", "═" * 39, "Failures:", *shown, *more]) + "\n"
    )


def _failure(number: int, lines: list[str]) -> list[str]:
    title, *rest = lines
    if title.startswith("FAILED"):
        name, _, reason = title.removeprefix("FAILED ").partition(" - ")
        return [f"{number}. ❌ {name}", *([f"     {reason[:100]}"] if reason else [])]
    telling = [
        line
        for line in rest
        if line.startswith((">", "E")) or re.search("assert|error", line, re.I) is not None or ".py:" in line
    ]
    return [f"{number}. ❌ {title.strip('_ ')}", *(f"     {line[:100]}" for line in telling[:3])]
