"""Start and end of a command: skipped imports, one line per error, exit codes 0, 1 and 2."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from label_dp.cli.output import fail, show_all
from label_dp.errors import InvalidInput, LabelDPError
from label_dp.installing import missing_extra

if TYPE_CHECKING:
    import typer

INTERRUPTED = 130
# objects between garbage collections, of a command and of a service: of a body of a thousand records all of tens of
# thousands are in use, and looking at them time and again took three times as long as reading them
RARELY, SERVING = 1_000_000, (50_000, 10, 10)


def _spare_collections() -> None:
    """Reduce garbage collections: imported objects stay, and collecting among them takes a tenth of a command's time,
    and as much again at its end. A command that shows a help exits right away; `collect_as_usual` is for a service."""
    if "--help" in sys.argv:
        gc.disable()
    gc.set_threshold(RARELY)
    atexit.register(gc.freeze)


def collect_as_usual() -> None:
    """Collect garbage again, in a process that stays; existing objects are exempt."""
    gc.freeze()
    gc.set_threshold(*SERVING)


class _Absent:
    """Finder of modules by which pandas is not installed."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a command reads files, never frames", name=name)


def _spare_pandas() -> None:
    """Hide pandas: Arrow imports it at its first value, which takes longer than Arrow and numpy together."""
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _Absent)


def _spare_pages() -> None:
    """Use the system's memory pool: Arrow's own takes more pages than it needs, and each has to be cleared."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _spare_waiting() -> None:
    """Let the threads of OpenBLAS sleep at once: their busy waiting takes a tenth of a second of a core."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def allow_pandas() -> None:
    """Show pandas again to libraries that need it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _Absent]


def run(app: typer.Typer) -> None:
    """Run a typer app: a typed error becomes one line on stderr and its exit code; no traceback is shown."""
    show_all()
    _spare_collections()
    _spare_pandas()
    _spare_pages()
    _spare_waiting()
    try:
        _command(app)()
    except LabelDPError as error:
        fail(error.detail, error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer's code for Ctrl-C
            fail("interrupted", INTERRUPTED)
        raise
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except Exception as error:
        lacks = missing_extra(str(app.info.name)) if isinstance(error, ImportError) else None
        if lacks is not None:
            fail(lacks, InvalidInput.exit_code)
        # a bug: its text and locals may hold labels, so only its kind and place are shown
        logging.getLogger("label_dp").debug("internal error", exc_info=error)
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}" if place else "?"  # noqa: PTH119 - a code name, not a path
        fail(f"internal error ({type(error).__name__} at {where}); please report it with the command you ran", 1)


def _command(app: typer.Typer) -> Any:
    from label_dp.cli.outline import commands_of

    return commands_of(app)
