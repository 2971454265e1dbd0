"""The story on a terminal: numbered steps, the calls as they are made, bars, plain text when piped."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from label_dp.cli.output import progress

WIDTH = 78
INDENT, CODE = " " * 3, " " * 7
Advance = Callable[[float], None]
T = TypeVar("T")


class Teller:
    """Prints the story; nothing at all while `silent`: below a bar, or where a program reads the results instead."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent, self.began, self.number = silent, time.monotonic(), 0
        self.names: dict[int, str] = {}  # of arguments too long to show, by their identity

    @property
    def elapsed(self) -> float:
        """Seconds since the story began."""
        return time.monotonic() - self.began

    def heading(self, text: str) -> None:
        """A line above a part of the story."""
        self.show(f"\n{text}\n{'─' * WIDTH}", indent="")

    def step(self, who: str, what: str) -> None:
        """A new numbered step: who acts, and how."""
        self.number += not self.silent
        self.show(f"\n{self.number:2d} {self.elapsed:5.1f} s  {who} · {what}", indent="")

    def say(self, text: str, indent: str = INDENT) -> None:
        """Sentences below a step, wrapped."""
        self.show(textwrap.fill(text, WIDTH - len(indent), break_on_hyphens=False, break_long_words=False), indent)

    def show(self, text: str, indent: str = INDENT) -> None:
        """Lines that keep their own layout: a table, a command."""
        if not self.silent:
            print(textwrap.indent(text, indent), flush=True)

    def shows(self, client: T, name: str) -> T:
        """`client` under the name `name`: each of its calls is printed, then made below a bar."""
        return cast(T, _NarratedClient(client, name, self))

    @contextmanager
    def bar(self, what: str) -> Iterator[Advance]:
        """A bar on a terminal, gone when it is done; call it with a share between 0 and 1."""
        before, self.silent = self.silent, True
        try:
            with progress(INDENT + what, quiet=before) as advance:
                yield lambda share: advance(f"{self.elapsed:.0f} s", share)
        finally:
            self.silent = before


class _NarratedClient:
    def __init__(self, client: Any, name: str, teller: Teller) -> None:
        self._client, self._name, self._teller = client, name, teller

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            words = [*map(self._typed, values), *(f"{name}={self._typed(value)}" for name, value in options.items())]
            self._teller.say(f"{self._name}.{method}({', '.join(words)})", CODE)
            with self._teller.bar(method) as advance:
                if method == "add_labels":
                    options["progress"] = lambda sent, rows: advance(sent / rows)
                return getattr(self._client, method)(*values, **options)

        return call

    def _typed(self, value: Any) -> str:
        return self._teller.names.get(id(value)) or repr(value)
