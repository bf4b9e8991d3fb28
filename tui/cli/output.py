"""What commands print: data on standard output (JSON when asked), everything else on standard error."""

from __future__ import annotations

from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")


def print_json(value: Any) -> None:
    """Print structs, lists and dicts as indented JSON on standard output."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def note(text: str) -> None:
    """Tell the person something; it stays out of the data."""
    click.echo(text, err=True)
