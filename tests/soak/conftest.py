"""The scale of a soak, its seed, and the one table it prints and keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.soak.report import Report

RESULTS = Path(__file__).parent / "results"
REPORT: pytest.StashKey[Report] = pytest.StashKey()


@dataclass(frozen=True)
class Scale:
    """How long each part may take, and the seed of what it generates."""

    seconds: float
    seed: int


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--seconds", type=float, default=float(os.environ.get("SECONDS_EACH", "180")), help="for each part")
    group.addoption("--seed", type=int, default=int(os.environ.get("SEED", str(time.time_ns() % 10**9))))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORT] = Report(config.getoption("--seed", 0), config.getoption("--seconds", 0.0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(RESULTS.parent):
            item.add_marker("processes")  # `make soak` runs these, whatever they start


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> Scale:
    return Scale(request.config.getoption("--seconds"), request.config.getoption("--seed"))


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """Takes the rows of one test, and keeps them whatever ends the run later; a test that fails keeps those it had."""
    found: Report = request.config.stash[REPORT]
    found.begin(request.node.name)
    yield found
    found.end()
    found.keep(RESULTS, whole=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    if call.when == "call" and call.excinfo is not None:
        item.config.stash[REPORT].failed(item.name, str(call.excinfo.value))
    return outcome  # type: ignore[return-value]  # the hook's own result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash[REPORT]
    if found.rows or found.findings:
        terminalreporter.write_line("")
        terminalreporter.write_line(found.table())
        parts = config.args != [RESULTS.parent.relative_to(config.rootpath).as_posix()] or config.getoption("keyword")
        found.keep(RESULTS, whole=not parts)
        terminalreporter.write_line(f"kept in {RESULTS.relative_to(Path.cwd())}")
