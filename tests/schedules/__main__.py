"""`python -m tests.schedules --days N --seed S` plays days of seeds from S on, each of SPAN days, and says how fast.

At the first failure it prints the seed, what failed and the shortest schedule that fails alike, and ends with 1.
`--digests N` prints one digest for each of N seeds; `--line SCHEDULE` plays one schedule and prints its trace.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import sys
import time

from tests.schedules.bugs import Bug
from tests.schedules.search import Runs, runs
from tests.schedules.simulation import parsed, schedule, written
from tests.support.one_process import one_process
from tests.support.replayed_schemas import replayed_schemas

SPAN = 20  # days of one seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--days", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digests", type=int, default=0)
    parser.add_argument("--line")
    parser.add_argument("--bug", choices=[bug.name for bug in Bug])
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    with replayed_schemas(), one_process(), runs() as of:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        with Bug[asked.bug].planted() if asked.bug else contextlib.nullcontext():
            if asked.line:
                run = of.play(parsed(asked.line))
                print(*run.trace, run.failure or run.digest, sep="\n")
                return int(bool(run.failure))
            if asked.digests:
                seeds = range(asked.seed, asked.seed + asked.digests)
                print(*(of.play(schedule(seed, 4), seed).digest for seed in seeds))
                return 0
            return search(of, asked.seed, asked.days)


def search(of: Runs, seed: int, days: int) -> int:
    began, spent, seeds = time.perf_counter(), time.process_time(), range(seed, seed - -days // SPAN)
    failed = of.first_failure(seeds, SPAN)
    if failed is None:
        days = len(seeds) * SPAN
        clock, processor = time.perf_counter() - began, time.process_time() - spent
        rate = f"{days / clock:.1f} a second, {days / processor:.1f} a processor second"
        print(f"{days} days of {len(seeds)} seeds hold: {rate}")
        return 0
    seed, run = failed
    print(f"seed {seed} fails: {run.failure}", *run.trace[-5:], sep="\n", flush=True)
    print(f'"{written(of.shrunk(schedule(seed, SPAN), seed))}"')
    return 1


if __name__ == "__main__":
    sys.exit(main())
