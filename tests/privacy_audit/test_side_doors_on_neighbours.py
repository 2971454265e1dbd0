"""Side doors: what a labels party shows besides the randomized labels is the same for neighbouring label vectors.

One whole day (intake in four formats, refusals, seals that fail, plans, releases, statements, the command's way,
budget, audit, webhooks, metrics, erasure, purge) is lived in two worlds that differ in one label, the two reads of
labels that ε pays for being replaced by constants. Every status, header, body, log record, progress report, row of the
database and size of a file is recorded and must be the same, to the byte; durations alone are left out
(`test_durations.py`).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from labels_party.labels.seal import SealedLabels
from labels_party.message.engine import LocalEngine
from tests.support.labels import LabelsParty
from tests.support.recorded_day import Day, Entry, differences

log = logging.getLogger("label_dp.planted")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys of one labels party, for all worlds."""
    home = tmp_path_factory.mktemp("keys") / "home"
    with LabelsParty(home, worker=False):
        (home / "keys" / "secret.key").unlink()
    return home / "keys"


def lived(folder: Path, keys: Path, label: float | None, **how: bool) -> Day:
    day = Day(folder / f"world-{label}" / "home", label, **how)
    day.live(keys)
    return day


@pytest.fixture(scope="module")
def usual(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Day:
    return lived(tmp_path_factory.mktemp("usual"), keys, 3.0)


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(9.0, id="another"),
        pytest.param(5000.0, id="clipped", marks=pytest.mark.extended),
        pytest.param(None, id="deleted", marks=pytest.mark.extended),
    ],
)
def test_everything_but_what_epsilon_pays_for_is_the_same(
    label: float | None, usual: Day, keys: Path, tmp_path: Path
) -> None:
    other = lived(tmp_path, keys, label)
    assert differences(usual, other) == []
    seen = {where.split(" ")[0] for where, _, _ in usual.entries}
    assert {"GET", "POST", "PUT", "log", "progress", "privatize", "privatize:", "labels-party", "table", "file"} <= seen
    statuses = {value for _, what, value in usual.entries if what == "status"}
    assert {200, 201, 202, 206, 403, 404, 409, 422} <= statuses


@pytest.mark.extended
def test_only_its_sender_sees_whether_a_listed_example_had_a_label(usual: Day, keys: Path, tmp_path: Path) -> None:
    """An upload's own answer counts its rows; everything else is as if the missing-label value had been sent."""
    found = differences(usual, lived(tmp_path, keys, 3.0, sent=False))
    assert found
    assert all("/labels" in entry[0] for pair in found for entry in pair), found


# --- planted controls ----------------------------------------------------------------------------------------


def total(job: Any) -> int:
    return sum(int(index.sum()) for _, index in job.labels.chunks())


def logs_a_sum(patch: pytest.MonkeyPatch) -> None:
    def telling(job: Any, channel: Any) -> Iterator[Any]:
        log.info("labels sum to %d", total(job))
        return sampled(job, channel)

    sampled = LocalEngine._sampled
    patch.setattr(LocalEngine, "_sampled", staticmethod(telling))


def tells_progress_by_label(patch: pytest.MonkeyPatch) -> None:
    def telling(job: Any, channel: Any) -> Iterator[Any]:
        job.progress("drawing", total(job) / 1000)
        return sampled(job, channel)

    sampled = LocalEngine._sampled
    patch.setattr(LocalEngine, "_sampled", staticmethod(telling))


def states_a_realised_loss(patch: pytest.MonkeyPatch) -> None:
    def telling(self: LocalEngine, job: Any) -> Any:
        return dataclasses.replace(draw(self, job), expected_loss=float(total(job)))

    draw = LocalEngine.draw
    patch.setattr(LocalEngine, "draw", telling)


def orders_rows_by_label(patch: pytest.MonkeyPatch) -> None:
    def telling(self: SealedLabels) -> Iterator[Any]:
        for ids, index in chunks(self):
            order = np.argsort(index, kind="stable")
            yield ids.take(order), index[order]

    chunks = SealedLabels.chunks
    patch.setattr(SealedLabels, "chunks", telling)


def warns_of_clipping(patch: pytest.MonkeyPatch) -> None:
    def telling(self: Domain, labels: Any, tolerance: float = 0.0) -> Any:
        found, outside = index(self, labels, tolerance)
        if outside.any():
            log.warning("labels were clipped")
        return found, outside

    index = Domain.index
    patch.setattr(Domain, "index", telling)


def test_control_every_planted_side_door_is_seen(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for plant in (logs_a_sum, tells_progress_by_label, states_a_realised_loss, orders_rows_by_label, warns_of_clipping):
        plant(monkeypatch)
    one, other = (lived(tmp_path, keys, label, up_to_releases=True) for label in (3.0, 5000.0))
    found = differences(one, other)
    entries: list[Entry] = [entry for pair in found for entry in pair]
    for place, value in (
        ("log label_dp.planted", "labels sum"),
        ("log label_dp.planted", "clipped"),
        ("progress", ""),
        ("/manifest", "expected_loss"),
        ("/message", "PAR1"),
    ):
        assert any(place in where and value in text_of(told) for where, _, told in entries), (place, value)


def text_of(value: Any) -> str:
    """Also of an envelope, whose payload is in base64."""
    if not isinstance(value, bytes):
        return str(value)
    text = value.decode("latin-1")
    return text + (base64.b64decode(json.loads(text)["payload"]).decode() if '"payload"' in text else "")
