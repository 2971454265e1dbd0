"""Command-line habits of both parties: one line per error, exit codes 0, 1 and 2, `--json`, no bar when piped, and no
file overwritten unasked."""

from __future__ import annotations

import atexit
import gc
import io
import json
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from label_dp.errors import InvalidFile, InvalidInput, LabelDPError
from label_dp.numbers import SPELLING, BadSpelling, real_of, whole_of
from label_dp.service.layout import printable

if TYPE_CHECKING:
    import typer

Progress = Callable[[str, float], None]
INTERRUPTED = 130
PIPED = 10_000
LINE_EVERY = 20.0  # seconds between lines of progress into a pipe
USUALLY, RARELY = gc.get_threshold(), 1_000_000  # after how many objects garbage is looked for
# the panels of a help; a command without one is an everyday command, of which there are at most ten
OFFICER, AROUND, ADMINISTRATION = "Officer", "Around the message", "Administration"
EXPERT_PANEL = "Expert options"


@dataclass(frozen=True)
class Panel:
    """Of a schema in a command: the panel of its everyday options, and the members that the command sets itself."""

    title: str | None = None
    without: tuple[str, ...] = ()


def _spare_collections() -> None:
    """What imports make stays: to look for garbage among it is a tenth of a command's time, and as much again at its
    end. One that shows a help ends then; a service looks again once it listens (`serving`)."""
    if "--help" in sys.argv:
        gc.disable()
    gc.set_threshold(RARELY)
    atexit.register(gc.freeze)


class _Absent:
    """A finder of modules by which one is not installed."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a command reads files, never frames", name=name)


def _spare_pandas() -> None:
    """Arrow looks for pandas at the first value that it is given, and loading it takes longer than Arrow and numpy
    together. A process that is a command finds none."""
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _Absent)


def _spare_pages() -> None:
    """Arrow's own pool asks the system for more pages than it needs, each of which has to be cleared."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _spare_waiting() -> None:
    """The threads of numpy's library of matrices wait for their first work, and for more after each, by counting: a
    tenth of a second of a core. So they sleep at once."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def allow_pandas() -> None:
    """For libraries that need it, whatever Arrow found at its start."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _Absent]


def show_all() -> None:
    """Have standard output replace what its encoding lacks: ε is charged by then, and must not seem to have failed."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON for standard output: escapes stand for what its encoding lacks, so that a program reads every value."""
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    return json.dumps(data, ensure_ascii=not unicode, indent=indent)


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


def _command(app: typer.Typer) -> Any:
    from label_dp.service.outline import commands_of

    return commands_of(app)


def whole(option: str, least: int | None = None, most: int | None = None) -> Callable[[object], int]:
    """Reads a whole number from `least` to `most` as `label_dp.numbers` spells them; the `parser` of a typer option."""

    def number(given: object) -> int:
        try:
            return int(_within(whole_of(given), least, most))
        except BadSpelling:
            raise InvalidInput(f"{option} takes a whole number{_bounds(least, most)}, {SPELLING}.") from None

    return number


def real(option: str, least: int | None = None, most: int | None = None) -> Callable[[object], float]:
    """As `whole`, of any number."""

    def number(given: object) -> float:
        try:
            return float(_within(real_of(given), least, most))
        except BadSpelling:
            raise InvalidInput(f"{option} takes a number{_bounds(least, most)}, {SPELLING}.") from None

    return number


def _within(number: Any, least: int | None, most: int | None) -> Any:
    if (least is not None and number < least) or (most is not None and number > most):
        raise BadSpelling("out of range")
    return number


def _bounds(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "" if least is None else f" of {least} or more"
    return f" from {least} to {most}"


def fail(detail: str, code: int) -> None:
    print(f"error: {printable(detail)}", file=sys.stderr)  # noqa: T201 - the command line's own output
    raise SystemExit(code)


def warn(detail: str) -> None:
    """A sentence on stderr, so that neither a table nor a document on stdout has it."""
    print(f"warning: {printable(detail)}", file=sys.stderr)  # noqa: T201 - the command line's own output


def confirm(what: str, sure: bool) -> None:
    """Ask on a terminal before what cannot be undone. Programs are not asked, and `sure` (--yes) is the answer."""
    if sure or not sys.stdin.isatty():
        return
    asked = f"{printable(what)} This cannot be undone. Go on? [y/N] "
    print(asked, end="", file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was done", 1)


def emit(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """One JSON document for programs, or `human()` for people."""
    if as_json:
        print(json_text(data, indent=2))  # noqa: T201 - the command line's own output
    else:
        human()


def writable(path: Path, force: bool = False) -> None:
    """Refuse an output that exists (unless `force`) or whose folder does not; call it before long work.

    A device or a pipe, such as /dev/stdout, may always be written. Raises InvalidInput (exit code 2).
    """
    if not path.parent.is_dir():
        raise InvalidInput(f"The folder '{path.parent}' for '{path.name}' does not exist; make it first.")
    if not force and (path.is_file() or path.is_dir()):
        raise InvalidInput(f"'{path}' exists already. Give --force to replace it, or choose another name.")


@contextmanager
def replacing(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary path beside `path`, for a file or a folder that the body makes; it takes the name `path` at the end.

    The name appears complete or not at all, and an earlier file stays until then. The temporary name ends like
    `path`, so that writers which go by the suffix do the same. Raises InvalidInput as `writable` does, also where the
    name was taken meanwhile, and InvalidFile where it cannot be written.
    """
    writable(path, force)
    target = path.resolve()  # a link stays a link
    device = target.exists() and not target.is_file() and not target.is_dir()  # or a pipe
    temporary = target if device else target.with_name(f".{secrets.token_hex(6)}-{target.name[-100:]}")
    try:
        yield temporary
        if not device:
            _put(temporary, target, force)
    except BrokenPipeError:  # whoever read has enough
        raise
    except FileExistsError:
        raise InvalidInput(f"'{path}' was made by someone else meanwhile; nothing was replaced.") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "its disk refused"
        raise InvalidFile(f"'{path}' cannot be written ({reason}).") from None
    finally:
        if not device:
            _remove(temporary)


@contextmanager
def paid_for(again: str) -> Iterator[None]:
    """Around the output of what was charged: a refusal to write it says that `again` does so, free of charge."""
    try:
        yield
    except InvalidInput as error:
        error.detail += f" What was charged is kept: {again}, free of charge."
        raise


def _put(temporary: Path, target: Path, force: bool) -> None:
    if temporary.is_dir():
        if not force or not target.exists():
            target.mkdir()  # claims the name; a folder may be renamed onto an empty one
            temporary.rename(target)
            return
        aside = target.with_name(f".{secrets.token_hex(6)}-replaced")
        target.rename(aside)
        temporary.rename(target)
        _remove(aside)
        return
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    if force:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)  # unlike a rename, this never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        temporary.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def progress(title: str, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on a terminal's stderr, a line now and then when piped; call it with (what, share between 0 and
    1)."""
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
    """Progress as lines, the first one after LINE_EVERY seconds."""
    latest = now()

    def line(what: str, share: float) -> None:
        nonlocal latest
        if now() - latest >= LINE_EVERY:
            latest = now()
            echo(f"{title}: {what}, {share:.0%}", error=True)

    return line


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A plain table for people, as wide as the terminal (or COLUMNS); numbers right-aligned; without a header if all
    columns are unnamed. Into a file or a pipe every row is one line."""
    from label_dp.service.layout import lines

    for line in lines(title, columns, rows, _width()):
        echo(line)


def echo(text: object, *, error: bool = False) -> None:
    """Lines for people, control characters as escapes: what they quote may come from elsewhere, and a terminal would
    obey it."""
    for line in str(text).split("\n"):
        print(printable(line), file=sys.stderr if error else sys.stdout)


def say(text: str, indent: int = 0) -> None:
    """A sentence for people, wrapped between words where the terminal (or COLUMNS) is narrower; later lines indented.

    Into a file or a pipe it is one line.
    """
    import textwrap

    wrapper = textwrap.TextWrapper(
        _width(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    echo(wrapper.fill(text))


def _width() -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return max(int(asked), 40)
    return max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else PIPED


def show_version(asked: bool) -> None:
    """What `--version` does, as a callback of typer."""
    if asked:
        from importlib.metadata import version

        print(f"label-dp-service {version('label-dp-service')}")  # noqa: T201 - the command line's own output
        raise SystemExit(0)
