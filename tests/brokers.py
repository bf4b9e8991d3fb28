"""Real mosquitto brokers on loopback for tests: open, or with passwords, an access list and TLS."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PASSWORD_TOOL = shutil.which("mosquitto_passwd")
USERS = ("engine", "probe", "operator", "viewer")


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """One mosquitto process, which can be killed and started again on the same port."""

    def __init__(self, folder: Path, *, secured: bool = False, acl: Path | None = None) -> None:
        assert MOSQUITTO is not None
        self.port = free_port()
        self.secured = secured
        self.ca = folder / "ca.crt"
        self._config = folder / "mosquitto.conf"
        lines = ["persistence false", f"listener {self.port} 127.0.0.1"]
        if secured:
            assert acl is not None
            make_certificates(folder)
            make_passwords(folder / "passwords")
            own_acl = folder / "acl"
            own_acl.write_text(acl.read_text())
            own_acl.chmod(0o700)
            lines += [
                "allow_anonymous false",
                f"password_file {folder / 'passwords'}",
                f"acl_file {own_acl}",
                f"cafile {self.ca}",
                f"certfile {folder / 'server.crt'}",
                f"keyfile {folder / 'server.key'}",
            ]
        else:
            lines += ["allow_anonymous true"]
        lines += ["user root"]
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "mosquitto.log"
        self.start()

    def url(self, user: str | None = None, session: str = "test") -> str:
        """Where to connect."""
        scheme, who = "mqtts" if self.secured else "mqtt", f"{user}@" if user else ""
        return f"{scheme}://{who}localhost:{self.port}/herdscope/{session}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([str(MOSQUITTO), "-c", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                time.sleep(0.02)
        raise AssertionError("mosquitto does not listen: " + self._log.read_text())

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def make_passwords(file: Path) -> None:
    """A password file in which each user's password is the user's name, doubled."""
    assert PASSWORD_TOOL is not None
    for index, user in enumerate(USERS):
        create = ["-c"] if index == 0 else []
        subprocess.run([PASSWORD_TOOL, "-b", *create, str(file), user, user * 2], check=True, capture_output=True)


def make_certificates(folder: Path) -> None:
    """A CA and a certificate for localhost."""
    ca_key, key, request = folder / "ca.key", folder / "server.key", folder / "server.csr"
    extensions = folder / "server.ext"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", "/CN=test ca",
            "-keyout", ca_key, "-out", folder / "ca.crt")  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", folder / "ca.crt", "-CAkey", ca_key, "-CAcreateserial", "-days", 2,
            "-extfile", extensions, "-out", folder / "server.crt")  # fmt: skip
