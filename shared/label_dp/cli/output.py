"""Output of a command: sentences and tables for people, `--json` for programs, no bar when piped."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from label_dp.errors import printable
from label_dp.progress import Progress

PIPED = 10_000
LINE_EVERY = 20.0  # seconds between lines of progress into a pipe


def show_all() -> None:
    """Have standard output replace characters outside its encoding: by then ε may be charged, and the command must not
    seem to fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def json_text(data: Any, indent: int | None = None) -> str:
    """Format JSON for standard output, with escapes for characters outside its encoding, so that a program reads every
    value."""
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    return json.dumps(data, ensure_ascii=not unicode, indent=indent)


def fail(detail: str, code: int) -> None:
    """Print an error and exit with `code`."""
    print(f"error: {printable(detail)}", file=sys.stderr)  # noqa: T201 - the command line's own output
    raise SystemExit(code)


def warn(detail: str) -> None:
    """Print a sentence on stderr, so that no table or document on stdout contains it."""
    print(f"warning: {printable(detail)}", file=sys.stderr)  # noqa: T201 - the command line's own output


def confirm(what: str, sure: bool) -> None:
    """Ask on a terminal before an irreversible step. Programs are not asked, nor is anyone with `sure` (--yes)."""
    if sure or not sys.stdin.isatty():
        return
    question = f"{printable(what)} This cannot be undone. Go on? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was done", 1)


def emit(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """Print one JSON document for programs, or call `human()` for people."""
    if as_json:
        print(json_text(data, indent=2))  # noqa: T201 - the command line's own output
    else:
        human()


@contextmanager
def progress(title: str, quiet: bool = False) -> Iterator[Progress]:
    """Yield a function of (what, share between 0 and 1): a bar on a terminal's stderr, a line now and then when
    piped."""
    if quiet:
        yield lambda _what, _share: None
        return
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda what, share: bar.update(task, description=f"{title}: {what}", completed=share)


def _lines(title: str, now: Callable[[], float] = time.monotonic) -> Progress:
    """Print progress as lines, the first one after LINE_EVERY seconds."""
    latest = now()

    def line(what: str, share: float) -> None:
        nonlocal latest
        if now() - latest >= LINE_EVERY:
            latest = now()
            echo(f"{title}: {what}, {share:.0%}", error=True)

    return line


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a plain table, as wide as the terminal (or COLUMNS); numbers right-aligned; no header if all columns are
    unnamed. Into a file or a pipe every row is one line."""
    from label_dp.cli.layout import lines

    for line in lines(title, columns, rows, _width()):
        echo(line)


def echo(text: object, *, error: bool = False) -> None:
    """Print lines for people, with control characters escaped: quoted text may be untrusted, and a terminal would obey
    it."""
    for line in str(text).split("\n"):
        print(printable(line), file=sys.stderr if error else sys.stdout)


def say(text: str, indent: int = 0) -> None:
    """Print a sentence, wrapped to the terminal's width (or COLUMNS), with later lines indented; one line into a file
    or a pipe."""
    import textwrap

    wrapper = textwrap.TextWrapper(
        _width(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    echo(wrapper.fill(text))


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return max(int(columns), 40)
    return max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else PIPED


def show_version(requested: bool) -> None:
    """Print the version for `--version`, as a callback of typer."""
    if requested:
        from importlib.metadata import version

        print(f"label-dp-service {version('label-dp-service')}")  # noqa: T201 - the command line's own output
        raise SystemExit(0)
