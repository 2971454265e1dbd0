"""The protocol of charged work as a model, every state of it: what must hold does, and each planted bug is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.bugs import HOLE, PROPERTIES, Bug, options
from tests.model.spin import MODEL, SpinFailed, installed, verdict

pytestmark = pytest.mark.processes
LONGEST = 300  # lines


@pytest.fixture(autouse=True)
def _spin() -> None:
    installed()


def test_in_no_state_anything_fails_that_must_hold(tmp_path: Path) -> None:
    found = verdict(tmp_path)
    assert found.failure == ""
    assert found.states > 1_000_000, "much of the protocol is not reached any more"


def test_charged_work_ends_once_the_faults_stop(tmp_path: Path) -> None:
    """Without any fairness, which the bugs below are granted."""
    found = verdict(tmp_path, "-DFAULTS=1", ends=True)
    assert found.failure == ""
    assert found.states > 100_000


@pytest.mark.parametrize("bug", Bug, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    ends = bug.breaks == "cycle"
    assert verdict(tmp_path, *options(bug), ends=ends, fair=ends, quick=True).failure == bug.breaks


def test_every_property_has_a_bug_that_breaks_it() -> None:
    assert {bug.breaks for bug in Bug} == {*PROPERTIES, "cycle"}


def test_a_database_from_the_midst_of_a_publication_is_drawn_again(tmp_path: Path) -> None:
    """The one thing that SECURITY.md says is not noticed, and the model leaves out."""
    assert verdict(tmp_path, HOLE, "-DFAULTS=1", quick=True).failure == "one_draw"


def test_a_search_that_was_cut_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.model.spin.DEEPEST", 20)
    with pytest.raises(SpinFailed, match="max search depth too small"):
        verdict(tmp_path, "-DFAULTS=0", quick=True)


def test_the_model_can_be_read_in_one_sitting() -> None:
    assert len(MODEL.read_text(encoding="utf-8").splitlines()) <= LONGEST
