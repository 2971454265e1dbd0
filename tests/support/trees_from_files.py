"""Trees from files beside those in memory: examples in a folder of commands, and whether two models are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.spark import training
from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit

KEY = ("--labels-key", "labels-signing.pub", "--id-column", "id")
N = 6000


def examples(seed: int = 0) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """A number, a small and a large category, a flag and a day; labels of 0 to 10 around what they say."""
    rng = np.random.default_rng(seed)
    age, country, product = rng.normal(40.0, 10.0, N), rng.integers(0, 4, N), rng.integers(0, 150, N)
    signal = 5.0 + 0.12 * (age - 40.0) + np.array([-2.0, 0.0, 1.0, 2.0])[country] + 1.5 * np.sin(product)
    labels = np.clip(np.round(signal), 0, 10).astype(np.float64)
    table = pa.table(
        {
            "id": [f"c{i:05d}" for i in range(N)],
            "age": pa.array(np.where(rng.random(N) < 0.02, np.nan, age)),
            "country": pa.array(np.array(["NA", "DE", "", "US"])[country]),
            "product": pa.array([f"p{i}" for i in product]),
            "flag": pa.array(rng.random(N) < 0.5),
            "day": pa.array(rng.integers(0, 700, N).astype("datetime64[D]")),
            "name": pa.array([f"n{i}" for i in range(N)]),
            "at": pa.array(np.zeros(N, np.int64), pa.timestamp("ns")),
        }
    )
    return table, labels


def world(shell: Shell, more: bool = False) -> np.ndarray[Any, Any]:
    """Features and messages in the folder; `more`: a second message of half of the examples, less noisy."""
    table, labels = examples()
    ids, sender = table["id"].to_pylist(), Sender()
    sender.public_key(shell.folder)
    sender.write(shell.folder / "m1.parquet", ids, labels, one_bit())
    if more:
        half = slice(0, N // 2)
        second = {"release": "rel_2", "batch": "bat_2", "epsilon": "4", "seed": 1}
        sender.write(shell.folder / "m2.parquet", ids[half], labels[half], one_bit(epsilon=4.0), **second)
    pq.write_table(table.take(np.random.default_rng(1).permutation(N)), shell.folder / "features.parquet")
    return labels


def trained(shell: Shell, engine: str, *more: object, named: tuple[str, ...] = ("m1.parquet",)) -> tuple[Any, Any]:
    """Cards of the local engine and of this one; predictions are in files of their names."""
    messages = [part for name in named for part in ("--message", name)]
    ask = ("train", *messages, *KEY, "--features", "features.parquet", *more)
    cards = [shell.json(*ask, "--out", name, "--model", "trees", "--engine", name) for name in ("local", engine)]
    predicted(shell, "local", engine)
    return cards[0], cards[1]


def predicted(shell: Shell, *models: str) -> None:
    for model in models:
        at = ("--features", "features.parquet", "--id-column", "id", "--out", f"{model}.parquet")
        shell.run("predict", "--model", model, *at)


def predictions(shell: Shell, engine: str) -> np.ndarray[Any, Any]:
    table = pq.read_table(shell.folder / f"{engine}.parquet").sort_by("id")
    return np.asarray(table["prediction"].to_numpy())


def alike(shell: Shell, labels: np.ndarray[Any, Any], one: str, other: str) -> None:
    """They err as much, within a twentieth, and differ by less than they err."""
    local, spark = predictions(shell, one), predictions(shell, other)
    errors = [float(np.mean((found - labels) ** 2)) for found in (local, spark)]
    assert errors[1] < 1.05 * errors[0] < 0.4 * float(np.var(labels))
    assert float(np.mean((local - spark) ** 2)) < 0.25 * errors[0]
    assert spark.min() >= 0.0
    assert spark.max() <= 10.0


SAME = ("epsilon", "domain", "features", "statistics", "crossings", "trees", "objective", "kind", "loss")
CAPACITY = ("effective_rows", "depth", "rounds", "rows_per_leaf", "learning_rate", "signal_share")


def same_choices(local: Any, other: Any) -> None:
    """Both cards tell of the same features, capacity and labels."""
    assert {name: other[name] for name in SAME} == {name: local[name] for name in SAME}
    figures = [{name: card["capacity"][name] for name in CAPACITY} for card in (local, other)]
    assert figures[1] == pytest.approx(figures[0])
    told = ("rows", "matched", "corrected_mean", "noise_variance", "label_variance")
    assert {k: other["report"][k] for k in told} == pytest.approx({k: local["report"][k] for k in told})


def learns_from_two_messages(shell: Shell, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Poisson loss on messages that share half of the examples, with crossed effects of some rows."""
    monkeypatch.setattr(training, "SOME_CELLS", 4000 * 7)
    labels = world(shell, more=True)
    local, other = trained(shell, engine, "--loss", "poisson", named=("m1.parquet", "m2.parquet"))
    alike(shell, labels, "local", engine)
    figures = [{name: card["capacity"][name] for name in CAPACITY} for card in (local, other)]
    assert figures[1] == pytest.approx(figures[0])
    assert other["report"]["corrected_mean"] == pytest.approx(local["report"]["corrected_mean"])
    assert any("9,000 outputs of 6,000 examples were taken together" in note for note in other["notes"])
    assert any("were learned from" in note for note in other["notes"])
