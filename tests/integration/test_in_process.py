"""Both parties in one Python process: frames in, a message out, labels and models, by the ledger of the commands."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import features_party
import labels_party
from features_party.integrations.scoring import PrivatizedScorer
from label_dp.errors import (
    AlreadyReleased,
    BudgetExceeded,
    InvalidInput,
    InvalidRows,
    InvalidTable,
    NotFound,
    SignatureInvalid,
)
from labels_party.bootstrap import bootstrap
from tests.support.commands import command

pytestmark = pytest.mark.extended

N = 3_000
RNG = np.random.default_rng(2)
X = RNG.normal(size=N)
SALES = pa.table({"click": [f"c{i}" for i in range(N)], "spent": np.clip(np.round(10 + 4 * X), 0, 20)})
CLICKS = pa.table({"click": SALES["click"], "x": X})
OPTIONS: dict[str, Any] = {"id": "click", "label": "spent", "domain": "0:20", "epsilon": 4, "budget": 5}


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEATURES_PARTY_THREADS", "1")
    monkeypatch.setenv("HOME", str(tmp_path))  # so that a home by default would be seen
    for name in ("LABELS_PARTY_HOME", "FEATURES_PARTY_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def privatize(labels: Any = SALES, **more: Any) -> labels_party.PublishedMessage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return labels_party.privatize(labels, **OPTIONS | {"population": "shop", "home": "labels"} | more)


def test_a_first_model_takes_a_dozen_lines(homes: Path) -> None:
    message = privatize(missing_label=0)
    assert message.path == homes / "shop.message.parquet"
    assert os.fspath(message) == str(message.path)
    assert (message.manifest.n, str(message.manifest.epsilon.total)) == (N, "4")
    assert "ε = 4" in message.statement()
    model = features_party.LabelDPRegressor(
        [message], labels_key=message.key, id_column="click", model="linear", home="features"
    ).fit(CLICKS)
    assert np.corrcoef(model.predict(CLICKS), SALES["spent"].to_numpy())[0, 1] > 0.9
    labeled = features_party.accept(message, key=message.key, home="features").labeled(CLICKS, id="click")
    assert labeled.column_names[-4:] == ["raw_label", "corrected_label", "noise_variance", "release"]
    assert abs(labeled["corrected_label"].to_numpy().mean() - SALES["spent"].to_numpy().mean()) < 0.5


def test_a_check_says_what_lies_outside_and_neither_charges_nor_logs(
    homes: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    columns = {"id": "click", "label": "spent"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = labels_party.check(SALES.to_pandas(), **columns, domain="0:12")
        fits = labels_party.check(SALES, **columns, domain="0:20")
        pq.write_table(SALES, homes / "sales.parquet")
        assert labels_party.check(homes / "sales.parquet", **columns).suggested == "0:20"
    above = int(np.sum(SALES["spent"].to_numpy() > 12))
    assert any("lie above 12" in say for say in found.says), found.says
    assert found.found.labels.above == above > 0
    assert "All lie inside the domain." in fits.says
    assert (found.refused, fits.refused) == ([], [])
    with pytest.raises(InvalidTable, match="has no column 'spend'"):
        labels_party.check(SALES, id="click", label="spend")
    assert list(homes.iterdir()) == [homes / "sales.parquet"]
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


def test_privatize_says_nothing_of_raw_labels(homes: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Labels that lie outside are clipped in silence: a job's stderr is kept by others, and no ε has paid for them."""
    said = []
    for seed, domain in enumerate(("0:12", "0:20")):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            rules = OPTIONS | {"domain": domain, "population": f"p{seed}", "home": f"home{seed}"}
            labels_party.privatize(SALES, **rules)
        said.append([str(one.message).replace(f"p{seed}", "p") for one in heard])
    assert said[0] == said[1]
    assert capfd.readouterr().err == ""


def test_a_statement_goes_into_a_file_and_replaces_none(homes: Path) -> None:
    page = (message := privatize()).statement("page.html")
    assert (homes / "page.html").read_text(encoding="utf-8") == page
    with pytest.raises(InvalidInput, match="exists"):
        message.statement("page.html")
    assert message.statement("page.html", force=True) == (homes / "page.html").read_text(encoding="utf-8")


def test_a_plan_needs_no_home_and_charges_nothing(homes: Path) -> None:
    outlook = labels_party.plan(domain="0:20", n=N, epsilon=[0.5, 1])
    assert [advice["epsilon"] for advice in outlook["recommendations"]] == ["0.5", "1"]
    assert labels_party.plan(domain="0:20", n=N, epsilon="1", budget=3)["recommendations"][0]["epsilon_left"] == "2"
    assert list(homes.iterdir()) == []
    privatize()
    later = labels_party.plan(population="shop", n=N, epsilon=1, home="labels")
    assert "carried over" in later["prior"]
    assert "carried over" not in outlook["prior"]
    for arguments, error, words in (
        ({"n": N}, InvalidInput, "Name a population, or the domain"),
        ({"n": N, "population": "shop", "budget": 1}, InvalidInput, "Name a population, or the domain"),
        ({"domain": "0:20"}, InvalidInput, "needs `n`"),
        ({"domain": "0:20", "n": N, "epsilon": []}, InvalidInput, "1 to 16"),
        ({"domain": "0:20", "n": N, "los": "absolute"}, InvalidInput, "Did you mean 'loss'"),
        ({"population": "other", "n": N, "home": "labels"}, NotFound, "other"),
    ):
        with pytest.raises(error, match=words):
            labels_party.plan(**{"epsilon": 1} | arguments)


def test_a_score_is_accounted_for_in_the_home_of_the_scorer(homes: Path) -> None:
    message, options = privatize(), {"id_column": "click", "home": "features"}
    model = features_party.LabelDPRegressor([message], labels_key=message.key, model="linear", **options).fit(CLICKS)
    scorer = PrivatizedScorer(message, labels_key=message.key, **options | {"home": "scores"})
    assert scorer.interval(model, CLICKS).low > 0
    assert sorted(path.name for path in homes.iterdir() if path.is_dir()) == ["features", "labels", "scores"]


def test_frames_of_every_kind_give_frames_of_their_kind(homes: Path) -> None:
    pq.write_table(SALES, "sales.parquet")
    kinds = (SALES.to_pandas(), pl.from_arrow(SALES), "sales.parquet", SALES)
    for number, labels in enumerate(kinds):
        message = privatize(labels, home=f"home {number}", out=f"{number}.parquet")
        assert message.manifest.n == N
        one = features_party.accept(message, key=message.key, home="features")
    assert isinstance(one.labeled(CLICKS.to_pandas(), id="click"), pd.DataFrame)
    assert isinstance(one.labeled(pl.from_arrow(CLICKS), id="click"), pl.DataFrame)
    assert isinstance(one.labeled(CLICKS, id="click", as_="pandas"), pd.DataFrame)


def test_the_ledger_is_that_of_the_commands(homes: Path) -> None:
    privatize()
    with pytest.raises(AlreadyReleased):
        privatize(out="again.parquet")
    with pytest.raises(BudgetExceeded):
        privatize(out="again.parquet", epsilon=2, additional_release=True)
    shown = command(
        "labels-party", "budget", "--json", folder=homes, environment={"LABELS_PARTY_HOME": str(homes / "labels")}
    )
    assert '"epsilon_spent": "4"' in shown.stdout
    privatize(out="more.parquet", epsilon=1, additional_release=True)
    assert sorted(path.name for path in homes.glob("again*")) == []


def test_refusals_are_typed_and_leave_nothing(homes: Path) -> None:
    repeated = pa.concat_tables([SALES, SALES.slice(0, 1)])
    for labels, more, error, words in (
        (SALES, {"id": "clack"}, InvalidTable, "no column 'clack'"),
        (SALES, {"mechnism": "rr"}, InvalidInput, "Did you mean 'mechanism'"),
        (SALES, {"epsilon": "much"}, InvalidInput, "ε must be"),
        (SALES, {"domain": "20:0"}, InvalidInput, "domain"),
        (repeated, {}, InvalidRows, "occurred in an earlier row"),
        ([1, 2], {}, InvalidTable, "A table is an Arrow table"),
        (SALES, {"out": "no-folder/m.parquet"}, InvalidInput, "does not exist"),
    ):
        with pytest.raises(error, match=words):
            privatize(labels, **more)
    with bootstrap(chosen={"home": homes / "labels"}).database.engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from batches").scalar() == 0
    assert [path.name for path in homes.iterdir() if path.suffix == ".parquet"] == []


def test_ids_without_a_label_take_the_missing_label(homes: Path) -> None:
    more = pa.table({"click": [*SALES["click"].to_pylist(), "late-1", "late-2"]})
    message = privatize(examples=more, missing_label=0)
    assert message.manifest.n == N + 2
    assert pq.read_table(message.path).num_rows == N + 2


def test_a_message_of_another_key_is_refused(homes: Path) -> None:
    message, other = privatize(), privatize(population="other", home="elsewhere", out="other.parquet")
    with pytest.raises(SignatureInvalid):
        features_party.accept(message, key=other.key, home="features")


def test_no_file_holds_a_raw_label(homes: Path) -> None:
    """A frame is sealed from memory: not even a temporary file has its labels as they came."""
    marks, pattern = SALES.set_column(1, "spent", pa.array([19.0] * N)), np.full(50, 19.0).tobytes()
    privatize(marks, mechanism="rr", epsilon=1)

    def holding() -> list[Path]:
        return [path for path in homes.rglob("*") if path.is_file() and pattern in path.read_bytes()]

    assert holding() == []
    pq.write_table(marks, "control.parquet", compression="none", use_dictionary=False)
    assert holding() == [homes / "control.parquet"]
