"""A click group whose commands are imported only when they are run, so that help and completion stay instant."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS = ("See", "Measure", "Diagnose", "Keep", "Set up")


class Entry(NamedTuple):
    """One command: its name, `module:attribute`, the group it is listed under and its one line of help."""

    name: str
    target: str
    group: str
    help: str


class LazyGroup(click.Group):
    """Lists `entries` by group; imports a command's module when that command is asked for."""

    def __init__(self, *args: Any, entries: Sequence[Entry] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.target} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(name, self.entries, n=1)
            mend = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {name!r}{mend}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max((len(name) for name in self.entries), default=0)
        for group in GROUPS:
            rows = [(entry.name.ljust(width), entry.help) for entry in self.entries.values() if entry.group == group]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(entry.name, help=entry.help)
            for entry in self.entries.values()
            if entry.name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)
