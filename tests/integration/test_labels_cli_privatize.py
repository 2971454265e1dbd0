"""`labels-party privatize` on files: forms of labels, options, priors, resuming after a crash."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.verify_standalone.answer import verify_answer
from deploy.verify_standalone.envelope import load_key
from deploy.verify_standalone.message import verify_message
from deploy.verify_standalone.refusal import RefusedError
from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import Unavailable
from labels_party.files import jobs, message
from labels_party.work.pipeline import Pipeline
from labels_party.work.store import Works
from tests.support.labels import label_table
from tests.support.labels_cli import Run, arguments, budgets, read, refused

# --- from files to a message -------------------------------------------------------------------------------


def test_privatize_parquet(run: Run, labels: Path, home: Path) -> None:
    result = run(*arguments(labels, missing_label="0"), "--json")
    assert result.code == 0, result.err
    assert result.err == ""
    shown = result.json
    assert (shown["examples"], shown["epsilon"]["total"], shown["epsilon_spent"]) == (60, "1", "1")
    assert shown["message"] == "m.parquet"
    table = read(home.parent / "m.parquet", home)
    assert table["example_id"].to_pylist() == [f"click-{i:06d}" for i in range(60)]
    assert sorted(p.name for p in home.parent.iterdir() if p != home) == [
        "labels.parquet",
        "m.parquet",
        "m.parquet.dsse.json",
        "m.prior.parquet",
    ]


def test_a_population_that_cannot_erase_says_so_once_before_any_charge(
    run: Run, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    charge = Works._request
    monkeypatch.setattr(Works, "_request", lambda *given: order.append("charged") or charge(*given))
    monkeypatch.setattr(jobs, "warn", lambda said: order.append(said))
    assert run(*arguments(labels)).code == 0
    assert "In the new population 'shop' no label can ever be erased" in order[0]
    assert "--missing-label V" in order[0]
    assert order[1:] == ["charged"]
    assert run(*arguments(labels, "again.parquet"), "--additional-release").code == 0
    assert order[1:] == ["charged", "charged"]


def test_privatize_csv_for_people(run: Run, home: Path) -> None:
    rows = "\n".join(f"00{i},{i % 11}.0,ignored" for i in range(30))
    path = home.parent / "labels.csv"
    path.write_text(f"\ufeffclick,amount,note\n{rows}\n", encoding="utf-8")
    result = run(*arguments(path, id_column="click", label_column="amount", audience="second"), "--audience", "first")
    assert result.code == 0, result.err
    for word in ("m.parquet", "shop", "first, second", "rr-on-bins", "ed25519:", "30", "public key"):
        assert word in result.out
    with pytest.raises(Exception, match="not meant"):
        read(home.parent / "m.parquet", home)
    verified = verify(home.parent / "m.parquet", VerifyingKey.load(home / "keys" / "signing.pub"), "second")
    ids = read_message(list(verified.paths), verified.manifest)["example_id"].to_pylist()
    assert ids == sorted(f"00{i}" for i in range(30))


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "one-bit"},
        {"mechanism": "one-bit", "clip": "0:5"},
        {"mechanism": "discrete-laplace"},
        {"loss": "absolute"},
        {"loss": "poisson"},
        {"prior": "uniform"},
        {"prior_epsilon": "0.2", "prior_method": "clip"},
        {"prior_epsilon": "theorem7"},
    ],
)
def test_options_reach_the_manifest(options: dict[str, str], run: Run, labels: Path, home: Path) -> None:
    result = run(*arguments(labels, **options), "--json")
    assert result.code == 0, result.err
    manifest = verify(home.parent / "m.parquet", VerifyingKey.load(home / "keys" / "signing.pub"), None).manifest
    assert manifest.mechanism.name == options.get("mechanism", "rr-on-bins")
    assert manifest.loss == options.get("loss", "squared")
    assert manifest.epsilon.total.nano == 10**9
    if "prior_epsilon" in options:
        assert manifest.epsilon.prior.nano > 0
    if options.get("prior_epsilon") == "0.2":
        assert (str(manifest.epsilon.prior), manifest.prior.method) == ("0.2", "clip")
    if options.get("prior") == "uniform":
        assert (manifest.prior.source, manifest.epsilon.prior.nano) == ("uniform", 0)


def test_a_list_of_examples_and_a_missing_label(run: Run, labels: Path, home: Path) -> None:
    examples = home.parent / "examples.csv"
    examples.write_text("example_id\n" + "\n".join(f"click-{i:06d}" for i in range(70)) + "\n")
    result = run(*arguments(labels, examples=str(examples), missing_label="0"), "--json")
    assert result.code == 0, result.err
    assert result.json["examples"] == 70
    manifest = verify(home.parent / "m.parquet", VerifyingKey.load(home / "keys" / "signing.pub"), None).manifest
    assert (manifest.missing_label, manifest.presence) == ("0", "id list given before labels counted")
    assert read(home.parent / "m.parquet", home).num_rows == 70


def test_an_uneven_domain_and_a_prior_from_files(run: Run, labels: Path, home: Path) -> None:
    domain, prior = home.parent / "domain.csv", home.parent / "prior.parquet"
    domain.write_text("label\n0\n1\n2.5\n10\n")
    pq.write_table(pa.table({"label": [0.0, 1.0, 2.5, 10.0], "probability": [0.25] * 4}), prior)
    result = run(*arguments(labels, domain=str(domain), prior=str(prior)), "--json")
    assert result.code == 0, result.err
    assert result.json["prior"] == "declared public by the owner"
    assert result.json["domain"] == "4 listed values"
    plan = run("plan", "--population", "shop", "--epsilon", "0.5", "--n", "100", "--json")
    offered = {m["mechanism"] for m in plan.json["mechanisms"]}
    assert offered >= {"rr-on-bins", "one-bit", "laplace", "staircase"}
    assert not {name for name in offered if name.startswith("discrete-")}


def test_a_prior_from_an_own_message_is_free_and_from_another_refused(
    run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*arguments(labels)).code == 0
    second = home.parent / "more.parquet"
    pq.write_table(label_table(40, prefix="more"), second)
    carried = run(*arguments(second, "m2.parquet", prior="m.parquet"), "--json")
    assert carried.code == 0, carried.err
    assert (carried.json["prior"], carried.json["epsilon"]["prior"]) == ("carried over", "0")
    monkeypatch.setenv("LABELS_PARTY_HOME", str(home.parent / "other"))
    third = home.parent / "third.parquet"
    pq.write_table(label_table(40, prefix="third"), third)
    refused(run(*arguments(third, "m3.parquet", prior="m.parquet")), 1, "signing key")


def test_a_message_that_says_nothing_is_announced(run: Run, home: Path) -> None:
    tiny = home.parent / "tiny.csv"
    tiny.write_text("example_id,label\na,1\nb,2\nc,3\n")
    done = run(*arguments(tiny, domain="0:0"), "--json")
    assert "says nothing about single labels" in done.json["note"]


# --- crashes -----------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stage", ["after the charge", "while drawing", "before the message is written out"])
def test_a_rerun_after_a_crash_resumes_without_a_second_charge(
    stage: str, run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if stage == "after the charge":
            patch.setattr(message, "finish", killed)
        elif stage == "while drawing":
            patch.setattr(Pipeline, "_publish", killed)
        else:
            patch.setattr(message, "write_out", killed)
        with pytest.raises(Killed):
            run(*arguments(labels))
    assert not (home.parent / "m.parquet").exists()
    (report,) = run("budget", "--json").json
    assert report["epsilon_spent_at_most"] == "1"
    if stage != "before the message is written out":
        other = run(*arguments(labels, epsilon="0.5"))
        refused(other, 1, "charged with other settings", "labels-party message rel_")
    again = run(*arguments(labels), "--json")
    if stage == "before the message is written out":
        refused(again, 1, "labels-party message rel_")
        release = again.err.split("labels-party message ")[1].split(" ")[0]
        assert run("message", release, "--out", "m.parquet").code == 0
    else:
        assert again.code == 0, again.err
        assert again.json["epsilon_spent"] == "1"
        assert "the labels of then were used" in again.json["note"]
    assert read(home.parent / "m.parquet", home).num_rows == 60
    (report,) = run("budget", "--json").json
    assert report["epsilon_spent_at_most"] == "1"


def test_a_failing_disk_is_a_refusal_that_can_be_repeated(
    run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("labels_party.message.engine.reserve", full)
        refused(run(*arguments(labels, missing_label="0")), Unavailable.exit_code, "no space")
    assert run(*arguments(labels, missing_label="0"), "--json").json["epsilon_spent"] == "1"


def test_the_message_is_written_again_byte_for_byte(run: Run, labels: Path, home: Path) -> None:
    release = run(*arguments(labels), "--json").json["release"]
    assert run("message", release, "--out", "copy.parquet", "--json").json["release"] == release
    for suffix in (".parquet", ".parquet.dsse.json", ".prior.parquet"):
        assert (home.parent / f"m{suffix}").read_bytes() == (home.parent / f"copy{suffix}").read_bytes()
    refused(run("message", release, "--out", "copy.parquet"), 2, "exists already")
    refused(run("message", "rel_absent", "--out", "x.parquet"), 1, "no release")
    refused(run("message", "rel_\udcff", "--out", "x.parquet"), 1, "no release")
    (report,) = run("budget", "--json").json
    assert report["epsilon_spent_at_most"] == "1"


def test_a_signature_before_a_rotation_is_verified_with_its_own_key(
    run: Run, labels: Path, home: Path, tmp_path: Path
) -> None:
    before = run(*arguments(labels, budget="9", missing_label="0"), "--json").json
    median = (
        "median",
        *arguments(labels, "m.json", budget="9", missing_label="0", mechanism=None)[1:],
        "--additional-release",
    )
    asked = run(*median, "--json")
    assert asked.code == 0, asked.err
    answer = asked.json
    rotated = run("keys", "rotate-signing", "--json").json
    kept, now = Path(rotated["public_key_before"]), Path(rotated["public_key"])
    assert VerifyingKey.load(kept).id == rotated["before"] == before["key_id"]
    assert VerifyingKey.load(now).id == rotated["key_id"] != before["key_id"]
    for path in ("m.parquet", "m.json"):
        assert run("inspect", path, "--json").json["key_id"] == before["key_id"]
        assert run("inspect", path, "--labels-key", str(kept)).code == 0
        refused(run("inspect", path, "--labels-key", str(now)), 1, "than the one to verify it with")
    again = run("message", before["release"], "--out", "again.parquet", "--json").json
    assert (again["key_id"], again["labels_key"]) == (before["key_id"], str(kept))
    assert run("answer", answer["answer"], "--out", "again.json", "--json").json["labels_key"] == str(kept)
    for verify_alone, path in ((verify_message, "again.parquet"), (verify_answer, "again.json")):
        assert verify_alone(home.parent / path, *load_key(kept), None)
        with pytest.raises(RefusedError, match=r"keys/signing-….pub"):
            verify_alone(home.parent / path, *load_key(now), None)
    # a home that was rotated before this was kept makes it anew at its next start
    kept.unlink()
    later = run(*arguments(labels, "l.parquet", budget="9", missing_label="0"), "--additional-release", "--json").json
    assert later["key_id"] == rotated["key_id"]
    assert VerifyingKey.load(kept).id == rotated["before"]


def test_an_output_lost_after_the_charge_says_how_to_get_it_free(
    run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    options = {"budget": "9", "missing_label": "0"}
    with monkeypatch.context() as patch:
        patch.setattr(message.shutil, "copyfile", full)
        said = run(*arguments(labels, **options))
    free = r"What was charged is kept: (labels-party \S+ (\S+) --out) FILE writes it, free of charge\."
    refused(said, 2, "'m.parquet' cannot be written (No space left on device). What was charged is kept")
    assert sorted(p.name for p in home.parent.iterdir() if p != home) == ["labels.parquet"]
    (found,) = re.finditer(free, said.err)
    assert run(*found[1].split()[1:], "m.parquet", "--json").json["epsilon_spent"] == "1"
    refused(run(*found[1].split()[1:], "m.parquet"), 2, "exists already")
    median = ("median", *arguments(labels, "/dev/full", mechanism=None, **options)[1:], "--additional-release")
    said = run(*median)
    refused(said, 2, "'/dev/full' cannot be written (No space left on device). What was charged is kept")
    (found,) = re.finditer(free, said.err)
    assert run(*found[1].split()[1:], "m.json", "--json").json["epsilon_spent"] == "2"
    assert run("budget", "--json").json[0]["epsilon_spent_at_most"] == "2"


def test_a_plan_comes_before_anything_exists_or_is_charged(run: Run, labels: Path, home: Path, tmp_path: Path) -> None:
    asked = ("--n", "60", "--epsilon", "1", "--json")
    planned = run("plan", "--domain", "0:10", "--budget", "2", *asked)
    assert planned.code == 0, planned.err
    assert not (home / "keys").exists()  # it made no home
    rules = ("--population", "shop", "--label-column", "label", "--domain", "0:10", "--missing-label", "0")
    made = run("population", "create", *rules, "--budget", "2", "--json").json
    assert (made["name"], made["missing_label"], made["lifetime_epsilon"]) == ("shop", "0", "2")
    assert not any("erased, since there is no missing" in sentence for sentence in made["ruled_out"])
    of_it = run("plan", "--population", "shop", *asked).json
    assert of_it | {"population": ""} == planned.json | {"population": ""}
    assert of_it["recommendations"][0]["epsilon_left"] == "1"
    assert [r["epsilon_spent_at_most"] for r in budgets(run, home)] == ["0"]
    refused(run("population", "create", *rules, "--budget", "3"), 1, "exists already")
    assert run(*arguments(labels, missing_label="0"), "--json").json["population"] == "shop"
    assert [r["epsilon_spent_at_most"] for r in budgets(run, home)] == ["1"]
    assert run("plan", "--domain", "0:10", *asked, "--out", str(tmp_path / "p.html")).code == 0
    assert "with domain 0:10, not declared yet" in (tmp_path / "p.html").read_text("utf-8")
    for wrong in ((), ("--population", "shop", "--domain", "0:10"), ("--population", "shop", "--budget", "2")):
        refused(run("plan", *wrong, *asked), 2, "--domain")
    refused(run("plan", "--domain", "0:10", "--epsilon", "1"), 2, "needs --n")


def test_a_renamed_label_column_is_not_silently_charged_afresh(run: Run, labels: Path, home: Path) -> None:
    first = run(*arguments(labels, missing_label="0"))
    assert "label name" not in first.err
    renamed = home.parent / "renamed.parquet"
    pq.write_table(pq.read_table(labels).rename_columns(["example_id", "sale"]), renamed)
    again = run(*arguments(renamed, "r.parquet", label_column="sale", population="sales", missing_label="0"))
    assert again.code == 0
    assert (
        "warning: The label name 'sale' is new beside 'label': what the same examples spend under different"
        in again.err
    )
    other = pq.read_table(renamed).set_column(
        0, "example_id", pa.array([f"o{n}" for n in range(pq.read_metadata(renamed).num_rows)])
    )
    pq.write_table(other.rename_columns(["example_id", "SALE"]), home.parent / "other.parquet")
    spelling = arguments(
        home.parent / "other.parquet", "o.parquet", label_column="SALE", population="SALES", missing_label="0"
    )
    assert "label name" not in run(*spelling).err  # people read both names as one, and so does the ledger
    more = arguments(renamed, "s.parquet", label_column="sale", population="sales", missing_label="0")
    assert "label name" not in run(*more, "--additional-release").err


def test_a_wrong_column_is_answered_with_the_columns_there_are(run: Run, labels: Path) -> None:
    refused(
        run(*arguments(labels, label_column="price")), 2, "no column 'price'. Its columns are: 'example_id', 'label'."
    )
    wrong = arguments(labels, label_column="price", id_column="click")
    refused(run(*wrong), 2, "It has 2 columns")  # then they may be a first row of values
