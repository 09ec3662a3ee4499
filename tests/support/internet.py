"""An internet of one's own, for tests of what commands reach: names, addresses and certificates as the test wants."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .workspace import require

# What names lead to. A list of lists: each question gets the next one.
Zone = Mapping[str, Sequence[str] | Sequence[Sequence[str]]]

EVIL = "45.67.89.66"
PUBLIC = ("45.67.89.1", "45.67.89.2", EVIL)
OTHERS = ("10.0.0.5", "10.0.0.6", "100.64.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "168.63.129.16")
SIX = ("2a0e:1234::1", "fd00:ec2::254")
PORTS = ((80, False), (443, True), (8443, True))


class Internet:
    """A process in network and mount namespaces of its own, until it is closed."""

    def __init__(self, base: Path, zone: Zone, names: Sequence[str]) -> None:
        """`names` are those that the servers have certificates for."""
        require(os.getuid() == 0, "root, for namespaces with addresses of their own")
        for program in ("unshare", "nsenter", "ip", "mount", "openssl"):
            require(shutil.which(program) is not None, program)
        base.mkdir(exist_ok=True)
        self.ca, self.pages, self._hits = base / "ca.pem", base / "pages", base / "hits"
        self.pages.mkdir()
        self._hits.touch()
        make_certificates(base, names)
        setup: dict[str, Any] = {
            "addresses": [*PUBLIC, *OTHERS, *SIX],
            "zone": zone,
            "elsewhere": [EVIL],
            "hits": str(self._hits),
            "pages": str(self.pages),
            "resolver": str(base / "resolv.conf"),
            "certificate": str(base / "server.pem"),
            "key": str(base / "server.key"),
            "ports": PORTS,
        }
        script = Path(__file__).with_name("internet_process.py")
        self._process = subprocess.Popen(
            ["unshare", "--net", "--mount", sys.executable, str(script), json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"

    @property
    def within(self) -> list[str]:
        """Words that start a program in it."""
        place = f"/proc/{self._process.pid}/ns"
        return ["nsenter", f"--net={place}/net", f"--mount={place}/mnt"]

    def hits(self) -> list[dict[str, Any]]:
        """Who got here, in order."""
        return [json.loads(line) for line in self._hits.read_text().splitlines()]

    def forget(self) -> None:
        """Begin a new list."""
        os.truncate(self._hits, 0)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def make_certificates(base: Path, names: Sequence[str]) -> None:
    """A CA and one certificate for all names."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=base, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (base / "names").write_text(f"subjectAltName={','.join(f'DNS:{name}' for name in names)}\n")
    ca = ("-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA")
    openssl("req", "-x509", *new_key, *ca, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *signing)
