"""Package managers as they are, through the allowlist, from mirrors of the test's own under the names of presets."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..security.arena import TOOLS, Arena
from ..support.internet import Internet
from ..support.workspace import require

HOSTS = {
    "pypi.org": ["45.67.89.1"],
    "files.pythonhosted.org": ["45.67.89.2"],
    "registry.npmjs.org": ["45.67.89.1"],
    "index.crates.io": ["45.67.89.1"],
    "static.crates.io": ["45.67.89.2"],
    "github.com": ["45.67.89.2"],
}
CA = {
    "PIP_CERT": "ca.pem",
    "NODE_EXTRA_CA_CERTS": "ca.pem",
    "npm_config_cafile": "ca.pem",
    "GIT_SSL_CAINFO": "ca.pem",
    "CARGO_HTTP_CAINFO": "ca.pem",
    "CURL_CA_BUNDLE": "ca.pem",
}


def put(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def archive(top: str, files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def offer_python(pages: Path) -> None:
    wheel = io.BytesIO()
    info = "demo_pkg-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("demo_pkg.py", "WHO = 'a wheel'\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    name = "demo_pkg-1.0-py3-none-any.whl"
    put(pages / "files.pythonhosted.org/packages" / name, wheel.getvalue())
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    link = f'<a href="https://files.pythonhosted.org/packages/{name}#sha256={digest}">{name}</a>'
    put(pages / "pypi.org/simple/demo-pkg/index.html", f"<!DOCTYPE html><html><body>{link}</body></html>")


def offer_node(pages: Path) -> None:
    package = {"name": "demo-pkg", "version": "1.0.0", "main": "index.js"}
    tarball = archive("package", {"package.json": json.dumps(package), "index.js": "module.exports = 'a tarball'\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    where = "tarballs/demo-pkg-1.0.0.tgz"
    dist = {"tarball": f"https://registry.npmjs.org/{where}", "integrity": integrity}
    about: dict[str, Any] = {"name": "demo-pkg", "dist-tags": {"latest": "1.0.0"}}
    about["versions"] = {"1.0.0": {**package, "dist": dist}}
    put(pages / "registry.npmjs.org" / where, tarball)
    put(pages / "registry.npmjs.org/demo-pkg", json.dumps(about))


def offer_rust(pages: Path) -> None:
    manifest = '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = archive("demo-1.0.0", {"Cargo.toml": manifest, "src/lib.rs": 'pub const WHO: &str = "a crate";\n'})
    row: dict[str, Any] = {"name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    row["cksum"] = hashlib.sha256(crate).hexdigest()
    put(pages / "index.crates.io/config.json", json.dumps({"dl": "https://static.crates.io/crates"}))
    put(pages / "index.crates.io/de/mo/demo", json.dumps(row) + "\n")
    put(pages / "static.crates.io/crates/demo/1.0.0/download", crate)


def offer_git(pages: Path, base: Path) -> None:
    work, bare = base / "work", pages / "github.com/demo/demo.git"

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main", str(work))
    put(work / "README", "a repository\n")
    git("-C", str(work), "add", ".")
    git("-C", str(work), "commit", "-qm", "first")
    git("clone", "-q", "--bare", str(work), str(bare))
    git("-C", str(bare), "update-server-info")


def cargo_home() -> str:
    """The toolchain that has the real cargo, not rustup's stand-in for it; empty if there is none."""
    if shutil.which("rustup"):
        found = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True, check=False)
        return str(Path(found.stdout.strip()).parents[1]) if found.returncode == 0 else ""
    return "/usr" if os.access("/usr/bin/cargo", os.X_OK) else ""


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    base = tmp_path_factory.mktemp("mirrors")
    made = Internet(base, HOSTS, list(HOSTS))
    offer_python(made.pages)
    offer_node(made.pages)
    offer_rust(made.pages)
    offer_git(made.pages, base)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def arena(internet: Internet) -> Iterator[Arena]:
    tools = {"run_cmd_allowlist": TOOLS, "network_allow": ["python", "node", "rust", "git"]}
    sandbox = {"extra_read": [home] if (home := cargo_home()) not in ("", "/usr") else []}
    with Arena("workspace", "root", within=internet.within, tools=tools, sandbox=sandbox) as made:
        (made.root / "ca.pem").write_bytes(internet.ca.read_bytes())
        yield made


def run(arena: Arena, script: str) -> str:
    """What a script prints that has the certificates of the mirrors, and nothing else that it was not given."""
    variables = " ".join(f"{name}=$PWD/{value}" for name, value in CA.items())
    done = arena.run(["bash", "-ec", f"export {variables}\n{script}"], timeout=100)
    assert done.get("exit_code") == 0, done
    assert done["warnings"] == [], done
    return done["stdout"]


def hosts(internet: Internet) -> set[str]:
    return {hit["sni"] for hit in internet.hits() if "path" in hit}


def test_pip_installs(arena: Arena, internet: Internet) -> None:
    internet.forget()
    python = f"{sys.base_prefix}/bin/python3"
    run(
        arena,
        f"{python} -m pip install --no-cache-dir --no-compile --disable-pip-version-check --target /tmp/site demo-pkg",
    )
    assert run(arena, f"PYTHONPATH=/tmp/site {python} -c 'import demo_pkg; print(demo_pkg.WHO)'") == "a wheel\n"
    assert hosts(internet) == {"pypi.org", "files.pythonhosted.org"}


def test_npm_installs(arena: Arena, internet: Internet) -> None:
    require(os.access("/usr/bin/npm", os.X_OK), "npm")
    internet.forget()
    run(arena, "mkdir -p /tmp/node && cd /tmp/node && npm install --no-audit --no-fund --fetch-retries 0 demo-pkg")
    assert run(arena, "cd /tmp/node && node -p 'require(\"demo-pkg\")'") == "a tarball\n"
    assert hosts(internet) == {"registry.npmjs.org"}


def test_git_clones_over_https(arena: Arena, internet: Internet) -> None:
    internet.forget()
    assert run(arena, "git clone -q https://github.com/demo/demo.git /tmp/clone && cat /tmp/clone/README") == (
        "a repository\n"
    )
    assert hosts(internet) == {"github.com"}


def test_cargo_fetches(arena: Arena, internet: Internet) -> None:
    require(bool(cargo_home()), "cargo")
    internet.forget()
    manifest = '[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndemo = "1"\n'
    project = arena.root / "crate"
    put(project / "Cargo.toml", manifest)
    put(project / "src/lib.rs", "")
    run(arena, "cd crate && CARGO_HOME=/tmp/cargo cargo fetch -q && ls /tmp/cargo/registry/src/*/demo-1.0.0/src/lib.rs")
    assert hosts(internet) == {"index.crates.io", "static.crates.io"}


def test_curl_downloads_and_is_told_no(arena: Arena, internet: Internet) -> None:
    internet.forget()
    assert run(arena, "curl -sS https://github.com/hello") == "hello from github.com"
    done = arena.run(["bash", "-c", "curl -sS https://registry.example.org/ && echo through"])
    assert "through" not in done["stdout"]
    assert ["llmc allow network registry.example.org" in warning for warning in done["warnings"]] == [True]
    assert hosts(internet) == {"github.com"}


def test_ssh_is_no_way_to_a_git_host(arena: Arena, internet: Internet) -> None:
    internet.forget()
    done = arena.run(["bash", "-c", "git clone -q git@github.com:demo/demo.git /tmp/ssh; echo $SSH_AUTH_SOCK"])
    assert done["stdout"] == "\n"
    assert not [hit for hit in internet.hits() if "to" in hit]
