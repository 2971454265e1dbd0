"""Labels in frames and the scikit-learn estimator: the same join, correction and accounting as on the command line."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

from features_party.bootstrap import bootstrap
from features_party.integrations.frames import labeled_frame
from features_party.integrations.sklearn import LabelDPRegressor
from label_dp.errors import InvalidInput, InvalidTable, SignatureInvalid
from tests.support.messages import Sender, laplace, one_bit, rr, world

pytestmark = pytest.mark.extended

WORLD = world(400)
LABELS = ["raw_label", "corrected_label", "noise_variance", "release"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEATURES_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEATURES_PARTY_THREADS", "1")
    sender = Sender()
    sender.public_key(tmp_path)
    sender.write(tmp_path / "m.parquet", WORLD.ids, WORLD.labels, one_bit(epsilon=3.0), epsilon="3")
    more = world(50, seed=1)  # the first ids again
    sender.write(tmp_path / "n.parquet", more.ids, more.labels, rr(), release="rel_2", batch="bat_2")
    return tmp_path


def events() -> list[str]:
    party = bootstrap()
    try:
        return [e.kind for e in party.database.read("test", party.audit.events)]
    finally:
        party.close()


@pytest.mark.parametrize(
    "given", [lambda t: t, lambda t: t.to_pandas(), pl.from_arrow], ids=["arrow", "pandas", "polars"]
)
@pytest.mark.parametrize(("as_", "kind"), [("arrow", pa.Table), ("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_every_frame_in_and_out(folder: Path, given: Callable[[Any], Any], as_: Any, kind: type) -> None:
    table = WORLD.table().slice(5, 100)
    found = labeled_frame(
        folder / "m.parquet", given(table), id_column="click_id", labels_key=folder / "labels-signing.pub", as_=as_
    )
    assert isinstance(found, kind)
    assert list(found.columns if as_ != "arrow" else found.column_names) == ["click_id", "age", "country", *LABELS]
    ids = found["click_id"].to_pylist() if as_ == "arrow" else list(found["click_id"])
    assert ids == WORLD.ids[5:105]  # in the features' order
    assert np.allclose(np.asarray(found["age"]), np.asarray(table["age"]))
    assert set(np.asarray(found["corrected_label"])) <= set(one_bit(epsilon=3.0).outputs)
    assert events() == ["store-created", "message-accepted"]


def test_types_stay_and_an_example_in_two_messages_has_two_rows(folder: Path) -> None:
    n = 60
    kinds = {
        "click_id": pa.array(WORLD.ids[:n]),
        "money": pa.array([Decimal("1.25")] * n, pa.decimal128(9, 2)),
        "when": pa.array([0] * n, pa.timestamp("ns", "Europe/Paris")),
        "group": pa.array(["a", "b"] * (n // 2)).dictionary_encode(),
        "nested": pa.array([{"x": [1, 2]}] * n),
    }
    found = labeled_frame(
        [folder / "m.parquet", folder / "n.parquet"],
        pa.table(kinds),
        id_column="click_id",
        labels_key=folder / "labels-signing.pub",
    )
    assert [found.schema.field(name).type for name in kinds] == [column.type for column in kinds.values()]
    assert found.num_rows == n + 50
    assert found["release"].to_pylist()[:2] == ["rel_1", "rel_2"]
    assert len(set(found["noise_variance"].to_pylist())) == 2


def test_a_path_works_and_bad_input_is_refused(folder: Path) -> None:
    pq.write_table(WORLD.table(), folder / "f.parquet")
    ask: dict[str, Any] = {"id_column": "click_id", "labels_key": folder / "labels-signing.pub"}
    assert labeled_frame(str(folder / "m.parquet"), str(folder / "f.parquet"), **ask).num_rows == 400
    with pytest.raises(InvalidInput, match="arrow, pandas or polars"):
        labeled_frame(folder / "m.parquet", WORLD.table(), as_="list", **ask)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidInput, match="magic"):
        labeled_frame(folder / "m.parquet", WORLD.table(), correction="magic", **ask)
    with pytest.raises(InvalidTable, match="raw_label"):
        labeled_frame(folder / "m.parquet", WORLD.table().append_column("raw_label", pa.array([0] * 400)), **ask)
    other = Sender().key.public
    with pytest.raises(SignatureInvalid):
        labeled_frame(folder / "m.parquet", WORLD.table(), id_column="click_id", labels_key=other)


def regressor(folder: Path, **options: Any) -> LabelDPRegressor:
    asked = {"labels_key": folder / "labels-signing.pub", "id_column": "click_id"} | options
    return LabelDPRegressor([folder / "m.parquet"], **asked)


@pytest.mark.parametrize("kind", ["ensemble", "linear"])
def test_the_estimator_learns_and_accounts(folder: Path, kind: str) -> None:
    X = WORLD.table().to_pandas()
    model = regressor(folder, model=kind)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.fit(X) is model
    predictions = model.predict(X.drop(columns="click_id"))
    assert np.mean((predictions - WORLD.labels) ** 2) < 0.5 * np.var(WORLD.labels)
    assert model.score(X, WORLD.labels) > 0.5
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["age", "country"]
    assert model.card_["messages"][0]["release"] == "rel_1"
    assert events() == ["store-created", "message-accepted", "model-trained"]
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))


def test_the_estimator_warns_of_categories_that_training_did_not_see(folder: Path) -> None:
    X = WORLD.table().to_pandas()
    model = regressor(folder, model="linear").fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)  # control
    X.loc[:6, "country"] = "nowhere"
    with pytest.warns(UserWarning, match=r"column 'country': 7 of 400 cells hold categories that training did not see"):
        model.predict(X)


def test_a_csv_keeps_its_cells(folder: Path) -> None:
    lines = [f"{name},{i:05d},1.{i % 3}0,{'NA' if i % 2 else 'DE'},{i}" for i, name in enumerate(WORLD.ids)]
    (folder / "f.csv").write_text("click_id,zip,version,country,n\n" + "\n".join(lines) + "\n")
    found = labeled_frame(
        folder / "m.parquet", folder / "f.csv", id_column="click_id", labels_key=folder / "labels-signing.pub"
    )
    cells = [line.split(",") for line in lines]
    for at, name in enumerate(("click_id", "zip", "version", "country")):
        assert found[name].to_pylist() == [row[at] for row in cells]
    assert found["n"].to_pylist() == list(range(400))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (lambda X: X.set_index(["click_id", "age"]), "several levels"),
        (lambda X: X["country"], "Series of pandas is one column"),
        (lambda X: X.assign(age=pd.arrays.SparseArray(X["age"].fillna(0))), "'age' of the frame is sparse"),
    ],
)
def test_frames_that_are_not_read_are_told_by_column_and_cause(folder: Path, frame: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        regressor(folder, model="linear", id_column=None).fit(frame(WORLD.table().to_pandas()))


def test_the_estimator_predicts_intervals_where_the_outputs_tell_them(folder: Path) -> None:
    X = WORLD.table().to_pandas()
    with pytest.raises(InvalidInput, match="knows no quantiles"):
        regressor(folder).fit(X).predict_interval(X)
    sender = Sender()
    sender.public_key(folder)
    sender.write(folder / "m.parquet", WORLD.ids, WORLD.labels, laplace(epsilon=3.0), epsilon="3", release="rel_3")
    model = regressor(folder).fit(X)
    low, high = model.predict_interval(X, 0.8).T
    assert np.all(low <= high)
    assert 0.7 < np.mean((low <= WORLD.labels) & (WORLD.labels <= high)) < 1.0
    assert np.array_equal(model.predict_quantiles(X, [0.1, 0.9]).T, [low, high])
    with pytest.raises(NotFittedError):
        regressor(folder).predict_quantiles(X, [0.5])


def test_the_estimator_is_one_of_scikit_learn(folder: Path) -> None:
    X = WORLD.table().to_pandas()
    model = regressor(folder, model="linear")
    copy = clone(model).set_params(correction="none")
    assert copy.get_params()["correction"] == "none"
    assert model.get_params()["correction"] == "auto"
    with pytest.warns(UserWarning, match="y is ignored"):
        out_of_fold = cross_val_predict(make_pipeline(model), X, WORLD.labels, cv=3)
    assert np.mean((out_of_fold - WORLD.labels) ** 2) < 0.5 * np.var(WORLD.labels)
    with pytest.raises(InvalidInput, match="at least one message"):
        LabelDPRegressor(id_column="click_id").fit(X)
    with pytest.raises(InvalidInput, match="must be 'ensemble'"):
        regressor(folder, model="magic").fit(X)
