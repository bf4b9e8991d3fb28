from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from probes.doctor import checks, examine


def test_every_check_answers_and_what_is_not_ok_has_a_mend() -> None:
    findings = examine()
    assert [f.name for f in findings] == ["python", "machine", "gpus", "torch", "triton", "broker", "terminal"]
    assert all(f.mend for f in findings if f.health != "ok")
    assert findings[3].health == "ok", findings[3].detail


def test_a_torch_that_does_not_load_is_named_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_ASK_TORCH", "raise OSError('libcudart.so.13: no such file')")
    finding = checks.torch()
    assert finding.health == "missing"
    assert "libcudart.so.13" in finding.detail


def test_a_torch_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TORCH_TIMEOUT_S", 0.5)
    monkeypatch.setattr(checks, "_ASK_TORCH", "import time; time.sleep(60)")
    assert checks.torch().health == "limited"


def test_a_missing_distribution_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "installed", lambda *names: {})
    assert checks.torch().mend == "pip install 'torch>=2.11'"
    assert checks.triton().health == "missing"


def test_the_broker_is_looked_for_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        real = socket.create_connection
        monkeypatch.setattr(socket, "create_connection", lambda address, timeout: real(server.getsockname(), timeout))
        assert checks.broker().detail == "one listens on 127.0.0.1:1883"


def test_a_pipe_is_not_a_terminal() -> None:
    code = "from probes.doctor import checks; print(checks.terminal().detail)"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "not a terminal"
