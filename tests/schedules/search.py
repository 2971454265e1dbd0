"""Runs of seeds until one fails, and the shortest schedule that still fails alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tests.schedules.parties import Template
from tests.schedules.simulation import Simulation, Step, schedule
from tests.support.scratch import scratch

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What came of a schedule: the digest of its trace, or why it failed."""

    digest: str
    failure: str
    trace: list[str]

    @property
    def kind(self) -> str:
        """Of the failure: without ids and paths that an exception of the program may name."""
        return self.failure if self.failure.startswith("Broken") else self.failure.partition(":")[0]


class Runs:
    def __init__(self, folder: Path) -> None:
        self.folder, self.template = folder, Template(folder / "template")

    def play(self, steps: Sequence[Step], seed: object = 0) -> Run:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            simulation = Simulation(self.template, Path(folder))
            try:
                return Run(simulation.run(steps, seed), "", simulation.trace)
            except Exception as error:
                return Run("", f"{type(error).__name__}: {error}".split("\n")[0], simulation.trace)

    def first_failure(self, seeds: Iterable[int], days: int) -> tuple[int, Run] | None:
        for seed in seeds:
            run = self.play(schedule(seed, days), seed)
            if run.failure:
                return seed, run
        return None

    def shrunk(self, steps: Sequence[Step], seed: object = 0) -> list[Step]:
        """The steps without those that the same failure does without, and without faults that it does without."""
        wanted = self.play(steps, seed).kind
        assert wanted

        def fails(fewer: Sequence[Step]) -> bool:
            return self.play(fewer, seed).kind == wanted

        left = [steps[0], *fewest(list(steps[1:]), lambda rest: fails([steps[0], *rest]))]
        for place, step in enumerate(left):
            simpler = [*left[:place], replace(step, fault="", nth=0), *left[place + 1 :]]
            if step.fault and fails(simpler):
                left = simpler
        return left


def fewest(steps: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging: drop ever smaller parts as long as what is left fails."""
    size = max(len(steps) // 2, 1)
    while steps:
        start, before = 0, len(steps)
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if fails(fewer):
                steps = fewer
            else:
                start += size
        if size == 1 and len(steps) == before:
            break
        size = max(size // 2, 1)
    return steps


@contextmanager
def runs() -> Iterator[Runs]:
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        yield Runs(Path(folder))
