"""The headless probe as a process: into a recording, onto a broker, and away with its reader."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessions.channel.mqtt.address import parse_broker
from sessions.channel.mqtt.peer import connect_mqtt
from sessions.messages import HostFrame, SessionHeader
from sessions.recording.reader import Recording
from tests.brokers import MOSQUITTO, Broker

HERDSCOPE = [sys.executable, "-m", "tui.cli.main", "probe"]


def test_into_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "n.herd"
    subprocess.run(
        [*HERDSCOPE, "--record", str(file), "--duration", "2.5"], check=True, timeout=60, capture_output=True
    )
    with Recording(file) as recording:
        kinds = [type(recorded.message) for recorded in recording.records()]
    assert kinds[0] is SessionHeader
    assert kinds.count(HostFrame) >= 2


def test_json_lines_end_with_their_reader() -> None:
    probe = subprocess.Popen([*HERDSCOPE, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert probe.stdout is not None
    assert json.loads(probe.stdout.readline())["kind"] == "session_header"
    probe.stdout.close()
    assert probe.wait(20) == 0


def test_it_ends_on_a_signal_and_says_what_it_did() -> None:
    probe = subprocess.Popen([*HERDSCOPE, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert probe.stdout is not None
    probe.stdout.readline()
    probe.send_signal(signal.SIGTERM)
    _, messages = probe.communicate(timeout=20)
    assert "SIGTERM: " in messages
    assert "missed" in messages
    assert probe.returncode == 0


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_onto_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    console = connect_mqtt(parse_broker(broker.url()), "h/console/1", "console", 10)
    frames = console.subscribe([HostFrame])
    probe = subprocess.Popen([*HERDSCOPE, "--broker", broker.url()], stderr=subprocess.PIPE)
    assert frames.get(20) is not None
    broker.kill()
    time.sleep(1)
    broker.start()
    back = time.monotonic()
    frames.drain()
    assert frames.get(10) is not None
    assert time.monotonic() - back < 5
    probe.terminate()
    assert probe.wait(20) == 0
    console.close()
    broker.kill()


def test_neither_torch_nor_textual_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tui.cli.main import cli\n"
        "arguments = ['probe', '--record', sys.argv[1], '--prometheus', '0', '--duration', '0.2']\n"
        "cli.main(arguments, standalone_mode=False)\n"
        "sys.exit(bool({'torch', 'textual', 'triton'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x.herd")]
    done = subprocess.run(command, timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
