"""The TOML config file: `[engine]` for the flags that commands share, one table a command, `[keys]` for the console.

    [engine]
    pp = 4
    admission = "rebalance"

    [bench]
    concurrency = "1,4,16"

    [keys]
    quit = "ctrl+q"

The command line wins over the environment (HERDSCOPE_*), that over the file, that over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tui.cli.lazy_group import LazyGroup

ENGINE_TABLE = "engine"
KEYS_TABLE = "keys"
Tables = dict[str, dict[str, Any]]


def config_path() -> Path:
    """Where the file is looked for: HERDSCOPE_CONFIG, else the platform's place for config files."""
    named = os.environ.get("HERDSCOPE_CONFIG")
    return Path(named) if named else Path(click.get_app_dir("herdscope")) / "config.toml"


def defaults_for(group: LazyGroup, command: str | None) -> dict[str, Any]:
    """The file's values for `command`, as click's default_map. Raise UsageError for a file that is wrong."""
    tables = read_tables(group)
    if command is None or not tables:
        return {}
    check_command_table(group, command, tables)
    return {command: {**tables.get(ENGINE_TABLE, {}), **tables.get(command, {})}}


def read_tables(group: LazyGroup) -> Tables:
    """Parse the file and check the names of its tables and of its engine keys; {} when there is no file."""
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"config file {path}: {error}") from error
    return _checked(group, path, text)


def _checked(group: LazyGroup, path: Path, text: str) -> Tables:
    """What is imported only here, most people's commands never need: they have no config file."""
    import tomllib

    from tui.cli.engine_options import ENGINE_KEYS

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"config file {path}: {error}") from error
    for name, table in tables.items():
        _check_name(name, [ENGINE_TABLE, KEYS_TABLE, *group.entries], "table")
        if not isinstance(table, dict):
            raise click.UsageError(f"config file {path}: {name} must be a table, [{name}]")
    for key in tables.get(ENGINE_TABLE, {}):
        _check_name(key, ENGINE_KEYS, f"key in [{ENGINE_TABLE}]")
    return tables


def keymap(group: LazyGroup, actions: Iterable[str]) -> dict[str, str]:
    """The console's keys by action id. Raise UsageError for one that is not in `actions`, or a key that is no text."""
    known = list(actions)
    keys = read_tables(group).get(KEYS_TABLE, {})
    for action, key in keys.items():
        _check_name(action, known, f"action in [{KEYS_TABLE}]")
        if not isinstance(key, str):
            raise click.UsageError(f"config file {config_path()}: [{KEYS_TABLE}] {action} must name a key, as text")
    return keys


def check_command_table(group: LazyGroup, command: str, tables: Tables) -> None:
    """Check that every key of a command's table is one of that command's options."""
    table = tables.get(command)
    if not table:
        return
    found = group.get_command(click.Context(group), command)
    keys = [p.name for p in found.params if isinstance(p, click.Option) and p.name] if found else []
    for key in table:
        _check_name(key, keys, f"key in [{command}]")


def _check_name(name: str, known: Iterable[str], what: str) -> None:
    choices = list(known)
    if name in choices:
        return
    import difflib

    near = difflib.get_close_matches(name, choices, n=1)
    mend = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(choices))}"
    raise click.UsageError(f"config file {config_path()}: no {what} called {name}; {mend}")
