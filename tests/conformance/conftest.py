"""The kit, unpacked once."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.conformance.make import ARCHIVE


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kit")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place / "label-dp-conformance"
