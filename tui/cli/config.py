"""`herdscope config`: every setting of an engine, its value here, and where that value comes from."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from tui.cli.config_file import check_command_table, config_path, read_tables
from tui.cli.engine_options import EngineChoice, engine_options
from tui.cli.lazy_group import LazyGroup
from tui.cli.output import json_option, print_json


class Setting(NamedTuple):
    """One row: `source` is command line, environment, file or default."""

    key: str
    value: Any
    source: str


@click.command()
@json_option
@engine_options
@click.pass_context
def config(ctx: click.Context, as_json: bool, engine: EngineChoice) -> None:
    """Show every setting of an engine and where its value comes from.

    The command line wins over the environment (HERDSCOPE_PP and so on), that over the config file, that over the
    defaults. The file has one [engine] table and one table a command.

    \b
    Example: herdscope config
             HERDSCOPE_PP=4 herdscope config --admission capped --json
    """
    root = ctx.find_root().command
    assert isinstance(root, LazyGroup)
    tables = read_tables(root)
    for command in root.entries:
        check_command_table(root, command, tables)
    settings = _engine_settings(engine)
    settings += [
        Setting(f"{command}.{key}", value, "file")
        for command, table in tables.items()
        if command != "engine"
        for key, value in table.items()
    ]
    path = config_path()
    if as_json:
        print_json({"file": str(path), "exists": path.is_file(), "settings": [row._asdict() for row in settings]})
        return
    click.echo(f"{path}{'' if path.is_file() else ' (does not exist)'}", err=True)
    width = max(len(row.key) for row in settings)
    shown = [(row.key.ljust(width), _shown(row.value), row.source) for row in settings]
    value_width = max(len(value) for _, value, _ in shown)
    for key, value, source in shown:
        click.echo(f"{key}  {value.ljust(value_width)}  {source}")


def _engine_settings(engine: EngineChoice) -> list[Setting]:
    import msgspec

    values = msgspec.to_builtins(engine.config(write_model=False))
    flat = {**values, **values["knobs"]}
    return [Setting(key, flat[key], source) for key, source in engine.sources.items()]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None else str(value)
