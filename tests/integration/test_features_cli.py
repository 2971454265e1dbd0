"""The command `features-party`: what it prints, writes and exits with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.classes import k_ary
from tests.support.features_cli import Shell, key_file
from tests.support.messages import Sender, laplace, one_bit, rr, world

pytestmark = pytest.mark.extended

COMMAND = Path(sys.executable).parent / "features-party"
WORLD = world(300)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    sender = Sender()
    sender.public_key(tmp_path)
    sender.write(tmp_path / "m.parquet", WORLD.ids, WORLD.labels, one_bit(epsilon=3.0), epsilon="3")
    pq.write_table(WORLD.table(), tmp_path / "features.parquet")
    labelled = WORLD.table().append_column("revenue", pa.array(WORLD.labels + 0.5))
    pq.write_table(labelled, tmp_path / "examples.parquet")
    return Shell(tmp_path)


KEY = ("--labels-key", "labels-signing.pub")
TABLE = ("--features", "features.parquet", "--id-column", "click_id")


def test_the_offline_way(shell: Shell) -> None:
    """With the default model, as the command line trains it."""
    verified = shell.json("verify", "m.parquet", *KEY)
    assert verified["verified"] is True
    assert verified["epsilon"]["total"] == "3"
    assert not (shell.folder / "home").exists()  # verify writes nothing
    card = shell.json("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model")
    assert card["report"]["matched"] == 300
    assert card["messages"][0]["correction"]["applied"] == "debias"
    result = shell.json("evaluate", "--model", "model", "--examples", "examples.parquet", "--label-column", "revenue")
    about = {"labels_clipped", "unknown_categories", "notes"}
    assert set(result) == {"rows", "mse", "mae", "poisson", "constant_mse"} | about
    (note,) = result["notes"]
    assert note.endswith("true labels are outside of the model's domain, where no prediction is; --clip clips them")
    assert result["rows"] == 300
    assert result["mse"] < result["constant_mse"]
    clipped = shell.json(
        "evaluate", "--model", "model", "--examples", "examples.parquet", "--label-column", "revenue", "--clip"
    )
    assert clipped["labels_clipped"] is True
    assert clipped["notes"] == []
    assert clipped["mse"] != result["mse"]
    assert shell.json("predict", "--model", "model", *TABLE, "--out", "p.csv")["rows"] == 300
    assert (shell.folder / "p.csv").read_text().splitlines()[0] == '"click_id","prediction"'
    joined = shell.json("join", "--message", "m.parquet", *KEY, *TABLE, "--out", "t.parquet")
    assert joined["messages"][0]["already_accepted"] is True
    table = pq.read_table(shell.folder / "t.parquet")
    assert table.column_names == [
        "click_id",
        "age",
        "country",
        "raw_label",
        "corrected_label",
        "noise_variance",
        "release",
    ]
    events = shell.json("audit", "show")
    assert [e["kind"] for e in events] == ["store-created", "message-accepted", "model-trained"]
    assert events[1]["epsilon"]["total"] == "3"
    shell.run("audit", "export", "--out", "audit.json")
    checked = shell.json("audit", "verify", "audit.json", "--key", "home/keys/signing.pub")
    assert (checked["events"], checked["verified"]) == (3, True)
    assert shell.json("audit", "verify")["head"] == checked["head"]


def test_people_get_tables(shell: Shell) -> None:
    assert "Verified message" in shell.run("verify", "m.parquet", *KEY).stdout
    shown = shell.run(
        "train",
        "--message",
        "m.parquet",
        *KEY,
        *TABLE,
        "--out",
        "model",
        "--model",
        "linear",
        "--list-unmatched",
        "u.csv",
    ).stdout
    assert "ε per example of shop" in shown
    assert (shell.folder / "u.csv").exists()
    assert "corrected" not in shell.run("join", "--message", "m.parquet", *KEY, *TABLE, "--out", "t.csv").stderr
    assert "message-accepted" in shell.run("audit", "show").stdout
    assert "events verified" in shell.run("audit", "verify").stdout


def test_pinned_keys_and_two_messages(shell: Shell) -> None:
    assert "pin-key" in shell.refused("verify", "m.parquet", code=2)
    shell.run("pin-key", "labels-signing.pub")
    shell.run("verify", "m.parquet")
    more = world(200, seed=5, prefix="d")
    other = Sender()
    (shell.folder / "other.pub").write_bytes(other.key.public.pem)
    other.write(shell.folder / "n.parquet", more.ids, more.labels, rr(), release="rel_2", batch="bat_2")
    shell.run("pin-key", "other.pub")
    both = pa.concat_tables([WORLD.table(), more.table()])
    pq.write_table(both, shell.folder / "features.parquet")
    ask = ("--message", "m.parquet", "--message", "n.parquet", *TABLE, "--out", "model")
    card = shell.json("train", *ask, "--model", "trees")
    assert card["report"]["matched"] == 500
    assert card["epsilon"][0]["epsilon_per_example"] == "3"  # batches are disjoint: the larger of 3 and 2
    assert len(card["messages"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("verify", "nothing.parquet", *KEY), 2, "no message"),
        (("verify", "m.parquet", "--labels-key", "features.parquet"), 2, "PEM"),
        (("verify", "features.parquet", *KEY), 2, "manifest"),
        (
            ("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "x", "--correction", "magic"),
            2,
            "--correction must be",
        ),
        (("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "x", "--model", "forest"), 2, "--model must be"),
        (("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "x", "--loss", "hinge"), 2, "--loss must be"),
        (("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "home"), 2, "--force"),
        (("join", "--message", "m.parquet", *KEY, *TABLE, "--out", "no/such/t.parquet"), 2, "make it first"),
        (
            ("evaluate", "--model", "nowhere", "--examples", "examples.parquet", "--label-column", "l"),
            2,
            "cannot be read",
        ),
        (("audit", "verify", "features.parquet"), 1, "DSSE"),
        (("apikey", "create", "--role", "king"), 2, "king"),
        (("apikey", "revoke", "none"), 1, "no active API key"),
        (("pull", "--url", "nonsense", "--release", "r", "--out", "o", *KEY), 2, "http"),
    ],
)
def test_errors_are_one_sentence(shell: Shell, arguments: tuple[str, ...], code: int, says: str) -> None:
    (shell.folder / "home").mkdir()
    (shell.folder / "home" / "something").touch()
    assert says in shell.refused(*arguments, code=code)


@pytest.mark.processes
def test_wrong_messages_exit_with_one(shell: Shell) -> None:
    data = bytearray((shell.folder / "m.parquet").read_bytes())
    data[40] ^= 1
    (shell.folder / "m.parquet").write_bytes(bytes(data))
    assert "signed manifest" in shell.refused("verify", "m.parquet", *KEY, code=1)
    shell.refused("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model", code=1)
    assert shell.json("audit", "show") == []
    shell.env["FEATURES_PARTY_NAME"] = "somebody-else"
    assert "not meant for 'somebody-else'" in shell.refused("verify", "m.parquet", *KEY, code=1)
    # as a process of its own it says the same
    done = subprocess.run(
        [COMMAND, "verify", "m.parquet", *KEY],
        cwd=shell.folder, env=os.environ | shell.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr == shell.refused("verify", "m.parquet", *KEY, code=1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"PAR1", "truncated or damaged"),
        (b"other,f\n1,2\n", "no column 'click_id'"),
        (b"click_id,f\na,1\na,2\n", "earlier row"),
        (b"click_id,f\n", "no rows"),
    ],
)
def test_bad_feature_tables(shell: Shell, content: bytes, says: str) -> None:
    (shell.folder / "features.parquet").write_bytes(content)
    assert says in shell.refused("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model", code=2)
    assert not (shell.folder / "model").exists()
    assert shell.json("audit", "show") == []  # nothing was accounted for


def test_a_csv_with_a_byte_order_mark_works(shell: Shell) -> None:
    rows = [f"{i},{a},{c}" for i, a, c in zip(WORLD.ids, *WORLD.features.to_pydict().values(), strict=True)]
    text = "﻿click_id,age,country\n" + "\n".join(rows) + "\n"
    (shell.folder / "features.parquet").write_text(text, encoding="utf-8")
    card = shell.json("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model", "--model", "linear")
    assert card["report"]["matched"] == 300


def test_predict_and_evaluate_say_what_training_did_not_see(shell: Shell) -> None:
    shell.run("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model", "--model", "linear")
    examples = pq.read_table(shell.folder / "examples.parquet").to_pandas()
    examples.loc[:1, "country"] = "nowhere"
    examples.to_csv(shell.folder / "e.csv", index=False)
    ask = ("predict", "--model", "model", "--features", "e.csv", "--id-column", "click_id", "--out")
    said = shell.run(*ask, "p.parquet")
    warning = "warning: column 'country': 2 of 300 cells hold categories that training did not see"
    assert said.stderr.startswith(warning)
    assert shell.json(*ask, "q.parquet")["unknown_categories"] == {"country": 2}
    evaluate = ("evaluate", "--model", "model", "--examples", "e.csv", "--label-column", "revenue")
    assert "categories of country" in shell.run(*evaluate).stdout
    assert shell.json(*evaluate)["unknown_categories"] == {"country": 2}
    examples.iloc[:0].to_csv(shell.folder / "e.csv", index=False)
    assert shell.json(*ask, "none.parquet") == {"predictions": "none.parquet", "rows": 0, "unknown_categories": {}}
    assert pq.read_table(shell.folder / "none.parquet").num_rows == 0


def test_bad_evaluation_files(shell: Shell) -> None:
    shell.run("train", "--message", "m.parquet", *KEY, *TABLE, "--out", "model", "--model", "linear")
    examples = pq.read_table(shell.folder / "examples.parquet")
    ask = ("evaluate", "--model", "model", "--examples", "e.parquet", "--label-column", "revenue")
    for table, says in (
        (examples.drop_columns(["revenue"]), "no column 'revenue'"),
        (examples.drop_columns(["age"]), "'age'"),
        (examples.slice(0, 0), "no rows"),
        (examples.set_column(3, "revenue", pa.array([None] * 300, pa.float64())), "finite number"),
        (
            examples.set_column(3, "revenue", pa.array(["x"] * 300)),
            "field 'revenue': a true label must be a finite number (and 299 more",
        ),
    ):
        pq.write_table(table, shell.folder / "e.parquet")
        assert says in shell.refused(*ask, code=2)
    negative = examples.set_column(3, "revenue", pa.array(-np.ones(300)))
    pq.write_table(negative, shell.folder / "e.parquet")
    assert shell.json(*ask)["poisson"] is None
    (shell.folder / "model" / "model.json").write_text("{}")
    assert "not the file that was signed" in shell.refused(*ask, code=1)


def test_keys(shell: Shell) -> None:
    made = shell.json("apikey", "create", "--role", "trainer")
    assert made["key"].startswith("fp_")
    shell.run("apikey", "revoke", made["id"])
    (row,) = shell.json("apikey", "list")
    assert row["role"] == "trainer"
    assert row["revoked"] is not None
    assert "key" not in row


def test_settings_errors_are_sentences(shell: Shell) -> None:
    shell.env["FEATURES_PARTY_PROT"] = "1"
    assert "FEATURES_PARTY_PROT" in shell.refused("audit", "show", code=2)


@pytest.mark.processes
def test_help_imports_nothing_heavy() -> None:
    """Instant help, judged by what is loaded: a clock would judge the machine."""
    heavy = {"pyarrow", "numpy", "xgboost", "numba", "scipy", "opendp", "sqlalchemy", "fastapi", "duckdb", "httpx"}
    for command in ("features_party", "labels_party"):
        code = (
            f"import sys, runpy; from {command}.cli import app\n"
            "from typer.testing import CliRunner\n"
            "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
            "print(*{name.split('.')[0] for name in sys.modules})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
        assert not heavy & set(done.stdout.split()), command


@pytest.mark.processes
def test_a_command_that_serves_nothing_loads_no_web_framework(tmp_path: Path) -> None:
    for command in ("features_party", "labels_party"):
        code = (
            f"import sys; from {command}.cli import app\n"
            "from typer.testing import CliRunner\n"
            "CliRunner().invoke(app, ['apikey', 'create', '--role', 'auditor'], catch_exceptions=False)\n"
            "print(*sorted({'sqlalchemy', 'fastapi', 'starlette'} & set(sys.modules)))"
        )
        home = {f"{command.upper()}_HOME": str(tmp_path / command)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | home, capture_output=True, check=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "sqlalchemy", command  # a key was made, without them


def test_pull_from_a_real_labels_party(shell: Shell) -> None:
    from tests.support.labels import LabelsParty
    from tests.support.serving import serving

    labels = pa.table({"example_id": WORLD.ids, "label": WORLD.labels})
    with LabelsParty(shell.folder / "labels-party") as party:
        release = party.release(party.sealed_batch(labels), "2")
        key = party.services.apikeys.create("features", "features-party")[1]
        public = party.services.home.public_key
        with serving(party.client().app) as url:
            where = ("pull", "--url", url, "--release", release, "--out", "p.parquet", "--labels-key", public)
            wrong = key_file(shell.folder / "wrong.key", "wrong")
            assert "API key" in shell.refused(*where, "--api-key-file", wrong, code=1)
            shell.env["FEATURES_PARTY_LABELS_API_KEY"] = key
            got = shell.json(*where)
            assert got["rows"] == 300
            assert got["epsilon"]["total"] == "2"
            assert "no such" in shell.refused(
                "pull", "--url", url, "--release", "none", "--out", "q.parquet", "--labels-key", public, code=1
            ).lower().replace("there is no", "no such")
    ask = ("--message", "p.parquet", "--labels-key", public, *TABLE, "--out", "model")
    card = shell.json("train", *ask, "--model", "trees")
    assert card["report"]["matched"] == 300
    assert sorted(p.name for p in shell.folder.glob(".*")) == []


def test_quantiles_from_messages_of_several_outputs(shell: Shell) -> None:
    """The prediction of a file has a column for each; one bit tells none, and the command says so."""
    sender = Sender()
    sender.public_key(shell.folder)
    for name, channel in (("several", laplace(epsilon=3.0)), ("bit", one_bit(epsilon=3.0))):
        sender.write(
            shell.folder / f"{name}.parquet", WORLD.ids, WORLD.labels, channel, epsilon="3", release=f"rel_{name}"
        )
        shell.json("train", "--message", f"{name}.parquet", *KEY, *TABLE, "--out", name)
    asked = ("--quantile", "0.5", "--interval", "0.8", "--out", "p.parquet")
    assert shell.json("predict", "--model", "several", *TABLE, *asked)["rows"] == 300
    found = pq.read_table(shell.folder / "p.parquet")
    assert found.column_names == ["click_id", "prediction", "quantile_0.5", "quantile_0.1", "quantile_0.9"]
    low, middle, high = (found[f"quantile_{q}"].to_numpy() for q in ("0.1", "0.5", "0.9"))
    assert np.all((low <= middle) & (middle <= high))
    refused = shell.refused("predict", "--model", "bit", *TABLE, "--interval", "0.8", "--out", "q.parquet", code=2)
    assert "knows no quantiles" in refused


def test_medians_where_outputs_tell_them_and_means_elsewhere(shell: Shell) -> None:
    """Under the absolute loss, of labels with a tail: the card says which of the two is predicted."""
    sender, n, rng = Sender(), 3000, np.random.default_rng(4)
    sender.public_key(shell.folder)
    ids, x = [f"e-{i}" for i in range(2 * n)], rng.uniform(-1.0, 1.0, 2 * n)
    labels = np.minimum(np.floor(rng.exponential(2.5 + 2.0 * np.sin(3.0 * x))), 10.0)
    pq.write_table(pa.table({"click_id": ids, "x": x, "bought": labels}), shell.folder / "features.parquet")
    told, error = {}, {}
    for name, channel in (("several", k_ary(11, "2.5")), ("bit", one_bit(epsilon=2.5))):
        sender.write(
            shell.folder / f"{name}.parquet", ids[:n], labels[:n], channel, epsilon="2.5", release=f"rel_{name}"
        )
        for loss in ("squared", "absolute"):
            out = f"{name}-{loss}"
            ask = ("--message", f"{name}.parquet", *KEY, *TABLE, "--exclude", "bought", "--loss", loss, "--out", out)
            told[out] = " ".join(shell.json("train", *ask)["notes"])
            judged = shell.json(
                "evaluate", "--model", out, "--examples", "features.parquet", "--label-column", "bought"
            )
            error[out] = judged["mae"]
    assert "the median of the labels" in told["several-absolute"]
    assert "replaced by the squared one" in told["bit-absolute"]
    assert error["several-absolute"] < 0.97 * error["several-squared"]
    assert error["bit-absolute"] == error["bit-squared"]
