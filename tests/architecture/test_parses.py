"""A value is parsed once, when it is read: how often one acceptance of a message parses ε."""

from __future__ import annotations

from pathlib import Path

from tests.measures.parses import acceptance


def test_an_acceptance_parses_epsilon_fewer_than_twelve_times(tmp_path: Path) -> None:
    calls = acceptance(tmp_path)
    assert 0 < calls.total() < 12, calls.most_common()
