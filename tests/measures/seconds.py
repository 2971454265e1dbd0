"""A plugin of pytest: how long each test took, as JSON in the file that $TEST_SECONDS names."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration  # type: ignore[assignment]  # seconds, not counts


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # the process that hears of every test
        Path(os.environ["TEST_SECONDS"]).write_text(json.dumps(_seconds), encoding="utf-8")
