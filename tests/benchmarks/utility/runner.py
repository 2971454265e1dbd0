"""Compute the cells that are not stored yet, in as many processes as asked for; what is done stays done."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from label_dp.errors import LabelDPError
from tests.benchmarks.utility.cells import Cell
from tests.benchmarks.utility.sources import use_files
from tests.benchmarks.utility.store import Result, Store

Advance = Callable[[str], None]
EVERY = 30.0  # seconds between the lines that stand for a progress bar where there is no terminal


def compute(cell: Cell) -> Result:
    """The cell's result, or why the service refuses it, with the seconds it took."""
    from tests.benchmarks.utility import codes, combined, conversions, coverage, curve, randomizing, training
    from tests.benchmarks.utility.peers import cell as peers_cell

    how: Mapping[str, Callable[[Cell], Result]] = {
        "train": training.train,
        "prior": randomizing.prior_loss,
        "joint": randomizing.joint_density,
        "coverage": coverage.coverage,
        "curve": curve.curve,
        "conversions": conversions.conversions,
        "rare": conversions.rare,
        "peers": peers_cell.peers,
        "combined": combined.combined,
        "codes": codes.codes,
    }
    began = time.perf_counter()
    try:
        result = how[cell.kind](cell)
    except LabelDPError as refusal:
        result = {"refused": str(refusal)}
    return result | {"seconds": round(time.perf_counter() - began, 2)}


def run(cells: Iterable[Cell], store: Store, jobs: int = 1, files: Mapping[str, Path] | None = None) -> dict[Cell, str]:
    """Compute and store what is missing; returns the cells that failed, each with its error.

    Stopping it (Ctrl-C) loses only the cells in work.
    """
    stored = store.read()
    left = [cell for cell in dict.fromkeys(cells) if cell not in stored]
    failed: dict[Cell, str] = {}
    with _progress(len(left)) as advance:
        if jobs == 1:
            use_files(files or {})
            for cell in left:
                try:
                    store.add(cell, compute(cell))
                except Exception as error:  # one broken cell must not cost the others
                    failed[cell] = _words(error)
                advance(str(cell))
        elif left:
            _in_processes(left, store, jobs, files or {}, failed, advance)
    return failed


def _in_processes(
    left: list[Cell], store: Store, jobs: int, files: Mapping[str, Path], failed: dict[Cell, str], advance: Advance
) -> None:
    # spawn: a forked child would inherit the threads' locks of the numerical libraries
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=use_files, initargs=(dict(files),)) as pool:
        futures = {pool.submit(compute, cell): cell for cell in left}
        try:
            for future in as_completed(futures):
                cell = futures.pop(future)
                try:
                    store.add(cell, future.result())
                except Exception as error:  # one broken cell must not cost the others
                    failed[cell] = _words(error)
                advance(str(cell))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


@contextmanager
def _progress(total: int) -> Iterator[Advance]:
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        columns: list[Any] = [BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Remaining()]
        with Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total)
            yield lambda what: bar.update(task, advance=1, description=what)
        return
    began = last = time.monotonic()
    done = 0

    def advance(what: str) -> None:
        nonlocal done, last
        done += 1
        now = time.monotonic()
        if now - last >= EVERY or done == total:
            last = now
            print(f"{done} of {total} cells, {now - began:.0f} s, last: {what}", file=sys.stderr, flush=True)

    yield advance
