"""Exported models predict as the model does: XGBoost's own format with its encoding, and ONNX from raw columns."""

from __future__ import annotations

import datetime as dt
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from features_party.models.export import export
from features_party.models.folder import SavedModel, load_model, save_model
from features_party.training.capacity import choose_capacity
from features_party.training.learner import ModelInput
from features_party.training.learners.trees import TreeInput
from features_party.training.model import TrainedModel
from label_dp.domain import Domain
from label_dp.errors import InvalidInput
from tests.support.training import KEY, bare_card, fit, quick_validation

pytestmark = pytest.mark.extended

NAT = np.iinfo(np.int64).min
DOMAIN = Domain.parse("0:20")
TWO = Domain.parse("0:1")
CLASSES = Domain.parse("10:40:10")
CARD = {"label": "weeks", "messages": [], "epsilon": [], "model_sha256": "0" * 64}


def features(n: int, seed: int, unseen: bool = False) -> pa.Table:
    """Every kind of column, two large categories among them, with gaps; `unseen` adds categories and dates that
    training has not."""
    rng = np.random.default_rng(seed)

    def gaps(values: list[Any], share: float = 0.06) -> list[Any]:
        return [None if rng.random() < share else value for value in values]

    age = rng.normal(40, 10, n)
    age[::9] = np.nan
    age[::31] = np.inf
    country = ["FR", "DE", "UK", "", "1"]
    picked = [country[i] for i in rng.integers(0, 5, n)]
    cities = [f"city {i}" for i in (rng.pareto(1, n) * 10).astype(int) % 300]
    if unseen:
        picked = ["XX" if rng.random() < 0.1 else c for c in picked]
        cities = ["nowhere" if rng.random() < 0.1 else c for c in cities]
    shops = np.random.default_rng(seed + 100).integers(0, 90, n)  # its own stream: all else stays as it was
    start = dt.date(1890, 1, 1) if unseen else dt.date(1960, 1, 1)
    days = [start + dt.timedelta(days=int(d)) for d in rng.integers(0, 60_000, n)]
    seconds = [dt.datetime(1965, 1, 1) + dt.timedelta(seconds=int(s)) for s in rng.integers(0, 2 * 10**9, n)]  # noqa: DTZ001 - columns without a zone
    hours = [dt.datetime(1969, 12, 30) + dt.timedelta(hours=int(h)) for h in rng.integers(0, 400_000, n)]  # noqa: DTZ001 - columns without a zone
    return pa.table(
        {
            "prediction": age,
            "country": gaps(picked),
            "/city": cities,
            "day": pa.array(gaps(days), pa.date32()),
            "time": pa.array(gaps(seconds), pa.timestamp("us")),
            "hour": pa.array(hours, pa.timestamp("s")),
            "flag": pa.array(rng.random(n) < 0.5),
            "same": np.ones(n),
            "shop": [None if s < 3 else f"shop {s + 4 * unseen}" for s in shops],
        }
    )


def labels(table: pa.Table) -> npt.NDArray[np.float64]:
    known = {"FR": -2.0, "DE": 0.0, "UK": 1.0, "": 3.0, "1": 2.0}
    signal = np.array([known.get(c, 0.0) for c in table["country"].to_pylist()])
    signal += np.array([int(c.split()[1]) % 7 for c in table["/city"].to_pylist()]) * 0.5
    signal += 0.2 * np.nan_to_num(np.array(pc.month(table["day"]).to_pylist(), dtype=float)) + 5
    signal += 0.1 * np.array(pc.hour(table["hour"]).to_pylist(), dtype=float)
    signal += np.array([0.5 * (int(s.split()[1]) % 3) if s else 1.0 for s in table["shop"].to_pylist()])
    signal += 0.1 * (np.nan_to_num(table["prediction"].to_numpy(), nan=40, posinf=40) - 40)
    return np.clip(np.round(signal), 0, 20).astype(np.float64)


TRAINING = features(2500, 1)
FEWER = TRAINING.slice(0, 800)  # what is exported is compared with the model, whatever that has learned
LATER = features(1500, 2, unseen=True)


def trained(model: str, loss: str, table: pa.Table = TRAINING) -> SavedModel:
    """`model` trees: those of the rule alone, as for labels that models cannot be compared on."""
    y = labels(TRAINING)[: table.num_rows]
    if loss == "log":
        with quick_validation():
            return SavedModel(fit(table, (y > 8).astype(float), domain=TWO, model=model, loss=loss), CARD)
    rule = choose_capacity(len(y), float(np.var(y)), 0.0) if model == "trees" else None
    with quick_validation():
        found = fit(table, y, domain=DOMAIN, model="ensemble" if rule else model, loss=loss, capacity=rule)
    return SavedModel(found, CARD)


def of_classes(model: str) -> SavedModel:
    thirds = np.clip((labels(TRAINING)[: FEWER.num_rows] - 4) // 3, 0.0, 3.0)
    return SavedModel(fit(FEWER, 10.0 + 10.0 * thirds, domain=CLASSES, model=model, loss="log"), CARD)


def ports(table: pa.Table, missing: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the ONNX graph, made with numpy alone."""
    found: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_string(column.type):
            cells: Any = np.array([missing[name] if c is None else c for c in column.to_pylist()], dtype=object)
        elif pa.types.is_date(column.type):
            cells = column.cast(pa.int32()).cast(pa.int64()).fill_null(NAT).to_numpy()
        elif pa.types.is_timestamp(column.type):
            cells = column.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(NAT).to_numpy()
        else:
            cells = column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        found[name] = cells[:, None]
    return found


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        *((model, loss) for model in ("ensemble", "trees", "linear") for loss in ("squared", "poisson", "absolute")),
        *((model, "log") for model in ("ensemble", "trees", "linear")),
    ],
)
def test_onnx_predicts_the_same_from_raw_columns(model: str, loss: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    saved = trained(model, loss, FEWER)
    session = runtime.InferenceSession(export(saved, "onnx"))
    missing = json.loads(session.get_modelmeta().custom_metadata_map["missing"])
    given = ports(LATER, missing)
    wanted = {port.name for port in session.get_inputs()}
    assert wanted == {column.name for column in saved.model.schema.columns}
    (found,) = session.run(None, {name: cells for name, cells in given.items() if name in wanted})
    expected = saved.model.predict(LATER)
    assert expected.std() > (0.1 if loss == "log" else 1.0)  # the model says something
    assert found.shape == (LATER.num_rows, 1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=2e-5, atol=2e-5)
    one = session.run(None, {name: cells[:1] for name, cells in given.items() if name in wanted})[0]
    np.testing.assert_allclose(one[0, 0], expected[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("model", ["ensemble", "trees"])
def test_onnx_gives_the_probabilities_of_classes_and_the_likeliest(model: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    saved = of_classes(model)
    session = runtime.InferenceSession(export(saved, "onnx"))
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == ["10", "20", "30", "40"]
    likeliest, found = session.run(None, ports(LATER, json.loads(told["missing"])))
    assert [port.name.strip("/") for port in session.get_outputs()] == ["prediction", "probabilities"]
    expected = saved.model.predict(LATER)
    assert expected.std(axis=0).min() > 0.02  # the model says something
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(likeliest[:, 0], CLASSES.values[found.argmax(axis=1)])


def test_plain_xgboost_gives_the_probabilities_of_classes_by_the_guide() -> None:
    saved = of_classes("trees")
    with zipfile.ZipFile(io.BytesIO(export(saved, "xgboost"))) as archive:
        found = by_the_guide(archive, LATER)
        assert json.loads(archive.read("encoding.json"))["link"]["classes"] == ["10", "20", "30", "40"]
    np.testing.assert_allclose(found, saved.model.predict(LATER), rtol=1e-6, atol=1e-6)
    with pytest.raises(InvalidInput, match="averages several boosters"):
        export(of_classes("ensemble"), "xgboost")


def tree_matrix(saved: SavedModel, table: pa.Table) -> npt.NDArray[np.float32]:
    model = saved.model
    encoded = model.schema.encode(table)
    return TreeInput.of(ModelInput(encoded, model.effects.apply(encoded.codes), model.schema.sizes)).matrix()


def test_onnx_gives_the_trees_the_very_bits_that_the_model_gives_them() -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    saved = trained("trees", "squared", FEWER)
    made = onnx.load_from_string(export(saved, "onnx"))
    inner = next(node.input[0] for node in made.graph.node if node.op_type == "TreeEnsembleRegressor")
    made.graph.output.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None))
    session = runtime.InferenceSession(made.SerializeToString())
    given = ports(LATER, json.loads(session.get_modelmeta().custom_metadata_map["missing"]))
    (found,) = session.run([inner], given)
    expected = tree_matrix(saved, LATER)
    kinds = {(s.category, s.less is None) for s in saved.model.schema.statistics}
    assert len(kinds) == 4  # looked up and subtracted, of two categories
    # unseen values count as missing ones, and a missing number less a mean is missing
    encoded = saved.model.schema.encode(LATER)
    assert (encoded.codes < 0).any(axis=0).all()
    assert np.isnan(encoded.numbers[:, len(saved.model.schema.column_numbers) :]).any()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "columns", [["country"], ["/city"], ["prediction"], ["same"], ["day"], ["time", "country"], ["/city", "shop"]]
)
@pytest.mark.parametrize("model", ["ensemble", "linear"])
def test_onnx_of_few_columns(model: str, columns: list[str]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    saved = trained(model, "squared", FEWER.select(columns))
    session = runtime.InferenceSession(export(saved, "onnx"))
    given = ports(LATER.select(columns), json.loads(session.get_modelmeta().custom_metadata_map["missing"]))
    found = session.run(None, given)[0][:, 0]
    np.testing.assert_allclose(found, saved.model.predict(LATER.select(columns)), rtol=2e-5, atol=2e-5)


def part_of(cell: dt.date | dt.datetime, part: str) -> float:
    if part == "days":
        day = float((cell.toordinal()) - dt.date(1970, 1, 1).toordinal())
        if isinstance(cell, dt.datetime):
            day += (cell - cell.replace(hour=0, minute=0, second=0, microsecond=0)) / dt.timedelta(days=1)
        return day
    if part == "weekday":
        return float(cell.weekday())
    return float(getattr(cell, part))


def number_by_the_guide(cells: list[Any], part: str) -> npt.NDArray[np.float32]:
    if part == "value":
        return np.array([np.nan if c is None or not np.isfinite(c) else float(c) for c in cells], dtype=np.float32)
    return np.array([np.nan if c is None else part_of(c, part) for c in cells], dtype=np.float32)


def places_of(column: dict[str, Any], cells: dict[str, list[Any]]) -> list[int]:
    """0 for a value that is not in the vocabulary."""
    place = {text: at for at, text in enumerate(column["vocabulary"], 1)}
    return [place.get(cell, 0) for cell in cells[column["name"]]]


def groups_of(crossing: dict[str, Any], columns: dict[str, Any], cells: dict[str, list[Any]]) -> list[int]:
    """0 for a row of no group."""
    sides = []
    for side in crossing["sides"]:
        if side["values"] is None:
            sides.append(places_of(columns[side["column"]], cells))
        else:
            place = {np.float32(value): at for at, value in enumerate(side["values"], 1)}
            sides.append([place.get(v, 0) for v in number_by_the_guide(cells[side["column"]], side["part"])])
    group = {tuple(places): at for at, places in enumerate(crossing["groups"], 1)}
    return [group.get(places, 0) for places in zip(*sides, strict=True)]


def matrix_by_the_guide(guide: dict[str, Any], table: pa.Table) -> npt.NDArray[np.float32]:
    """What the trees see, with nothing but numpy and what `encoding.json` says."""
    columns = {column["name"]: column for column in guide["columns"]}
    cells = {name: table[name].to_pylist() for name in columns}
    seen = []
    for wanted in guide["inputs"]:
        name, part = wanted["column"], wanted["part"]
        if part not in ("code", "effect", "statistic", "crossed effect"):
            seen.append(number_by_the_guide(cells[name], part))
            continue
        at = wanted.get("crossing")
        if part == "statistic":
            statistic = guide["statistics"][wanted["statistic"]]
            assert statistic["column"] == name
            at = statistic["crossing"]
        column = columns[name] if at is None else guide["crossings"][at]
        places = places_of(column, cells) if at is None else groups_of(column, columns, cells)
        if part == "statistic":
            found = np.array(statistic["table"], dtype=np.float32)[places]
            less = statistic["less"]
            seen.append(found if less is None else number_by_the_guide(cells[less["column"]], less["part"]) - found)
            continue
        entries = [column["missing_effect"], *column["effects"]]
        if part == "code":
            entries = [np.nan, *range(len(column["vocabulary"]))]
        seen.append(np.array(entries, dtype=np.float32)[places])
    return np.stack(seen, axis=1)


def by_the_guide(archive: zipfile.ZipFile, table: pa.Table) -> npt.NDArray[np.float64]:
    """Predictions with nothing but numpy, plain xgboost and what `encoding.json` says."""
    import xgboost

    guide = json.loads(archive.read("encoding.json"))
    matrix = matrix_by_the_guide(guide, table)
    data = xgboost.DMatrix(matrix, feature_types=guide["feature_types"], enable_categorical=True)
    booster = xgboost.Booster()
    booster.load_model(bytearray(archive.read("booster.json")))
    score = booster.predict(data, output_margin=True).astype(np.float64)
    if guide["link"]["kind"] == "exp":
        score = np.exp(np.clip(score, guide["link"]["low"], guide["link"]["high"]))
    elif guide["link"]["kind"] == "logistic":
        link = guide["link"]
        x = np.clip(link["slope"] * np.clip(score, link["low"], link["high"]) + link["shift"], -30, 30)
        score = link["first"] + (link["second"] - link["first"]) / (1.0 + np.exp(-x))
    elif guide["link"]["kind"] == "softmax":
        x = guide["link"]["slope"] * np.clip(score, -30, 30) + np.array(guide["link"]["shifts"])
        score = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    return score if guide["clip"] is None else np.clip(score, *guide["clip"])


@pytest.mark.parametrize("loss", ["squared", "poisson", "log"])
def test_plain_xgboost_predicts_the_same_by_the_exported_encoding(loss: str) -> None:
    saved = trained("trees", loss)
    data = export(saved, "xgboost")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert sorted(archive.namelist()) == ["booster.json", "card.json", "card.md", "encoding.json"]
        assert json.loads(archive.read("card.json")) == CARD
        np.testing.assert_allclose(by_the_guide(archive, LATER), saved.model.predict(LATER), rtol=1e-6, atol=1e-6)
        guide = json.loads(archive.read("encoding.json"))
    assert (guide["format"], guide["version"]) == ("label-dp-encoding", 1)
    assert sum(wanted["part"] == "statistic" for wanted in guide["inputs"]) == len(guide["statistics"]) > 0
    np.testing.assert_array_equal(matrix_by_the_guide(guide, LATER), tree_matrix(saved, LATER))
    assert export(saved, "xgboost") == data  # the same bytes each time


def test_an_export_of_a_saved_model_is_that_of_the_fresh_one(tmp_path: Path) -> None:
    fresh = trained("ensemble", "squared", FEWER.select(["time", "country"]))
    save_model(tmp_path / "m", fresh.model, bare_card(fresh.model), KEY)
    again = load_model(tmp_path / "m", None)
    assert isinstance(again.model, TrainedModel)
    assert export(SavedModel(again.model, CARD), "onnx") == export(fresh, "onnx")


def test_what_cannot_be_exported_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with pytest.raises(InvalidInput, match="no trees alone"):
        export(trained("ensemble", "squared", FEWER.select(["country"])), "xgboost")
    linear = trained("linear", "squared", FEWER.select(["country"]))
    with pytest.raises(InvalidInput, match="no trees"):
        export(linear, "xgboost")
    with pytest.raises(InvalidInput, match="choose one of"):
        export(linear, "pickle")
    monkeypatch.delitem(sys.modules, "features_party.models.onnx_graph", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidInput, match="needs the package onnx: pip install"):
        export(linear, "onnx")
