"""`herdscope broker`: what works at a broker."""

from __future__ import annotations

import click

from tui.cli.broker_options import BrokerChoice, broker_options
from tui.cli.output import json_option, print_json


@click.command()
@click.option("--check", "url", metavar="URL", required=True, help="mqtt(s)://[user@]host[:port]/prefix[/session]")
@json_option
@broker_options
def broker(url: str, as_json: bool, broker_choice: BrokerChoice) -> None:
    """Try a broker: does it let us in, how fast is it, does it retain, what does its access list allow.

    \b
    Example: herdscope broker --check mqtts://operator@broker.example/herdscope
    """
    from probes.attach.broker_check import check_broker

    findings = check_broker(broker_choice.address(url))
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            colour = {"ok": "green", "limited": "yellow", "missing": "red"}[finding.health]
            mark = click.style(f"{finding.health:<8}", fg=colour)
            click.echo(f"{finding.name:<12} {mark} {finding.detail}")
            if finding.mend:
                click.echo(f"{'':<21} -> {finding.mend}")
    if any(finding.health == "missing" for finding in findings):
        raise SystemExit(1)
