"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import pytest

from tests.support.demo import Told, run


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One demo for all who look at it or copy from it; nobody changes it."""
    where, clicks = tmp_path_factory.mktemp("demo"), 4000
    done = run(where, "--clicks", str(clicks))
    assert done.returncode == 0, done.stderr
    return Told(where, clicks, done)
