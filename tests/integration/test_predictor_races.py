"""Predictors asked at once, and broken off: every query is drawn and charged once, or not at all."""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from label_dp.errors import (
    BudgetExceeded,
    RandomnessUnavailable,
    Unavailable,
)
from labels_party.bootstrap import bootstrap
from labels_party.companions.mechanisms.private_prediction import lattice
from labels_party.settings import Settings
from tests.support.labels import LabelsParty
from tests.support.predicting import (
    ask,
    made,
    of_batch,
    tables,
    with_features,
)

pytestmark = pytest.mark.extended


def test_duplicates_at_once_are_drawn_and_charged_once(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(party, predictor), range(24)))
    assert len({f.envelope for f in found}) == 1
    assert party.spent(batch) == "0.5"


def test_a_cap_holds_against_many_at_once(ready: tuple[LabelsParty, str]) -> None:
    party, batch = ready
    predictor = made(party, batch, cap="1.5")

    def one(x: int) -> bool:
        try:
            return bool(ask(party, predictor, {"x": x}))
        except BudgetExceeded:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(10))) == 3
    assert party.spent(batch) == "1.5"


def _asks(home: Path, predictor: str, said: Any) -> None:
    services = bootstrap(Settings(home=home))
    said.put([services.companions.queries.predict(predictor, {"x": x}, "test").envelope for x in (1, 2, 1)])
    services.close()


@pytest.mark.processes
def test_two_processes_draw_once(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        batch = with_features(party, *tables(60))
        predictor = made(party, batch)
        context = multiprocessing.get_context("spawn")
        said = context.Queue()
        other = context.Process(target=_asks, args=(tmp_path / "home", predictor, said))
        other.start()
        while other.is_alive() and said.empty():  # until it has asked as well
            ours = [ask(party, predictor, {"x": x}).envelope for x in (1, 2, 1)]
            time.sleep(0.02)
        theirs = said.get(timeout=60)
        other.join()
        assert ours == theirs
        assert ours[0] == ours[2] != ours[1]
        assert party.spent(batch) == "1"


class Stop(BaseException):
    pass


@pytest.mark.parametrize(
    ("point", "charged"),
    [
        ("prediction.draw:begin", False),
        ("prediction.charged", False),
        ("prediction.draw:before-commit", False),
        ("prediction.draw:after-commit", True),
    ],
)
def test_broken_off_anywhere_it_is_charged_with_its_answer_or_not_at_all(
    tmp_path: Path, point: str, charged: bool
) -> None:
    armed = False

    def fault(name: str) -> None:
        if armed and name == point:
            raise Stop

    with LabelsParty(tmp_path / "home", worker=False, faults=fault) as party:
        batch = with_features(party, *tables(60))
        predictor = made(party, batch)
        armed = True
        with pytest.raises(Stop):
            ask(party, predictor)
    with LabelsParty(tmp_path / "home", worker=False) as party:
        assert party.spent(batch) == ("0.5" if charged else "0")
        found = ask(party, predictor)
        assert party.spent(batch) == "0.5"
        assert ask(party, predictor).envelope == found.envelope


def test_training_that_was_broken_off_is_done_again(tmp_path: Path) -> None:
    armed = True

    def fault(name: str) -> None:
        if armed and name in ("predictor.trained", "predictor.ready:before-commit"):
            raise Stop

    with LabelsParty(tmp_path / "home", worker=False, faults=fault) as party:
        batch = with_features(party, *tables(60))
        with pytest.raises(Stop):
            made(party, batch)
        armed = False
        party.services.worker.drain()
        (predictor,) = of_batch(party, batch)
        assert predictor["state"] == "ready"
        assert ask(party, predictor["id"]).answer


def test_without_randomness_nothing_is_charged(ready: tuple[LabelsParty, str], monkeypatch: pytest.MonkeyPatch) -> None:
    party, batch = ready
    predictor = made(party, batch)

    def none(*_: Any) -> Any:
        raise RandomnessUnavailable("The operating system gave no randomness, so nothing was drawn.")

    with monkeypatch.context() as patch:
        patch.setattr(lattice, "discrete_laplace", none)
        with pytest.raises(RandomnessUnavailable):
            ask(party, predictor)
    assert party.spent(batch) == "0"
    assert ask(party, predictor).answer


def test_an_old_copy_of_the_database_is_noticed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LabelsParty(home, worker=False) as party:
        batch = with_features(party, *tables(60))
        predictor = made(party, batch)
        ask(party, predictor)
        with sqlite3.connect(home / "labels-party.sqlite") as now, sqlite3.connect(tmp_path / "old") as old:
            now.backup(old)
        ask(party, predictor, {"x": 1})
    with sqlite3.connect(tmp_path / "old") as old, sqlite3.connect(home / "labels-party.sqlite") as now:
        old.backup(now)
    with pytest.raises(Unavailable, match="older than the folder"):
        LabelsParty(home, worker=False)
