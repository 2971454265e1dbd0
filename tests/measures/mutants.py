"""`make mutants`: a seeded sample of small changes of the product, and how many of them its tests notice.

First all tests run once and note which lines each of them reaches. Then each change is tried, in a copy of the
checkout, by the tests that reach its line, quickest first. `make mutants ARGS="--count 20 --seed 3"`; `--checkout`
measures another one, so that two suites can be compared. `--quick` takes ten minutes: the tests that
`mutants.json` names, and changes of lines that they reach. Ends with 1 if a room is below its floor there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

from tests.measures.mutations import ROOMS, Mutation, chosen

ROOT = Path(__file__).parents[2]
KILLED, SURVIVED, STOPPED, UNREACHED = "killed", "survived", "stopped", "unreached"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "demo-output", "dist")
MARGIN = 30  # seconds of a processor beside four times what the tests take
WALL = 10  # as many times that, and it sleeps
KEPT = Path(__file__).with_name("mutants.json")  # of a quick and of a whole run: tests, and the floors of rooms
_written = itertools.count(1)


@dataclass(frozen=True)
class Reach:
    """Which tests reach a line, and how many seconds each of them takes."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def running(self, mutation: Mutation) -> set[str]:
        """The tests that run one of its lines."""
        lines = self.tests.get(mutation.file, {})
        return {test for line in mutation.lines for test in lines.get(line, ())}

    def of(self, mutation: Mutation, budget: float) -> list[str]:
        """The quickest tests that run it, as many as fit into `budget` seconds; of its file, where no test does."""
        lines = self.tests.get(mutation.file, {})
        found = sorted(self.running(mutation) or {test for tests in lines.values() for test in tests})
        ranked = sorted(found, key=lambda test: self.seconds.get(test, 0.0))
        total = list(itertools.accumulate(self.seconds.get(test, 0.0) for test in ranked))
        return [test for test, until in zip(ranked, total, strict=True) if until <= budget or until == total[0]]


def reach(checkout: Path, folder: Path, tests: Sequence[str]) -> Reach:
    """Run all tests once, each line noted with the tests that reach it. Raises SystemExit where one fails."""
    config, seconds, data = folder / "coveragerc", folder / "seconds.json", folder / "data"
    config.write_text(f"[run]\nsource = {checkout}\nomit = */tests/*\ndata_file = {data}\n", encoding="utf-8")
    options = [f"--cov-config={config}", "--cov", "--cov-context=test", "--cov-report=", "-p", "tests.measures.seconds"]
    environment = os.environ | {"TEST_SECONDS": str(seconds), "PYTHONPATH": f"{_own(checkout)}{os.pathsep}{ROOT}"}
    asked = ["-n", "2", "--dist", "worksteal", "-m", "not processes and not torch and not mlflow", *tests]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *asked]
    if subprocess.run(command, cwd=checkout, env=environment, check=False).returncode:
        raise SystemExit("The tests fail before anything is changed.")
    known, found = CoverageData(str(data)), dict[str, dict[int, list[str]]]()
    known.read()
    for file in known.measured_files():
        lines = known.contexts_by_lineno(file)
        found[Path(file).relative_to(checkout).as_posix()] = {
            line: sorted({context.rpartition("|")[0] for context in contexts if context})
            for line, contexts in lines.items()
        }
    return Reach(found, json.loads(seconds.read_text(encoding="utf-8")))


def tried(mutation: Mutation, copy: Path, tests: list[str], seconds: float) -> str:
    """What the tests make of it, in a copy of the checkout that is as it was afterwards."""
    if not tests:
        return UNREACHED
    path, asked = copy / mutation.file, copy / ".tests-of-a-mutant"
    asked.write_text("\n".join(tests), encoding="utf-8")
    before = path.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"@{asked}"]
    environment = os.environ | {"PYTHONPATH": _own(copy)}
    most = int(4 * seconds) + MARGIN
    try:
        _write(path, mutation.text(before))
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=WALL * most,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most)),
        )
    except subprocess.TimeoutExpired:
        return STOPPED
    finally:
        _write(path, before)
    return STOPPED if done.returncode < 0 else KILLED if done.returncode else SURVIVED


def _own(checkout: Path) -> str:
    """Where the modules of a checkout are found, before those that are installed."""
    return f"{checkout}{os.pathsep}{checkout / 'shared'}"


def _write(path: Path, text: str) -> None:
    """With a time of its own: compiled modules are told from older ones by whole seconds and sizes."""
    path.write_text(text, encoding="utf-8")
    moment = int(time.time()) + next(_written)
    os.utime(path, (moment, moment))


def report(outcomes: dict[Mutation, str]) -> list[str]:
    """A line a room and one for all. A change that made the tests run for ever was noticed."""
    names = (KILLED, STOPPED, SURVIVED, UNREACHED)
    lines = [f"{'room':12}" + "".join(f"{name:>11}" for name in names) + f"{'noticed':>11}"]
    for room in (*ROOMS, "total"):
        counts = Counter(o for m, o in outcomes.items() if room in (m.room, "total"))
        all_of_them = sum(counts.values())
        share = f"{100 * (counts[KILLED] + counts[STOPPED]) / all_of_them:9.1f} %" if all_of_them else f"{'-':>11}"
        lines.append(f"{room:12}" + "".join(f"{counts[name]:11}" for name in names) + share)
    return lines


def below(outcomes: dict[Mutation, str], floors: dict[str, float]) -> list[str]:
    """A sentence for each room of which less is noticed than its floor says."""
    found = []
    for room, floor in floors.items():
        own = [outcome for mutation, outcome in outcomes.items() if mutation.room == room]
        share = 100 * sum(outcome in (KILLED, STOPPED) for outcome in own) / max(len(own), 1)
        if own and share < floor:
            found.append(f"{room}: {share:.1f} % noticed, and at least {floor:g} % should be")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small sample and the quick tests: ten minutes")
    parser.add_argument("--count", type=int, help="changes; 480, or 48 of --quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--budget", type=float, help="seconds of tests for each change; 60, or 10 of --quick")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("tests", nargs="*", help="tests to measure instead of all, as pytest takes them")
    told = parser.parse_args()
    checkout, quick = told.checkout.resolve(), told.quick
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["quick" if quick else "whole"]
    count, budget = told.count or (48 if quick else 480), told.budget or (10.0 if quick else 60.0)
    with tempfile.TemporaryDirectory() as name:
        folder, copies = Path(name), queue.SimpleQueue[Path]()
        known = reach(checkout, folder, told.tests or kept["tests"])
        for number in range(told.jobs):
            copies.put(Path(shutil.copytree(checkout, folder / f"copy-{number}", ignore=NOT_COPIED)))

        def judge(mutation: Mutation) -> str:
            tests, copy = known.of(mutation, budget), copies.get()
            try:
                return tried(mutation, copy, tests, sum(known.seconds.get(test, 0.0) for test in tests))
            finally:
                copies.put(copy)

        def reached(mutation: Mutation) -> bool:
            return bool(known.running(mutation))

        mutations = chosen(checkout, count, told.seed, *[reached][:quick])
        with ThreadPoolExecutor(told.jobs) as pool:
            outcomes = dict(zip(mutations, pool.map(judge, mutations), strict=True))
    print("\n".join(report(outcomes)))
    for mutation, outcome in outcomes.items():
        if outcome in (SURVIVED, UNREACHED):
            print(f"{outcome}: {mutation.told((checkout / mutation.file).read_text(encoding='utf-8'))}")
    missed = below(outcomes, kept["floors"])
    print("\n".join(missed))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
