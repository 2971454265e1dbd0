"""From terms to a fit: the ε that was charged is the ε that is drawn with, and labels decide nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.monotone_grid import MonotoneGrid
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.domain import Domain
from label_dp.errors import DuplicateId, InvalidEpsilon, InvalidFile, InvalidInput, InvalidRows, TooLarge
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.calibration import OPTIONS
from labels_party.companions.kinds.calibration.kind import CalibrationKind
from labels_party.companions.kinds.calibration.scores import Scores
from labels_party.companions.kinds.calibration.shapes import SHAPES, Terms, fitted, parse_options
from labels_party.companions.mechanisms.isotonic.cells import Cells
from labels_party.labels.chunks import Chunk
from labels_party.storage.files import Home
from labels_party.storage.secrets import Secrets
from tests.support.asked import calibration_wish
from tests.support.asking import population as parse_population
from tests.support.jobs import job

DOMAIN = Domain.parse("0:10")
SECRETS = Secrets(bytes(32))
GRID = ScoreGrid.parse("0:10:100")
IDS = [f"c{i:03d}" for i in range(60)]


def test_help_names_every_option_of_every_shape() -> None:
    said = {shape: re.sub(r" \(such as .*?\)", "", text).split(", ") for shape, text in OPTIONS.items()}
    for shape, entry in SHAPES.items():
        expected = [f"{name} (needed)" if name == entry.form.needs else name for name in entry.form.options]
        assert sorted(said.pop(shape)) == sorted(expected)
    assert not said


def terms(epsilon: str = "1", **changes: Any) -> Terms:
    given = {"loss": "squared", "n": 60, "distinct": 60, "options": {}, "sent": np.arange(60)} | changes
    return Terms(DOMAIN, GRID.size, Epsilon.parse(epsilon), **given)


def cells_of(shape: str, options: dict[str, Any], numbers: Any) -> tuple[Cells, ...]:
    axes = SHAPES[shape].axes
    assert axes is not None
    return axes(parse_options(shape, options), numbers, [GRID.size] * len(numbers), 60, Epsilon.parse("1"), "squared")


def read(ids: list[str], *scores: list[Any]) -> Scores:
    fields = ("example_id", "score", "score_2")[: 1 + len(scores)]
    table = pa.table(dict(zip(fields, (ids, *scores), strict=True)))
    return Scores.read([Chunk(table, len(ids))], "revenue", SECRETS, [GRID] * len(scores), fields)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_only_the_charged_epsilon_and_the_labels_go_to_the_fit(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Terms, list[Any], list[int]]] = []

    def fit(found: Terms, x: Any, labels: Any) -> MonotoneMap:
        seen.append((found, x.tolist(), labels.tolist()))
        return MonotoneMap(found.x_size, np.zeros(0, np.int64), np.array([5.0]))

    entry = SHAPES[shape]
    monkeypatch.setitem(SHAPES, shape, replace(entry, fit=fit))
    home = Home(tmp_path / "home")
    home.prepare()
    # in any order, half of the batch, and one id that is not in it
    asked = [*reversed(IDS[::2]), "stranger"]
    scores = [float(int(i[1:]) % 10) if i[1:].isdigit() else 9.0 for i in asked]
    inputs = home.work / read(asked, *[scores, [9 - s for s in scores]][: entry.form.scores[-1]]).save(home.work)
    index = np.arange(60) % 11
    needed = {"pieces": 3, "lipschitz": "0.5"}
    wish = calibration_wish(
        epsilon="0.7",
        shape=shape,
        options={n: needed[n] for n in needed if n == entry.form.needs},
        scores=str(GRID),
        two=2 in entry.form.scores,
    )
    if 2 in entry.form.scores:
        wish = replace(wish, grids=(GRID, GRID))
    given = job(
        parse_population("shop", "revenue", DOMAIN, "3"),
        SimpleNamespace(chunks=lambda: iter([(pa.array(IDS), index)])),
        60,
        EpsilonSplit(ZERO, ZERO, wish.epsilon),
        wish.parameters,
        inputs,
    )
    nothing: Any = SimpleNamespace(database=None)
    CalibrationKind(nothing, nothing, nothing, SECRETS).compute(given)
    ((found, x, labels),) = seen
    assert found.epsilon == Epsilon.parse("0.7")
    assert (found.n, found.loss) == (31, "squared")  # what was sent, not what was met
    sent = [10 * (i % 10) for i in range(0, 60, 2)]
    assert x == (sent if entry.form.scores == (1,) else [sent, [90 - s for s in sent]])
    assert labels == index[::2].tolist()


@pytest.mark.parametrize("shape", ["bins", "monotone", "pieces", "convex", "grid"])
def test_what_a_map_is_made_of_says_nothing_of_which_ids_were_met(shape: str) -> None:
    """Places of cuts, number of pieces at most and facts are the same where all, some or none of the ids are met."""
    x, y = np.arange(0, 60, 2), np.arange(30) % 11
    options: dict[str, Any] = {"pieces": 3} if shape == "pieces" else {"cells": "2x3"} if shape == "grid" else {}
    two = shape == "grid"
    numbers = np.stack([x, x]) if two else x[None]
    cells = cells_of(shape, options, numbers) if SHAPES[shape].axes is not None else ()
    given = terms(options=options, sent=x, cells=cells)
    between = set() if shape == "convex" else {*((x[1:] + x[:-1] + 1) // 2).tolist(), 0, GRID.size}
    facts = []
    for met in (slice(0, 30), slice(0, 30, 7), slice(11, 12), slice(0, 0)):
        found, said = fitted(shape, given, numbers[:, met] if two else x[met], y[met])
        facts.append(said)
        if isinstance(found, MonotoneGrid):
            assert [b.tolist() for b in found.breakpoints] == [c.edges[1:-1].tolist() for c in cells]
        elif between:
            assert set(found.breakpoints.tolist()) <= between
    assert facts[1:] == facts[:-1]


def test_a_mean_is_no_quotient_by_which_its_examples_could_be_counted() -> None:
    x = np.zeros(3, np.int64)
    given = terms(sent=x, cells=cells_of("bins", {}, x[None]))
    for n in (1, 2, 3):
        for _ in range(20):
            (value,) = fitted("bins", given, x[:n], np.full(n, 7))[0].values * (1 << 16) / 10
            assert value == pytest.approx(round(value), abs=1e-9)


def test_a_plan_refuses_what_a_fit_would() -> None:
    for shape, options in (("monotone", {"levels": 4}), ("convex", {"values": 8})):
        with pytest.raises(InvalidEpsilon):
            SHAPES[shape].plan(terms("0.000001", options=options))
        SHAPES[shape].plan(terms(options=options))


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("round", {}),
        ("monotone", {"cells": 3}),
        ("monotone", {"levels": "x"}),
        ("pieces", {}),
        ("pieces", {"pieces": -1}),
        ("grid", {"pieces": 3}),
        ("grid", {"values": "many"}),
    ],
)
def test_options_are_those_of_the_shape(shape: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        parse_options(shape, options)


def test_scores_come_as_they_are_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRows):
        read(["a", "b"], [1.0, float("nan")])
    with pytest.raises(InvalidRows):
        read(["a", ""], [1.0, 2.0])
    with pytest.raises(DuplicateId):
        read(["a", "b", "a"], [1.0, 2.0, 1.0])
    with pytest.raises(InvalidFile):
        read([], [])
    monkeypatch.setattr("labels_party.companions.kinds.calibration.scores.MOST_SCORES", 1)
    with pytest.raises(TooLarge):
        read(["a", "b"], [1.0, 2.0])


def test_two_uploads_are_the_same_whatever_their_order() -> None:
    one, two = read(["a", "b"], [1.0, 2.0]), read(["b", "a"], [2.0, 1.0])
    assert one.mac(SECRETS) == two.mac(SECRETS)
    assert one.mac(SECRETS) != read(["a", "b"], [1.0, 2.2]).mac(SECRETS)
