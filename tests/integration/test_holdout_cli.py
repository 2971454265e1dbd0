"""`evaluate --message` and `budget`: what privatized labels and our own audit store say, on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulation.test_holdout_coverage import k_ary, knots
from tests.support.features_cli import Shell
from tests.support.messages import Sender, one_bit, rr, world

pytestmark = pytest.mark.extended

KEY = ("--labels-key", "labels-signing.pub")
DAYS = {"train": world(1500, seed=1, prefix="t"), "held": world(1500, seed=2, prefix="h")}
LIFE = {"epsilon_lifetime": "20"}
CHANNELS = {"held": one_bit(epsilon=3.0), "kary": k_ary(epsilon=4.0), "knots": knots(), "bins": rr(epsilon=2.0)}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("holdout")
    shell, sender = Shell(folder), Sender()
    sender.public_key(folder)
    for name, w in DAYS.items():
        pq.write_table(w.table("id").append_column("revenue", pa.array(w.labels)), folder / f"{name}-true.parquet")
        pq.write_table(w.table("id"), folder / f"{name}-features.parquet")
    train, held = DAYS["train"], DAYS["held"]
    sender.write(
        folder / "train.parquet", train.ids, train.labels, one_bit(epsilon=3.0), epsilon="3", release="rel_t", **LIFE
    )
    for name, channel in CHANNELS.items():
        epsilon = {"held": "3", "kary": "4", "knots": "4", "bins": "2"}[name]
        sender.write(
            folder / f"{name}.parquet", held.ids, held.labels, channel,
            epsilon=epsilon, release=f"rel_{name}", batch="bat_h", **LIFE,
        )  # fmt: skip
    days = world(100, seed=3)
    sender.write(folder / "visits.parquet", days.ids, days.labels / 2, one_bit("0:5"), release="rel_v", **LIFE)
    ask = ("--message", "train.parquet", *KEY, "--features", "train-features.parquet", "--id-column", "id")
    shell.run("train", *ask, "--out", "model", "--model", "trees")
    return shell


def evaluate(*message: str) -> tuple[str, ...]:
    named = tuple(part for name in message for part in ("--message", f"{name}.parquet"))
    return ("evaluate", "--model", "model", *named, *KEY, "--features", "held-features.parquet", "--id-column", "id")


def truth(shell: Shell) -> dict[str, float]:
    found: dict[str, float] = shell.json(
        "evaluate", "--model", "model", "--examples", "held-true.parquet", "--label-column", "revenue"
    )
    return found


def test_people_see_a_table(shell: Shell) -> None:
    """Of true labels, and of privatized ones with their intervals and what is not identified."""
    known = ("evaluate", "--model", "model", "--examples", "held-true.parquet", "--label-column", "revenue")
    shown = shell.run(*known).stdout
    assert f"{truth(shell)['mse']:.6g}" in shown
    assert "mean absolute error" in shown
    estimated = shell.run(*evaluate("held")).stdout
    assert "below that of the mean" in estimated
    assert "95 %" in estimated
    assert "not identified" in estimated
    assert "{" not in shown + estimated


def test_one_bit_gives_the_gain_and_says_why_no_error(shell: Shell) -> None:
    true, found = truth(shell), shell.json(*evaluate("held"))
    gain = found["mse_below_constant"]
    # five standard errors: one in two million
    assert abs(gain["estimate"] - (true["constant_mse"] - true["mse"])) < 5 * gain["standard_error"]
    assert gain["low"] < gain["estimate"] < gain["high"]
    assert found["mse"] is None
    assert found["constant_mse"] is None
    assert "squares" in found["mse_why"]
    assert found["matched"] == found["rows"] == 1500
    assert found["notes"] == []


@pytest.mark.parametrize("message", ["kary", "knots"])
def test_a_channel_that_tells_the_squares_gives_the_error_too(shell: Shell, message: str) -> None:
    true, found = truth(shell), shell.json(*evaluate(message))
    for name in ("mse", "constant_mse"):
        assert abs(found[name]["estimate"] - true[name]) < 5 * found[name]["standard_error"]
    # one bit of an example does not identify the error by itself, and helps the other output of the same example
    both = shell.json(*evaluate(message, "held"))
    assert abs(both["mse"]["estimate"] - true["mse"]) < 5 * both["mse"]["standard_error"]
    gains = [one["mse_below_constant"]["standard_error"] for one in (both, found)]
    assert gains[0] < 1.1 * gains[1]
    assert both["rows"] == 1500
    assert both["matched"] == 3000


def test_bins_and_other_labels_are_refused(shell: Shell) -> None:
    assert "bins and clipping hide" in shell.refused(*evaluate("bins"), code=2)
    assert "another label or label domain" in shell.refused(*evaluate("visits"), code=2)


def test_a_message_that_was_trained_on_is_pointed_out(shell: Shell) -> None:
    ask = ("evaluate", "--model", "model", "--message", "train.parquet", *KEY, "--id-column", "id")
    (note,) = shell.json(*ask, "--examples", "train-features.parquet")["notes"]
    assert "trained on" in note
    shown = shell.run(*ask, "--examples", "train-features.parquet").stdout
    assert shown.index("note") < shown.index("below that of the mean")  # figures that are no estimate come after it


def test_a_feature_with_the_labels_name_is_pointed_out(shell: Shell) -> None:
    ask = ("train", "--message", "train.parquet", *KEY, "--id-column", "id", "--model", "linear")
    for features, notes in (("train-true", 1), ("train-features", 0)):
        card = shell.json(*ask, "--features", f"{features}.parquet", "--out", f"of-{features}")
        assert sum("has the label's name 'revenue'" in note for note in card["notes"]) == notes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--label-column"),
        (("--label-column", "revenue", "--message", "held.parquet"), "--label-column"),
        (("--message", "held.parquet"), "--id-column"),
        (("--message", "held.parquet", "--id-column", "id", "--clip"), "--clip"),
    ],
)
def test_usage(shell: Shell, arguments: tuple[str, ...], says: str) -> None:
    assert says in shell.refused("evaluate", "--model", "model", "--examples", "held-true.parquet", *arguments, code=2)


def test_predict_takes_either_name_and_overwrites_nothing(shell: Shell) -> None:
    ask = ("predict", "--model", "model", "--id-column", "id")
    shell.run(*ask, "--examples", "held-features.parquet", "--out", "p.parquet")
    assert "--force" in shell.refused(*ask, "--features", "held-features.parquet", "--out", "p.parquet", code=2)
    shell.run(*ask, "--features", "held-features.parquet", "--out", "p.parquet", "--force")
    train = ("train", "--message", "train.parquet", *KEY, "--features", "train-features.parquet", "--id-column", "id")
    assert "--force" in shell.refused(*train, "--out", "model", code=2)
    before = (shell.folder / "model" / "model.json").read_bytes()
    shell.run(*train, "--out", "model", "--model", "linear", "--force")
    assert (shell.folder / "model" / "model.json").read_bytes() != before
    shell.run("audit", "export", "--out", "export.json")
    assert "--force" in shell.refused("audit", "export", "--out", "export.json", code=2)
    shell.run("audit", "export", "--out", "export.json", "--force")
    assert [p.name for p in shell.folder.glob(".*")] == []


def test_budget_adds_up_a_batch_and_takes_the_largest(tmp_path: Path) -> None:
    shell, ours, theirs = Shell(tmp_path), Sender(), Sender()
    ours.public_key(tmp_path)
    (tmp_path / "theirs.pub").write_bytes(theirs.key.public.pem)
    w = world(30)
    pq.write_table(w.table("id"), tmp_path / "f.parquet")
    for release, batch, epsilon, spent in (
        ("r1", "b1", "1", "1"),
        ("r2", "b1", "0.5", "1.5"),
        ("r3", "b2", "1.2", "1.2"),
    ):
        ours.write(tmp_path / f"{release}.parquet", w.ids, w.labels, one_bit(epsilon=float(epsilon)), release=release,
                   batch=batch, epsilon=epsilon, epsilon_spent=spent)  # fmt: skip
    theirs.write(tmp_path / "x.parquet", w.ids, np.zeros(30), one_bit(epsilon=2.0), epsilon="2")
    assert "no features party" in shell.refused("budget", code=1).lower()
    join = ("join", "--features", "f.parquet", "--id-column", "id")
    named = ("--message", "r1.parquet", "r2.parquet", "r3.parquet")
    shell.run(*join, *named, *KEY, "--out", "a.parquet")
    shell.run(*join, "--message", "x.parquet", "--labels-key", "theirs.pub", "--out", "b.parquet")
    shell.run(*join, "--message", "r1.parquet", *KEY, "--out", "c.parquet")  # again: accepted already
    first, second = shell.json("budget")
    assert (first["messages"], first["batches"]) == (3, 2)
    assert first["epsilon_per_example"] == "1.5"
    assert first["stated_epsilon_spent"] == "1.5"
    assert first["epsilon_per_unit"] is None
    # another labels party's population of the same id is another one
    assert (second["messages"], second["epsilon_per_example"]) == (1, "2")
    assert first["population"] == second["population"]
    assert len(shell.json("budget", "--population", "shop")) == 2
    assert "1.5" in shell.run("budget").stdout
    assert "No message or answer of" in shell.refused("budget", "--population", "x", code=1)
