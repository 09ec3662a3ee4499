"""`llmc repo validate`: what is wrong or risky about a configuration, with a hint for each finding."""

import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ..command_line import JSON, Arguments, Command
from ..config.load import LoadedConfig, load
from ..config.trust import ConfigError
from ..errors import LlmcError
from ..gate.catalog import Catalog
from ..policy import is_below, is_below_any

command = Command(
    "repo",
    "Checks the configuration. Exit code 1 when something is wrong; warnings alone leave it 0.",
    confused_with="llmc repos lists, adds and forgets the repositories that are indexed.",
)


_SEVERITIES = ("error", "warning", "notice")


class ConfigFinding(NamedTuple):
    """One finding. An error prevents something from working; a warning is a risk; a notice is neither."""

    severity: str
    message: str
    hint: str


@command.verb("validate", "print what is wrong or risky, with a hint each", flags=(JSON,), server_flags=True)
def _validate(given: Arguments) -> int:
    try:
        found = sorted(findings(load(given.server)), key=lambda finding: _SEVERITIES.index(finding.severity))
    except ConfigError as exc:
        found = [ConfigFinding("error", problem, "DOCS/configuration.md lists every key.") for problem in exc.problems]
    if "--json" in given:
        rows = [finding._asdict() for finding in found]
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        for finding in found:
            print(f"{finding.severity:8}{finding.message}\n        hint: {finding.hint}")
        print("nothing is wrong" if not found else f"{len(found)} finding{'s' * (len(found) > 1)}")
    return int(any(finding.severity == "error" for finding in found))


def findings(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    """All findings."""
    yield from (ConfigFinding("error", line, "The server does not start like this.") for line in loaded.refusals)
    yield from _missing_roots(loaded)
    yield from _missing_tools(loaded)
    yield from _missing_binaries(loaded)
    yield from _missing_documents(loaded)
    yield from _unindexable_roots(loaded)
    yield from _wide_roots(loaded)
    yield from _risks(loaded)
    for line in loaded.ignored:
        yield ConfigFinding("warning", line, "Read the file; `llmc config trust` pins it as it is, --config names it.")
    for line in loaded.notices:
        yield ConfigFinding("notice", line, "Set it in the file, and this notice goes away.")
    for line in loaded.idle:
        yield ConfigFinding("notice", line, "Remove the keys, or leave them for a later version.")


def _missing_roots(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    for root in loaded.roots:
        if not os.path.isdir(root):
            problem = "is not a folder" if os.path.exists(root) else "does not exist"
            yield ConfigFinding(
                "error", f"root {root} {problem}", "Create it, or take it out of allowed_roots or --root."
            )


def _missing_tools(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    catalog = Catalog(loaded.config)
    for name in loaded.config.hybrid.promoted_tools:
        if name in catalog.tools:
            continue
        try:
            hint = f"That is another name of {catalog.find(name).name}; list that."
        except LlmcError as exc:
            hint = exc.hint or ""
        yield ConfigFinding("error", f"mcp.hybrid.promoted_tools: there is no tool {name!r} to list", hint)


def _missing_binaries(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    """Binaries that the configuration names and this machine lacks; the default list is not checked."""
    import shutil

    config, sources = loaded.config, loaded.sources
    for name, path in config.tools.executables.items():
        if shutil.which(os.path.expanduser(path)) is None:
            yield ConfigFinding("error", f"mcp.tools.executables.{name}: {path} is no program", "Correct the path.")
    for key, names in (
        ("tools.run_cmd_allowlist", config.tools.run_cmd_allowlist),
        ("linux_ops.commands.allowed_binaries", config.linux_ops.commands.allowed_binaries),
    ):
        missing = [name for name in names if shutil.which(name) is None] if key in sources else []
        if missing:
            yield ConfigFinding(
                "warning", f"mcp.{key}: not on this machine: {', '.join(missing)}", "Install or remove them."
            )


def _missing_documents(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    from ..app import App
    from ..protocol.resources import SHIPPED

    key = "resources.sidecars"
    if key not in loaded.sources or not all(os.path.isdir(root) for root in loaded.roots):
        return
    files = App(loaded.config, loaded.roots, loaded.data_dir).files
    for path in loaded.config.resources.sidecars:
        if os.path.basename(path) in SHIPPED:
            continue
        try:
            os.close(files.open_file(files.locate(path))[0])
        except LlmcError as exc:
            yield ConfigFinding("warning", f"mcp.{key}: {exc.message}", "A document is a file below the roots.")


def _unindexable_roots(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    roots = [os.path.realpath(root) for root in loaded.roots]
    for path in loaded.config.rag.roots:
        real = os.path.realpath(os.path.expanduser(path))
        if not os.path.isdir(real) or not is_below_any(real, roots):
            problem = "lies outside the allowed roots" if os.path.isdir(real) else "is no folder"
            yield ConfigFinding("error", f"mcp.rag.roots: {path} {problem}", "Name folders below the allowed roots.")


def _wide_roots(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    """What holds for commands where a root is `/` or contains the server's own data."""
    data = os.path.realpath(loaded.data_dir)
    wide = [root for root in loaded.roots if os.path.isdir(root) and is_below(data, os.path.realpath(root))]
    if not wide or not loaded.config.tools.enable_run_cmd or loaded.config.sandbox.level in ("off", "read_only"):
        return
    from ..app import App

    shown = ", ".join(wide)
    try:
        app = App(loaded.config, loaded.roots, loaded.data_dir, loaded.files, loaded.trusted_files)
    except LlmcError as exc:
        yield ConfigFinding("error", exc.message, exc.hint or "Name other roots.")
        return
    try:
        report = app.sandbox.report()
        if not report.level:
            why = "; ".join(f"{level}: {reason}" for level, reason in report.reasons.items())
            hint = "Install the package bubblewrap, or name narrower roots; llmc doctor tells more."
            yield ConfigFinding("error", f"root {shown} holds the server's own data, so no command runs: {why}", hint)
            return
        hint = "mcp.sandbox.deny_read hides more; extra_write lets commands change a folder of the system."
        for state, places in app.sandbox.exceptions().items():
            yield ConfigFinding("notice", f"root {shown}: commands find {state}: {', '.join(places)}", hint)
    finally:
        app.close()


def _risks(loaded: LoadedConfig) -> Iterator[ConfigFinding]:
    config = loaded.config
    yield from (ConfigFinding("warning", line, advice) for line, advice in loaded.risks.items())
    risky = {
        "sandbox.level": (config.sandbox.level == "off", "commands run unconfined", '"auto" confines them.'),
        "tools.network" if config.tools.network == "on" else "tools.allow_outbound_network": (
            config.network() == "on",
            "commands may send what they read anywhere",
            "llmc allow network HOST (or python, node, rust, go, git) opens only what is needed.",
        ),
        "linux_ops.commands.allow_unsafe": (
            config.linux_ops.commands.allow_unsafe,
            "unsafe_binaries has no effect",
            "Take single binaries out of unsafe_binaries instead.",
        ),
        "policy.secret_names": (not config.policy.secret_names, "keys and passwords are readable", "Name some files."),
        "policy.hard_links": (
            config.policy.hard_links == "allow",
            "files of other users may be linked in",
            '"refuse_foreign" refuses them.',
        ),
    }
    for key, (is_so, consequence, hint) in risky.items():
        if is_so:
            yield ConfigFinding("warning", f"{loaded.sources.get(key, 'default')}: mcp.{key}: {consequence}", hint)
