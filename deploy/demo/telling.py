"""How the story reaches the visitor: numbered steps with elapsed time, bars on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

WIDTH = 78
INDENT = "   "
Advance = Callable[[float], None]


class Teller:
    """Tells on `out`; nothing at all where `silent` (a program reads the results instead)."""

    def __init__(self, out: TextIO | None = None, *, silent: bool = False) -> None:
        self.out, self.silent = out or sys.stdout, silent
        self.began = time.monotonic()
        self.number = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self.began

    def title(self, text: str) -> None:
        """The first line of the story."""
        self._line(text)
        self._line("─" * WIDTH)

    def heading(self, text: str) -> None:
        """A line that begins what comes after the steps."""
        self._line("")
        self._line(text)

    def step(self, who: str, what: str) -> None:
        """A new numbered step: who acts, and what they do."""
        self.number += 1
        self._line("")
        self._line(f"{self.number:2d} {self.elapsed:5.1f} s  {who} · {what}")

    def say(self, text: str) -> None:
        """A sentence or two below the step, wrapped; an empty one is an empty line."""
        if not text:
            self._line("")
        for line in textwrap.wrap(
            text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False, break_long_words=False
        ):
            self._line(line)

    def show(self, text: str, indent: str = INDENT) -> None:
        """Lines that keep their own layout: a table, a command."""
        for line in text.splitlines():
            self._line(f"{indent}{line}".rstrip())

    @contextmanager
    def bar(self, what: str) -> Iterator[Advance]:
        """A bar that vanishes when it is done, on a terminal only; call it with a share between 0 and 1."""
        if self.silent or not self.out.isatty():
            yield lambda _share: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(INDENT + "{task.description}"), BarColumn(bar_width=28), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=self.out), transient=True) as progress:
            # without a known share the bar only shows that something is going on
            task = progress.add_task(what, total=None)
            yield lambda share: progress.update(task, total=1.0, completed=share)

    def _line(self, text: str) -> None:
        if not self.silent:
            print(text, file=self.out, flush=True)


def columns(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A plain table: the first `left` columns flush left, the others flush right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        return "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    return "\n".join([line(header), "  ".join("─" * width for width in widths), *(line(row) for row in rows)])
