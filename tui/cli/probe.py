"""`herdscope probe`: sample this host without a console and send what is seen somewhere."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.broker_options import BrokerChoice, broker_options
from tui.cli.output import json_option, note, print_json

if TYPE_CHECKING:
    from probes.headless.run import HeadlessProbe
    from probes.headless.sink import Sink

WATCH_PERIOD_S = 1.0
CONNECT_S = 10.0


@click.command()
@click.option("--once", is_flag=True, help="Print one snapshot and end (a table; with --json the frames).")
@click.option("--watch", is_flag=True, help="Print a one-line status each second, for a status bar.")
@click.option("--prometheus", metavar="[HOST:]PORT", help="Serve /metrics there; on loopback unless a host is named.")
@click.option("--broker", metavar="URL", help="Publish there: mqtt(s)://[user@]host[:port]/prefix[/session]")
@click.option("--connect", metavar="SOCKET", help="Publish on a running engine's channel.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Write a *.herd recording.")
@click.option("--rate", type=click.FloatRange(0.1, 50), default=10, show_default=True, help="Samples a second.")
@click.option("--duration", type=click.FloatRange(min=0.1), help="End after this many seconds.")
@click.option("--pcie", is_flag=True, help="Also read PCIe throughput (40 ms of waiting a GPU and second).")
@broker_options
@json_option
def probe(
    once: bool,
    watch: bool,
    prometheus: str | None,
    broker: str | None,
    connect: str | None,
    record: Path | None,
    rate: float,
    duration: float | None,
    pcie: bool,
    broker_choice: BrokerChoice,
    as_json: bool,
) -> None:
    """Sample GPUs and host without a console.

    Frames go wherever you say, to several places if you like; without any of them (or with --json) they go to standard
    output as JSON lines.

    \b
    Example: herdscope probe --once
             herdscope probe --prometheus 9400 --record night.herd
             herdscope probe --broker mqtts://probe@broker.example/herdscope
             herdscope probe --json | jq .power_watts
    """
    if once:
        _once(as_json)
    elif watch:
        _watch(duration)
    else:
        from probes.headless.run import HeadlessProbe
        from sessions.clock import source_id

        source = source_id("probe")
        running = HeadlessProbe(source, rate, pcie)
        sinks = _file_sinks(prometheus, record, running) + _channel_sinks(source, broker, connect, broker_choice)
        if as_json or not sinks:
            from probes.headless.json_lines import JsonLinesSink

            sinks.append(JsonLinesSink(sys.stdout.buffer))
        _run(running, duration, sinks)


def _file_sinks(prometheus: str | None, record: Path | None, running: HeadlessProbe) -> list[Sink]:
    sinks: list[Sink] = []
    if prometheus is not None:
        from probes.headless.prometheus import PrometheusSink

        endpoint = PrometheusSink(prometheus, lambda: running.sampler.missed_ticks)
        note(f"metrics at port {endpoint.port}")
        sinks.append(endpoint)
    if record is not None:
        from probes.headless.recording_sink import RecordingSink

        sinks.append(RecordingSink(record, sys.argv))
    return sinks


def _channel_sinks(source: str, broker: str | None, connect: str | None, choice: BrokerChoice) -> list[Sink]:
    from probes.headless.channel_sink import ChannelSink

    sinks: list[Sink] = []
    if broker is not None:
        from sessions.channel.mqtt.peer import connect_mqtt

        sinks.append(ChannelSink(connect_mqtt(choice.address(broker), source, "probe", CONNECT_S)))
    if connect is not None:
        from sessions.channel.unix import connect_unix

        sinks.append(ChannelSink(connect_unix(connect, source, "probe", CONNECT_S)))
    return sinks


def _run(running: HeadlessProbe, duration: float | None, sinks: list[Sink]) -> None:
    if running.gpu.reason:
        note(f"no GPU frames: {running.gpu.reason}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: running.stop(signal.Signals(got).name))
    summary = running.run(sinks, duration, sys.argv)
    cost = summary.cost
    note(
        f"{summary.ended}: {summary.ticks} samples, {summary.missed_ticks} missed, "
        f"{summary.dropped} messages dropped for slow readers"
    )
    first_mb, last_mb = cost.memory_first_bytes / 1e6, cost.memory_last_bytes / 1e6
    note(f"{cost.cpu_share:.2%} of a core over {cost.seconds:.0f} s, memory {first_mb:.1f} to {last_mb:.1f} MB")


def _once(as_json: bool) -> None:
    from probes.gpu import GpuProbe
    from probes.headless.snapshot import table
    from probes.host import HostProbe
    from sessions.clock import source_id

    source = source_id("probe")
    gpu, host = GpuProbe(source), HostProbe(source)
    gpu.sample_slow()
    time.sleep(0.1)  # CPU use is measured over the time between two looks
    frames, host_frame = gpu.sample(), host.sample()
    gpu.close()
    if as_json:
        print_json([*frames, host_frame])
    else:
        click.echo(table(frames, host_frame, gpu.reason))


def _watch(duration: float | None) -> None:
    from probes.gpu import GpuProbe
    from probes.headless.snapshot import status_line
    from probes.host import HostProbe
    from sessions.clock import source_id

    source = source_id("probe")
    gpu, host = GpuProbe(source), HostProbe(source)
    end = None if duration is None else time.monotonic() + duration
    while end is None or time.monotonic() < end:
        time.sleep(WATCH_PERIOD_S)
        gpu.sample_slow()
        click.echo(status_line(gpu.sample(), host.sample()))
    gpu.close()
