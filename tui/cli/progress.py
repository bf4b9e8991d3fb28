"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[float, str], None]


@contextmanager
def progress_bar(title: str) -> Iterator[Show]:
    """Yield a function that takes the fraction done (0..1) and a few words; it does nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda fraction, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda fraction, words: progress.update(task, completed=fraction, description=words)
