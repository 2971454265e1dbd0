"""Labels of two values on the command line: metrics of probabilities from true labels, from a hold-out message, on the
card of a model and beside another's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features_party.api.schemas_models import Card
from features_party.training.probabilities import NAMES
from label_dp.channels.base import Channel
from tests.support.features_cli import Shell
from tests.support.messages import Sender, World, one_bit, rr

pytestmark = pytest.mark.extended

KEY = ("--labels-key", "labels-signing.pub")
INTERVAL = {"estimate", "standard_error", "low", "high"}


def conversions(n: int, seed: int, prefix: str, low: float = 0.0, high: float = 1.0) -> World:
    """A third convert; x says which."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = rng.random(n) < 1 / (1 + np.exp(1.0 - 1.5 * x))
    features = pa.table({"x": x, "other": rng.normal(size=n)})
    return World([f"{prefix}{i:05d}" for i in range(n)], features, np.where(y, high, low))


def k_ary(domain: str = "0:1", epsilon: float = 3.0) -> Channel:
    return rr(domain, epsilon, cuts=(1,))


TRAIN, HELD = conversions(3000, 1, "t"), conversions(3000, 2, "h")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("binary")
    shell, sender = Shell(folder), Sender()
    sender.public_key(folder)
    for name, w in (("train", TRAIN), ("held", HELD)):
        pq.write_table(w.table("id").append_column("converted", pa.array(w.labels)), folder / f"{name}.true.parquet")
        pq.write_table(w.table("id"), folder / f"{name}.features.parquet")
        for channel, made in (("k-ary", k_ary()), ("bit", one_bit("0:1", 3.0))):
            sender.write(
                folder / f"{name}-{channel}.parquet", w.ids, w.labels, made, epsilon="3", release=f"{name}-{channel}",
                batch=f"bat_{name}", epsilon_lifetime="20",
            )  # fmt: skip
    for model in ("linear", "trees"):
        shell.run(*train("train-k-ary", model), "--out", model)
    return shell


def train(message: str, model: str) -> tuple[str, ...]:
    ask = ("--message", f"{message}.parquet", *KEY, "--features", "train.features.parquet", "--id-column", "id")
    return ("train", *ask, "--model", model)


def truth(shell: Shell, *more: str) -> dict[str, dict[str, float]]:
    ask = ("evaluate", "--model", "linear", "--examples", "held.true.parquet", "--label-column", "converted", *more)
    found: dict[str, dict[str, float]] = shell.json(*ask)
    return found


def test_true_labels_give_every_metric_with_an_interval(shell: Shell) -> None:
    found = truth(shell)
    assert set(NAMES) <= set(found)
    for name in NAMES[:-1]:
        assert set(found[name]) == INTERVAL
        assert found[name]["low"] < found[name]["estimate"] < found[name]["high"], name
    ask = ("evaluate", "--model", "linear", "--examples", "held.true.parquet", "--label-column", "converted")
    assert "Brier score" in shell.run(*ask).stdout
    # what was there before stays, and says the same
    assert found["brier"]["estimate"] == pytest.approx(found["mse"])
    assert found["positive_rate"]["estimate"] == pytest.approx(HELD.labels.mean())
    assert found["log_loss"]["high"] < found["constant_log_loss"]["low"]
    assert 0.7 < found["auc"]["estimate"] < 0.9
    assert found["auc_why"] == "identified"


@pytest.mark.parametrize("channel", ["k-ary", "bit"])
def test_a_hold_out_message_gives_them_without_true_labels(shell: Shell, channel: str) -> None:
    ask = ("evaluate", "--model", "linear", "--message", f"held-{channel}.parquet", *KEY, "--id-column", "id")
    true, found = truth(shell), shell.json(*ask, "--examples", "held.features.parquet")
    for name in NAMES[:-1]:
        # five standard errors: two in a million
        assert abs(found[name]["estimate"] - true[name]["estimate"]) < 5 * found[name]["standard_error"], name
        assert found[name]["standard_error"] > 0
    calibration = found["calibration"]
    assert sum(group["rows"] for group in calibration["groups"]) == found["rows"] == 3000
    for group in calibration["groups"]:
        assert abs(group["observed"]["estimate"] - group["predicted"]) < 0.25
    assert (
        abs(calibration["slope"]["estimate"] - true["calibration"]["slope"]["estimate"])
        < 5
        * (  # type: ignore[index]  # an object
            calibration["slope"]["standard_error"]
        )
    )
    assert found["mse"] is not None  # as before


def test_other_labels_of_the_file_are_a_sentence(shell: Shell) -> None:
    halves = HELD.table("id").append_column("converted", pa.array(HELD.labels / 2))
    pq.write_table(halves, shell.folder / "halves.parquet")
    ask = ("evaluate", "--model", "linear", "--examples", "halves.parquet", "--label-column", "converted")
    found = shell.json(*ask)
    assert found["mse"] > 0
    for name in NAMES:
        assert found[name] is None
        assert "other than 0 and 1" in found[f"{name}_why"]


def test_the_card_states_them_and_so_does_a_comparison(shell: Shell) -> None:
    card = shell.json("models", "show", "linear")
    estimate = card["report"]["error_estimate"]
    assert set(NAMES) <= set(estimate)
    assert estimate["auc"]["low"] > 0.5
    assert estimate["brier"]["estimate"] == pytest.approx(estimate["mse"]["estimate"])
    # the body of REST reads the same, member by member
    read = Card(**card).report.error_estimate
    assert read is not None
    assert not read.model_extra
    assert read.auc is not None
    assert read.auc.low == estimate["auc"]["low"]
    text = shell.run("models", "show", "linear").stdout
    assert f"| AUC | {estimate['auc']['estimate']:.6g} (95 %: " in text
    assert "| calibration slope | " in text
    compared = shell.run("models", "compare", "linear", "trees").stdout
    assert "log loss of the constant" in compared
    assert f"{estimate['log_loss']['estimate']:.6g}" in compared
    again = shell.run(*train("train-bit", "linear"), "--out", "again").stdout
    assert "Brier score" in again


def test_two_values_of_a_larger_domain_are_moved(tmp_path: Path) -> None:
    """A label of 2 or 5 has the metrics of the same label as 0 or 1."""
    shell, sender = Shell(tmp_path), Sender()
    sender.public_key(tmp_path)
    w = conversions(1500, 3, "t", 2.0, 5.0)
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, k_ary("2:5:3"), epsilon="3")
    pq.write_table(w.table("id").append_column("plan", pa.array(w.labels)), tmp_path / "f.parquet")
    ask = ("--message", "m.parquet", *KEY, "--id-column", "id")
    shell.run("train", *ask, "--features", "f.parquet", "--exclude", "plan", "--model", "linear", "--out", "model")
    true = shell.json("evaluate", "--model", "model", "--examples", "f.parquet", "--label-column", "plan")
    found = shell.json("evaluate", "--model", "model", *ask, "--examples", "f.parquet")
    assert true["positive_rate"]["estimate"] == pytest.approx(np.mean(w.labels == 5.0))
    assert true["brier"]["estimate"] == pytest.approx(true["mse"] / 9)
    assert abs(found["auc"]["estimate"] - true["auc"]["estimate"]) < 5 * found["auc"]["standard_error"]
