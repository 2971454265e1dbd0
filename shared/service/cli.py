"""Command-line habits of both parties: one line per error, exit codes 0, 1 and 2, `--json`, quiet when piped."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shared.errors import LabelDPError

if TYPE_CHECKING:
    import typer

Progress = Callable[[str, float], None]
INTERRUPTED = 130


def run(app: typer.Typer) -> None:
    """Run a typer app: a typed error becomes one line on stderr and its exit code; no traceback is shown."""
    try:
        app()
    except LabelDPError as error:
        fail(error.detail, error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer has turned Ctrl-C into this
            fail("interrupted", INTERRUPTED)
        raise
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except Exception as error:  # a bug: its text and locals may hold labels, so only its kind and place are shown
        logging.getLogger("label_dp").debug("internal error", exc_info=error)
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}" if place else "?"  # noqa: PTH119 - a code name, not a path
        fail(f"internal error ({type(error).__name__} at {where}); please report it with the command you ran", 1)


def fail(detail: str, code: int) -> None:
    print(f"error: {detail}", file=sys.stderr)  # noqa: T201 - the command line's own output
    raise SystemExit(code)


def emit(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """One JSON document for programs, or `human()` for people."""
    if as_json:
        print(json.dumps(data, ensure_ascii=False, indent=2))  # noqa: T201 - the command line's own output
    else:
        human()


@contextmanager
def progress(title: str, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on a terminal's stderr, nothing when piped; call it with (what, share between 0 and 1)."""
    if quiet or not sys.stderr.isatty():
        yield lambda _what, _share: None
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


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A plain table for people; numbers right-aligned; without a header if all columns are unnamed."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=any(columns))
    for index, column in enumerate(columns):
        numeric = all(
            row[index].replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit() for row in rows if row[index]
        )
        grid.add_column(column, justify="right" if numeric and rows else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False, emoji=False)
    console.print(grid)
