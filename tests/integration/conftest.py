"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.desk import Desk, watched_desk
from tests.support.labels import LabelsParty


@pytest.fixture
def desk(party: LabelsParty, caplog: pytest.LogCaptureFixture) -> Iterator[Desk]:
    """An open batch of a population with the rule `refuse`, at debug level."""
    with watched_desk(party, caplog) as opened:
        yield opened
