"""How the story reaches the visitor: numbered steps with elapsed time, bars on a terminal, plain text in a pipe."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.service.cli import progress

WIDTH = 78
INDENT = "   "
Advance = Callable[[float], None]


class Teller:
    """Prints the story; nothing at all where `silent`, because a program reads the results instead."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent, self.began, self.number = silent, time.monotonic(), 0

    @property
    def elapsed(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self.began

    def heading(self, text: str) -> None:
        """A line above a part of the story."""
        self.show(f"\n{text}\n{'─' * WIDTH}", indent="")

    def step(self, who: str, what: str) -> None:
        """A new numbered step: who acts, and how."""
        self.number += 1
        self.show(f"\n{self.number:2d} {self.elapsed:5.1f} s  {who} · {what}", indent="")

    def say(self, text: str) -> None:
        """Sentences below a step, wrapped."""
        self.show(textwrap.fill(text, WIDTH - len(INDENT), break_on_hyphens=False, break_long_words=False))

    def show(self, text: str, indent: str = INDENT) -> None:
        """Lines that keep their own layout: a table, a command."""
        if not self.silent:
            print(textwrap.indent(text, indent), flush=True)

    @contextmanager
    def bar(self, what: str) -> Iterator[Advance]:
        """A bar on a terminal, gone when it is done; call it with a share between 0 and 1."""
        with progress(INDENT + what, quiet=self.silent) as advance:
            yield lambda share: advance(f"{self.elapsed:.0f} s", share)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A plain table: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([line(header), "  ".join("─" * width for width in widths), *map(line, rows)])
