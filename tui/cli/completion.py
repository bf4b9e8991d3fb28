"""`herdscope completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Example: herdscope completion bash >> ~/.bashrc
             herdscope completion fish > ~/.config/fish/completions/herdscope.fish
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(completer(ctx.find_root().command, {}, "herdscope", "_HERDSCOPE_COMPLETE").source())
