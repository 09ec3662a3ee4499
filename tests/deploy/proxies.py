"""nginx and Caddy as Debian ships them, started from the samples in deploy/ on ports of loopback."""

import os
import re
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2 as httpx

from ..support.client import PATIENCE
from .image import REPOSITORY

NAME = "llmc.example.org"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Proxy:
    """A proxy before a server, reached by a public name with a certificate that is verified."""

    ready: str  # what its log says once it serves
    program: str

    def __init__(self, folder: Path, upstream: int) -> None:
        self.folder, self.port, self.plain_port = folder, free_port(), free_port()
        settings = self._settings(upstream)
        self.process = subprocess.Popen(
            self._command(settings), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, cwd=folder,
        )  # fmt: skip
        self._lines: list[str] = []
        self._serving = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        assert self._serving.wait(PATIENCE), f"it does not serve:\n{self.log}"
        self._shake_hands()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr
        self.process.stderr.close()

    def _settings(self, upstream: int) -> Path:
        raise NotImplementedError

    def _command(self, settings: Path) -> list[str]:
        raise NotImplementedError

    def authority(self) -> str:
        """The file of the authority that vouches for the certificate."""
        raise NotImplementedError

    def _read_log(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._lines.append(line)
            if self.ready in line:
                self._serving.set()
        self._serving.set()

    def _shake_hands(self) -> None:
        """Until it has its certificate at hand: a moment after its log says so."""
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < give_up:
            try:
                with (
                    socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as plain,
                    self.trust().wrap_socket(plain, server_hostname=NAME),
                ):
                    return
            except OSError:
                continue
        raise AssertionError(f"no TLS:\n{self.log}")

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """Trusts this proxy's authority and no other."""
        return ssl.create_default_context(cafile=self.authority())

    def client(self, token: str = "", **options: Any) -> httpx.Client:
        headers = {"X-LLMC-Token": token} if token else {}
        return httpx.Client(
            base_url=self.url, headers=headers, verify=self.trust(), timeout=PATIENCE, trust_env=False, **options
        )


class Nginx(Proxy):
    """deploy/nginx/llmc.conf, in the smallest nginx.conf that takes it."""

    program = "nginx"
    ready = "start worker process "

    def _settings(self, upstream: int) -> Path:
        folder, site = self.folder, (REPOSITORY / "deploy/nginx/llmc.conf").read_text()
        subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "2"]
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += [*subject, "-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        for old, new in (
            (r"listen \[::\].*;", ""),  # not every machine that tests has it
            (r"listen 80;", f"listen 127.0.0.1:{self.plain_port};"),
            (r"listen 443 ", f"listen 127.0.0.1:{self.port} "),
            (r"server 127\.0\.0\.1:8080;", f"server 127.0.0.1:{upstream};"),
            (r"/etc/letsencrypt/live/\S+/fullchain.pem", f"{folder}/cert.pem"),
            (r"/etc/letsencrypt/live/\S+/privkey.pem", f"{folder}/key.pem"),
        ):
            site, count = re.subn(old, new, site)
            assert count, f"the sample has no {old}"
        return self._main(site)

    def _main(self, site: str) -> Path:
        """The settings of nginx itself, around those of a site."""
        folder = self.folder
        (folder / "site.conf").write_text(site)
        main = folder / "nginx.conf"
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        main.write_text(
            f"daemon off; pid {folder}/pid; error_log stderr notice; worker_processes 1; events {{}}\n"
            f"http {{ access_log off; {temporary} include {folder}/site.conf; }}\n"
        )
        return main

    def _command(self, settings: Path) -> list[str]:
        who = "user root;" if os.geteuid() == 0 else ""
        return ["nginx", "-p", str(self.folder), "-e", "stderr", "-c", str(settings), *(["-g", who] if who else [])]

    def authority(self) -> str:
        return str(self.folder / "cert.pem")


class Caddy(Proxy):
    """deploy/caddy/Caddyfile, with an authority of Caddy's own instead of a public one."""

    program = "caddy"
    ready = "certificate obtained successfully"

    def _settings(self, upstream: int) -> Path:
        text = (REPOSITORY / "deploy/caddy/Caddyfile").read_text()
        for old, new in (
            (
                "\n{\n\t# What",
                f"\n{{\n\tadmin off\n\thttp_port {self.plain_port}\n\thttps_port {self.port}\n\tskip_install_trust\n"
                f"\tdefault_bind 127.0.0.1\n\tlocal_certs\n\tstorage file_system {self.folder}/storage\n\t# What",
            ),
            ("reverse_proxy 127.0.0.1:8080", f"reverse_proxy 127.0.0.1:{upstream}"),
        ):
            assert old in text, f"the sample has no {old}"
            text = text.replace(old, new)
        settings = self.folder / "Caddyfile"
        settings.write_text(text)
        return settings

    def _command(self, settings: Path) -> list[str]:
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(settings)]

    def authority(self) -> str:
        return str(self.folder / "storage/pki/authorities/local/root.crt")
