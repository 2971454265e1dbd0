"""A calibrated model as ONNX: the map alone gives the very numbers of `ScoreMap`, and whole models predict the same."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from features_party.models.export import export
from features_party.models.folder import SavedModel
from label_dp.companions.maps.monotone import MonotoneMap
from label_dp.companions.maps.score_maps import ScoreMap, cuts_of
from label_dp.companions.maps.scores import ScoreGrid
from label_dp.errors import InvalidInput
from tests.unit.features_party.models.test_model_export import CARD, FEWER, LATER, ports, trained

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
GRIDS = ("float32", "-3:7.5:1000", "0:1:4294967296", "-1e6:1e6:7")
COLUMNS = ("prediction", "country", "/city", "time")
ABOUT = {"answer": "ans_1", "document_digest": "d" * 64, "key_id": "k", "epsilon": {}}


def score_map(grid: str, pieces: int, seed: int = 0, *, interpolate: bool = False, moved: int = 0) -> ScoreMap:
    """With cuts where scores are, so far as there are so many; `moved`: each by so many numbers."""
    rng, parsed = np.random.default_rng(seed), ScoreGrid.parse(grid)
    if grid == "float32":
        cuts = parsed.index(np.concatenate([rng.normal(0, 3, 3 * pieces), [0.0, 1e-40, -1e-45, 3e38]]))
    else:
        cuts = rng.integers(1, parsed.size, 3 * pieces)
    inside = np.unique(cuts[(cuts > 0) & (cuts < parsed.size)])
    inside = np.sort(rng.choice(inside, min(pieces - 1, len(inside)), replace=False)) + moved
    return ScoreMap(parsed, MonotoneMap(parsed.size, inside, np.sort(rng.normal(5, 2, len(inside) + 1))), interpolate)


def awkward(found: ScoreMap, seed: int = 1) -> FloatArray:
    """Cuts and their neighbours among 64-bit and 32-bit floats, the ends of ranges, and scores far outside."""
    cuts = cuts_of(found.grid, found.map.breakpoints[:2000])
    near = [np.nextafter(cuts, to) for to in (-np.inf, np.inf)]
    with np.errstate(over="ignore"):
        single = [np.nextafter(cuts.astype(np.float32), np.float32(to)).astype(float) for to in (-np.inf, np.inf)]
    middles = [(cuts + s) / 2 for s in single]  # a tie between two 32-bit floats
    given = [cuts, *near, *single, *middles, np.random.default_rng(seed).normal(0, 4, 500)]
    given.append(np.array([0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324, 3.5e38, -3.5e38, 1e-40, 7.5, -3.0, 1.0]))
    every = np.concatenate(given)
    return every[np.isfinite(every)]


def by_graph(found: ScoreMap, scores: FloatArray) -> FloatArray:
    """The map's nodes alone, on 64-bit scores."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from features_party.companions.onnx_map import mapped
    from features_party.models.onnx_graph import IR_VERSION, OPSET, _Graph

    graph = _Graph(["score"])
    port = onnx.helper.make_tensor_value_info("score", onnx.TensorProto.DOUBLE, ["n", 1])
    out = onnx.helper.make_tensor_value_info(mapped(graph, "score", found), onnx.TensorProto.DOUBLE, ["n", 1])
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "map", [port], [out], graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(made)
    (values,) = runtime.InferenceSession(made.SerializeToString()).run(None, {"score": scores[:, None]})
    assert values.shape == (len(scores), 1)
    result: FloatArray = values[:, 0]
    return result


@pytest.mark.parametrize("pieces", [1, 2, 5, 257, 258, 5000])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_steps_of_a_map_are_the_very_same(grid: str, pieces: int) -> None:
    found = score_map(grid, pieces)
    scores = awkward(found)
    np.testing.assert_array_equal(by_graph(found, scores), found.apply(scores))
    if pieces > 1 and found.map.breakpoints[0] > 1:  # the control: cuts that are off by one are seen
        assert not np.array_equal(by_graph(score_map(grid, pieces, moved=-1), scores), found.apply(scores))


@pytest.mark.parametrize("pieces", [1, 2, 3, 600])
@pytest.mark.parametrize("grid", GRIDS)
def test_the_lines_of_a_map_are_the_same_but_for_rounding(grid: str, pieces: int) -> None:
    found = score_map(grid, pieces, interpolate=True)
    scores = awkward(found)
    expected = found.apply(scores)
    np.testing.assert_allclose(by_graph(found, scores), expected, rtol=1e-12)
    if found.map.breakpoints.size:
        steps = replace(found, interpolate=False)
        assert np.abs(by_graph(steps, scores) - expected).max() > 1e-3


@functools.cache
def plain(model: str, columns: tuple[str, ...]) -> SavedModel:
    return trained(model, "squared", FEWER.select(columns).slice(0, 500))


def calibrated(model: str, columns: tuple[str, ...] = COLUMNS, *, interpolate: bool = False) -> SavedModel:
    saved = plain(model, columns)
    cuts = ScoreGrid().index(np.array([2.0, 5.0, 6.5, 7.0, 11.0]))
    found = MonotoneMap(ScoreGrid().size, cuts, np.array([0.25, 1.0, 4.0, 9.0, 9.5, 19.0]))
    card = CARD | {"calibration": ABOUT}
    return SavedModel(replace(saved.model, calibration=ScoreMap(ScoreGrid(), found, interpolate)), card)


@pytest.mark.parametrize("interpolate", [False, True])
@pytest.mark.parametrize("model", ["ensemble", "trees", "linear"])
def test_a_calibrated_model_predicts_the_same_from_raw_columns(model: str, interpolate: bool) -> None:
    runtime = pytest.importorskip("onnxruntime")
    saved = calibrated(model, interpolate=interpolate)
    session = runtime.InferenceSession(export(saved, "onnx"))
    about: dict[str, Any] = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["calibration"]) == {k: v for k, v in ABOUT.items() if k != "epsilon"}
    given = ports(LATER.select(COLUMNS), json.loads(about["missing"]))
    wanted = {port.name for port in session.get_inputs()}
    (found,) = session.run(None, {name: cells for name, cells in given.items() if name in wanted})
    expected = saved.model.predict(LATER)
    assert len(np.unique(expected)) >= 4  # several pieces are in use
    if interpolate:
        np.testing.assert_allclose(found[:, 0], expected, rtol=2e-4, atol=2e-4)
        return
    # before the map both agree to 2e-5 only: a score as near to a cut may fall on either side of it
    before = replace(saved.model, calibration=None).predict(LATER)
    cuts = np.array([2.0, 5.0, 6.5, 7.0, 11.0])
    clear = np.abs(before[:, None] - cuts).min(axis=1) > 3e-4
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(found[clear, 0], expected[clear].astype(np.float32))


def test_a_model_of_one_column_and_one_row_and_xgboosts_refusal() -> None:
    runtime = pytest.importorskip("onnxruntime")
    saved = calibrated("linear", ("country",))
    session = runtime.InferenceSession(export(saved, "onnx"))
    (found,) = session.run(None, {"country": np.array([["FR"]], dtype=object)})
    assert found.shape == (1, 1)
    assert float(found[0, 0]) in {np.float32(v) for v in (0.25, 1.0, 4.0, 9.0, 9.5, 19.0)}
    with pytest.raises(InvalidInput, match="export it with format onnx"):
        export(calibrated("trees", ("country",)), "xgboost")
