"""No test is lost between `make test` and `make check`, and none is run by both."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Unmarked

ROOT = Path(__file__).parents[2]
MARKERS = ("extended", "processes", "torch", "mlflow")
TARGETS = {
    name: expression.strip('"')
    for name, expression in re.findall(
        r"^([\w-]+):[^\n]*\n\t@[^\n]*-m pytest[^\n]*? -m (\"[^\"]*\"|\w+)(?: tests/unit)?$",
        (ROOT / "Makefile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}
PIPELINE = """
make test
make dist
make -j2 --output-sync lint .venv/.mlflow .venv/.torch # each keeps one core busy
make check
"""
STARTS: list[Callable[[], object]] = [
    lambda: subprocess.run(["true"]),
    lambda: multiprocessing.Process(target=int).start(),
    lambda: os.fork() or os._exit(0),
]


def targets_of(marks: set[str]) -> list[str]:
    return [name for name, asked in TARGETS.items() if eval(asked, {m: m in marks for m in MARKERS})]


def test_the_tests_of_quick_mutants_exist() -> None:
    kept = json.loads((ROOT / "tests" / "measures" / "mutants.json").read_text(encoding="utf-8"))
    assert [path for path in kept["quick"]["tests"] if not (ROOT / path).exists()] == []
    assert kept["quick"]["floors"].keys() == kept["whole"]["floors"].keys()


def test_the_targets_are_those_that_the_pipeline_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(TARGETS) == {"test", "test-extended", "test-processes", "test-torch", "test-mlflow"}
    assert "\ncheck: lint test-extended test-processes test-torch test-mlflow\n" in makefile
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").endswith(PIPELINE)


@pytest.mark.parametrize(
    "marks",
    [
        {*marks, *extended}
        for marks in ((), ("processes",), ("torch",), ("processes", "torch"), ("mlflow",), ("processes", "mlflow"))
        for extended in ((), ("extended",))
    ],
    ids=lambda marks: " ".join(sorted(marks)) or "none",
)
def test_whatever_its_markers_a_test_belongs_to_one_target(marks: set[str]) -> None:
    assert len(targets_of(marks)) == 1


@pytest.mark.extended  # which collects everything
def test_what_needs_the_network_is_where_its_target_looks(collected: list[pytest.Item]) -> None:
    trained = [item.nodeid for item in collected if targets_of({m.name for m in item.iter_markers()}) == ["test-torch"]]
    assert [name for name in trained if not name.startswith("tests/unit/")] == []


@pytest.mark.parametrize("start", STARTS)
def test_a_test_without_the_marker_cannot_start_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(Unmarked, match=r"make check"):
        start()
