"""Schedules of both parties under virtual time: they replay, hold on the product, and find each planted bug."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.schedules.__main__ import SPAN
from tests.schedules.bugs import Bug
from tests.schedules.kept import FOUND, PLANTED
from tests.schedules.search import Runs, fewest, runs
from tests.schedules.simulation import parsed, schedule, written

ROOT = Path(__file__).parents[2]
DAYS, EACH = 1000, 100


@pytest.fixture(scope="module")
def of() -> Iterator[Runs]:
    with runs() as found:
        yield found


@pytest.mark.extended
@pytest.mark.parametrize("first", range(0, DAYS // SPAN, EACH // SPAN))
def test_days_hold(of: Runs, first: int) -> None:
    found = of.first_failure(range(first, first + EACH // SPAN), SPAN)
    if found is not None:
        seed, run = found
        line = written(of.shrunk(schedule(seed, SPAN), seed))
        pytest.fail(f'seed {seed}: {run.failure}; to be kept: "{line}"')


@pytest.mark.parametrize("line", FOUND)
def test_what_failed_once_holds(of: Runs, line: str) -> None:
    assert of.play(parsed(line)).failure == ""


@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(of: Runs, bug: Bug) -> None:
    line, failure = PLANTED[bug]
    assert of.play(parsed(line)).failure == ""
    with bug.planted():
        assert failure in of.play(parsed(line)).failure


def test_a_seed_replays_step_by_step(of: Runs) -> None:
    for seed in (2, 3):
        assert of.play(schedule(seed, 3), seed).trace == of.play(schedule(seed, 3), seed).trace


def test_another_seed_is_another_schedule(of: Runs) -> None:
    assert len({of.play(schedule(seed, 1), seed).digest for seed in range(3)}) == 3


@pytest.mark.processes
def test_a_seed_replays_in_another_process(of: Runs) -> None:
    """With another order of sets, other keys, draws and folders."""
    seeds = range(20, 26)
    command = [sys.executable, "-m", "tests.schedules", "--digests", str(len(seeds)), "--seed", str(seeds[0])]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [of.play(schedule(seed, 4), seed).digest for seed in seeds]


def test_a_schedule_is_one_line(of: Runs) -> None:
    for seed in range(20):
        assert parsed(written(schedule(seed, 5))) == schedule(seed, 5)


def test_a_schedule_is_shrunk_to_what_fails() -> None:
    assert fewest([*range(40)], lambda left: {7, 8, 31} <= {*left}) == [7, 8, 31]
