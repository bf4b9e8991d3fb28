"""`herdscope doctor`: what this machine has and lacks, and how to mend it."""

from __future__ import annotations

import click

from tui.cli.output import json_option, print_json


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine has and lacks (GPUs, torch, triton, broker, terminal) and how to mend it.

    \b
    Example: herdscope doctor
    """
    from probes.doctor import examine

    findings = examine()
    if as_json:
        print_json(findings)
        return
    colours = {"ok": "green", "limited": "yellow", "missing": "red"}
    for finding in findings:
        mark = click.style(f"{finding.health:<8}", fg=colours[finding.health])
        click.echo(f"{finding.name:<9} {mark} {finding.detail}")
        if finding.mend:
            click.echo(f"{'':<18} -> {finding.mend}")
