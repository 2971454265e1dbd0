"""The command line of the labels party: offline on files, one line per error, exit codes, resuming after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from labels_party import cli, offline
from labels_party.release.pipeline import Pipeline
from shared.errors import Unavailable
from shared.message.bundle import verify
from shared.message.parquet import read_message
from shared.message.signing import VerifyingKey
from shared.service.cli import run as run_app
from tests.support.labels import label_table


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.upper().startswith("LABELS_PARTY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LABELS_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command as its entry point runs it, with the handling of errors, in this process."""

    def command(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["labels-party", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return command


@pytest.fixture
def labels(home: Path) -> Path:
    path = home.parent / "labels.parquet"
    pq.write_table(label_table(60), path)
    return path


def arguments(file: Path, to: str = "m.parquet", /, **changes: str | None) -> list[str]:
    options: dict[str, str | None] = {
        "labels": str(file),
        "id-column": "example_id",
        "label-column": "label",
        "domain": "0:10",
        "epsilon": "1",
        "population": "shop",
        "budget": "2",
        "out": to,
    }
    options |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [
        "privatize",
        *(part for name, value in options.items() if value is not None for part in (f"--{name}", value)),
    ]


def budgets(run: Run, home: Path) -> list[dict[str, Any]]:
    """The ledger as the command shows it; a party that was never made has none."""
    return list(run("budget", "--json").json) if (home / "keys").exists() else []


def refused(result: Result, code: int, *words: str) -> None:
    """One line on stderr, no traceback, nothing on stdout."""
    assert result.code == code, result.err
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    for word in words:
        assert word in result.err, result.err


def read(path: Path, home: Path) -> pa.Table:
    verified = verify(path, VerifyingKey.load(home / "keys" / "signing.pub"), "features-party")
    return read_message(list(verified.paths), verified.manifest)


# --- privatize ---------------------------------------------------------------------------------------------


def test_privatize_parquet(run: Run, labels: Path, home: Path) -> None:
    result = run(*arguments(labels), "--json")
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
    assert manifest.split.total.nano == 10**9
    if "prior_epsilon" in options:
        assert manifest.split.prior.nano > 0
    if options.get("prior_epsilon") == "0.2":
        assert (manifest.epsilon["prior"], manifest.prior.method) == ("0.2", "clip")
    if options.get("prior") == "uniform":
        assert (manifest.prior.source, manifest.split.prior.nano) == ("uniform", 0)


def test_a_list_of_examples_and_a_missing_label(run: Run, labels: Path, home: Path) -> None:
    examples = home.parent / "examples.csv"
    examples.write_text("example_id\n" + "\n".join(f"click-{i:06d}" for i in range(70)) + "\n")
    result = run(*arguments(labels, examples=str(examples), missing_label="0"), "--json")
    assert result.code == 0, result.err
    assert result.json["examples"] == 70
    manifest = verify(home.parent / "m.parquet", VerifyingKey.load(home / "keys" / "signing.pub"), None).manifest
    assert (manifest.missing_label, manifest.presence) == ("0", "id list given before labels counted")
    assert read(home.parent / "m.parquet", home).num_rows == 70


def test_missing_labels_without_a_value_are_a_refusal(run: Run, labels: Path, home: Path) -> None:
    examples = home.parent / "examples.csv"
    examples.write_text("example_id\n" + "\n".join(f"click-{i:06d}" for i in range(61)) + "\n")
    refused(run(*arguments(labels, examples=str(examples))), 1, "no label")
    assert [b for r in run("budget", "--json").json for b in r["batches"]] == []


def test_an_uneven_domain_and_a_prior_from_files(run: Run, labels: Path, home: Path) -> None:
    domain, prior = home.parent / "domain.csv", home.parent / "prior.parquet"
    domain.write_text("label\n0\n1\n2.5\n10\n")
    pq.write_table(pa.table({"label": [0.0, 1.0, 2.5, 10.0], "probability": [0.25] * 4}), prior)
    result = run(*arguments(labels, domain=str(domain), prior=str(prior)), "--json")
    assert result.code == 0, result.err
    assert result.json["prior"] == "declared public by the owner"
    assert result.json["domain"] == "4 listed values"
    plan = run("plan", "--population", "shop", "--epsilon", "0.5", "--n", "100", "--json")
    assert {m["mechanism"] for m in plan.json["mechanisms"]} == {"rr-on-bins", "one-bit"}


def test_a_prior_from_an_own_message_costs_nothing_and_from_another_is_refused(
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


# --- refusals ----------------------------------------------------------------------------------------------


def test_over_budget_is_a_refusal_and_costs_nothing(run: Run, labels: Path, home: Path) -> None:
    refused(run(*arguments(labels, epsilon="2.000000001")), 1, "at most 2 is left")
    assert not (home.parent / "m.parquet").exists()
    assert budgets(run, home) == []  # nothing was declared or sealed on the way to the refusal
    assert run(*arguments(labels, epsilon="2")).code == 0


def test_a_second_release_needs_to_be_asked_for_and_is_charged_on_top(run: Run, labels: Path, home: Path) -> None:
    assert run(*arguments(labels)).code == 0
    again = run(*arguments(labels, "again.parquet"))
    refused(again, 1, "--additional-release", "labels-party message rel_")
    more = run(*arguments(labels, "more.parquet"), "--additional-release", "--json")
    assert more.json["epsilon_spent"] == "2"
    assert read(home.parent / "more.parquet", home).num_rows == 60
    refused(run(*arguments(labels, "most.parquet"), "--additional-release"), 1, "at most 0 is left")


def test_a_population_keeps_its_rules(run: Run, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    for change in ({"domain": "0:11"}, {"budget": "3"}, {"audience": "x"}, {"out_of_domain": "refuse"}):
        refused(run(*arguments(labels, "x.parquet", **change)), 1, "other rules")


@pytest.mark.parametrize("existing", ["m.parquet", "m.parquet.dsse.json"])
def test_an_existing_file_is_never_overwritten(existing: str, run: Run, labels: Path, home: Path) -> None:
    (home.parent / existing).write_text("mine")
    refused(run(*arguments(labels)), 2, "exists already")
    assert (home.parent / existing).read_text() == "mine"
    assert budgets(run, home) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"labels": "absent.csv"}, "absent.csv"),
        ({"id_column": "nope"}, "no column 'nope'"),
        ({"label_column": "nope"}, "no column 'nope'"),
        ({"domain": "10:0"}, "domain"),
        ({"domain": "nonsense"}, "neither a domain"),
        ({"epsilon": "0"}, "greater than zero"),
        ({"epsilon": "-1"}, "negative"),
        ({"epsilon": "nan"}, "finite"),
        ({"epsilon": "1e-999999999"}, "decimals"),
        ({"budget": "0"}, "greater than zero"),
        ({"budget": "0.1234567891"}, "9 decimals"),
        ({"mechanism": "magic"}, "rr-on-bins"),
        ({"loss": "hinge"}, "squared"),
        ({"prior": "guess"}, "prior"),
        ({"prior_epsilon": "1"}, "smaller than the total"),
        ({"prior_method": "wish"}, "project"),
        ({"clip": "0:5"}, "option"),
        ({"mechanism": "one-bit", "clip": "5"}, "A:B"),
        ({"missing_label": "10.5"}, "domain"),
        ({"out_of_domain": "shrug"}, "clip"),
        ({"audience": ""}, "audience"),
        ({"out": "absent/m.parquet"}, "does not exist"),
        ({"examples": "absent.csv"}, "absent.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    change: dict[str, str], word: str, run: Run, labels: Path, home: Path
) -> None:
    refused(run(*arguments(labels, **change)), 2, word)
    assert not list(home.parent.glob("*.dsse.json"))
    assert budgets(run, home) == []  # a batch that was sealed in vain could never be used again


@pytest.mark.parametrize(
    "wrong", [["nonsense"], ["privatize", "--nonsense"], ["plan"], ["apikey", "revoke"], ["message"]]
)
def test_wrong_usage_is_exit_code_two(wrong: list[str], run: Run) -> None:
    result = run(*wrong)
    assert result.code == 2
    assert "Traceback" not in result.err + result.out


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
            patch.setattr(offline, "finish", killed)
        elif stage == "while drawing":
            patch.setattr(Pipeline, "_publish", killed)
        else:
            patch.setattr(offline, "write_out", killed)
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
        patch.setattr("labels_party.release.engine.reserve", full)
        refused(run(*arguments(labels)), Unavailable.exit_code, "no space")
    assert run(*arguments(labels), "--json").json["epsilon_spent"] == "1"


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


# --- the other commands ------------------------------------------------------------------------------------


def test_inspect_verifies_and_shows(run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*arguments(labels)).code == 0
    shown = run("inspect", "m.parquet", "--json")
    assert shown.json["verified"] is True
    assert "rr-on-bins" in run("inspect", "m.parquet").out
    public = home / "keys" / "signing.pub"
    monkeypatch.setenv("LABELS_PARTY_HOME", str(home.parent / "elsewhere"))
    assert run("inspect", "m.parquet", "--labels-key", public, "--json").json == shown.json
    assert not (home.parent / "elsewhere").exists()
    path = home.parent / "m.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    refused(run("inspect", "m.parquet", "--labels-key", public), 1, "does not match")
    refused(run("inspect", "absent.parquet", "--labels-key", public), 2, "no message")
    refused(run("inspect", "m.parquet", "--labels-key", "absent.pub"), 2, "absent.pub")


def test_plan_before_and_after_a_release(run: Run, labels: Path) -> None:
    assert run("keygen").code == 0
    refused(run("plan", "--population", "shop", "--epsilon", "1", "--n", "5"), 1, "no population")
    batch = run(*arguments(labels), "--json").json["batch"]
    refused(run("plan", "--population", "shop", "--epsilon", "1"), 2, "number of examples")
    refused(run("plan", "--population", "shop", "--epsilon", "0", "--n", "5"), 2, "greater than zero")
    refused(run("plan", "--population", "shop", "--epsilon", "1", "--batch", "bat_absent"), 1, "no batch")
    planned = run("plan", "--population", "shop", "--epsilon", "1", "--batch", batch, "--json").json
    assert (planned["n"], planned["prior"].split(" ")[0]) == (60, "carried")
    assert "one-bit" in run("plan", "--population", "shop", "--epsilon", "1", "--n", "1000").out
    (report,) = run("budget", "--json").json
    assert report["epsilon_spent_at_most"] == "1"


def test_budget(run: Run, labels: Path) -> None:
    assert run("keygen").code == 0
    assert run("budget", "--json").json == []
    run(*arguments(labels))
    (report,) = run("budget", "--population", "shop", "--json").json
    assert [(b["epsilon_spent"], b["epsilon_left"], b["examples"]) for b in report["batches"]] == [("1", "1", 60)]
    assert "lifetime ε 2" in run("budget").out
    refused(run("budget", "--population", "other"), 1, "no population")


def test_keys_of_the_interface(run: Run, home: Path) -> None:
    made = run("apikey", "create", "--role", "features", "--audience", "pub", "--json").json
    assert made["key"].startswith("lp_")
    plain = run("apikey", "create", "--role", "owner").out.strip()
    assert plain.startswith("lp_")
    listed = run("apikey", "list", "--json").json
    assert [(k["role"], k["audience"], k["revoked"]) for k in listed] in (
        [("features", "pub", None), ("owner", None, None)],
        [("owner", None, None), ("features", "pub", None)],
    )
    assert made["key"] not in run("apikey", "list").out
    assert not any(plain.encode() in p.read_bytes() for p in home.rglob("*") if p.is_file())
    assert run("apikey", "revoke", made["id"]).code == 0
    assert [k["revoked"] is not None for k in run("apikey", "list", "--json").json if k["id"] == made["id"]] == [True]
    refused(run("apikey", "revoke", made["id"]), 1, "no active")
    refused(run("apikey", "create", "--role", "king"), 2, "owner, ingest, features, auditor")


def test_audit_show_export_verify(run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(*arguments(labels))
    events = run("audit", "show", "--json").json
    kinds = ["store-created", "population-created", "batch-sealed", "release-charged", "release-published"]
    assert [e["kind"] for e in events] == kinds
    assert [e["kind"] for e in run("audit", "show", "--population", "shop", "--json").json] == kinds[1:]
    assert "release-charged" in run("audit", "show").out
    verified = run("audit", "verify", "--json").json
    assert (verified["events"], verified["verified"]) == (5, True)
    assert (
        run("audit", "export", "--out", "audit.json", "--json").json["bytes"]
        == (home.parent / "audit.json").stat().st_size
    )
    told = ("events", "head", "verified", "not_checked")
    exported = run("audit", "verify", "audit.json", "--json").json
    assert [exported[name] for name in told] == [verified[name] for name in told]
    refused(run("audit", "export", "--out", "absent/audit.json"), 2, "does not exist")
    public = home / "keys" / "signing.pub"
    monkeypatch.setenv("LABELS_PARTY_HOME", str(home.parent / "elsewhere"))
    assert run("audit", "verify", "audit.json", "--key", public, "--json").json == exported
    assert run("keygen").code == 0
    refused(run("audit", "verify", "audit.json"), 1, "signing key")
    path = home.parent / "audit.json"
    path.write_bytes(path.read_bytes().replace(b"A", b"B", 1))
    assert run("audit", "verify", "audit.json", "--key", public).code == 1
    refused(run("audit", "verify", "absent.json", "--key", public), 2, "absent.json")


def test_keygen_makes_one_key(run: Run, home: Path) -> None:
    first = run("keygen", "--json").json
    assert VerifyingKey.load(Path(first["public_key"])).id == first["key_id"]
    assert run("keygen", "--json").json == first
    assert run("keygen").out.split() == [first["key_id"], first["public_key"]]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("LABELS_PARTY_BUGDET", "1", "LABELS_PARTY_BUGDET"),
        ("labels_party_hom", "x", "hom"),
        ("LABELS_PARTY_PORT", "a lot", "LABELS_PARTY_PORT"),
        ("LABELS_PARTY_MAX_BODY_BYTES", "5", "LABELS_PARTY_MAX_BODY_BYTES"),
        ("LABELS_PARTY_DATABASE_URL", "mysql://user:hunter2@host/db", "not supported"),
    ],
)
def test_wrong_settings_are_refused_by_name_and_never_by_value(
    name: str, value: str, word: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("keygen").code == 0
    monkeypatch.setenv(name, value)
    result = run("budget")
    refused(result, 2, word)
    assert "hunter2" not in result.err


def test_a_home_that_is_a_file_and_a_secret_that_was_swapped_are_refused(
    run: Run, labels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*arguments(labels))
    secret = home / "keys" / "secret.key"
    kept = secret.read_bytes()
    secret.write_bytes(bytes(32))
    refused(run("budget"), 1, "secret.key")
    secret.write_bytes(b"short")
    refused(run("budget"), 2, "damaged")
    secret.write_bytes(kept)
    assert run("budget").code == 0
    monkeypatch.setenv("LABELS_PARTY_HOME", str(labels))
    refused(run("budget"), 1, "LABELS_PARTY_HOME")


# --- as a process ------------------------------------------------------------------------------------------


def process(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LABELS_PARTY_")}
    environment["LABELS_PARTY_HOME"] = str(home)
    code = "import sys; from labels_party.cli import main; sys.argv[0] = 'labels-party'; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_the_whole_way_as_processes(labels: Path, home: Path) -> None:
    done = process(*arguments(labels, str(home.parent / "m.parquet")), "--json", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["examples"] == 60
    again = process(*arguments(labels, str(home.parent / "n.parquet")), home=home)
    assert again.returncode == 1
    assert again.stderr.startswith("error: ")
    assert again.stderr.count("\n") == 1
    assert again.stdout == ""


def test_a_bug_shows_neither_text_nor_locals(home: Path, labels: Path) -> None:
    code = (
        "import sys\n"
        "from labels_party import cli, offline\n"
        "def boom(*a): secret = 73194; raise RuntimeError(f'label {secret}')\n"
        "offline.privatize = boom\n"
        "cli.main()\n"
    )
    environment = os.environ | {"LABELS_PARTY_HOME": str(home)}
    words = arguments(labels)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "internal error (RuntimeError" in done.stderr
    assert "73194" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def _commands(app: typer.Typer, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    for command in app.registered_commands:
        assert command.callback is not None
        found.append((*path, command.name or command.callback.__name__))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found += _commands(group.typer_instance, (*path, str(group.name)))
    return found


@pytest.mark.parametrize("words", _commands(cli.app), ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...], run: Run, home: Path) -> None:
    result = run(*words, "--help")
    assert (result.code, result.err) == (0, "")
    assert "Usage" in result.out
    if words:
        assert " ".join(words) in result.out
    assert not home.exists()  # help makes nothing


def test_help_is_instant_because_nothing_heavy_is_imported(home: Path) -> None:
    code = (
        "import sys\nfrom labels_party import cli\n"
        "heavy = {'pyarrow', 'duckdb', 'numba', 'scipy', 'opendp', 'fastapi', 'sqlalchemy', 'cryptography', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_of_any_app_are_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["app"])
    with pytest.raises(SystemExit) as stopped:
        run_app(app)
    assert stopped.value.code in (1, 130)
    assert "Traceback" not in capfd.readouterr().err


# --- what a first visitor stumbled over ---------------------------------------------------------------------


def test_what_is_stored_is_shown_as_it_is(run: Run, labels: Path) -> None:
    """No markup, no emoji codes: a domain 0:100:1 was shown with a picture in it."""
    shown = run(*arguments(labels, domain="0:100", population="[red]x[/red] :smile:"))
    assert shown.code == 0, shown.err
    assert "0:100:1" in shown.out
    assert "[red]x[/red] :smile:" in shown.out
    assert "[red]x[/red] :smile:" in run("budget").out


@pytest.mark.parametrize("wrong", ["outside", "text", "missing"])
def test_bad_rows_do_not_freeze_the_rules_of_a_population(wrong: str, run: Run, home: Path) -> None:
    path, listed = home.parent / "wrong.csv", home.parent / "ids.csv"
    path.write_text("example_id,label\na,1\nb," + {"outside": "77", "text": "x", "missing": "2"}[wrong] + "\n")
    listed.write_text("example_id\na\nb\nc\n")
    options = {"out_of_domain": "refuse"} | ({"examples": str(listed)} if wrong == "missing" else {})
    assert run(*arguments(path, **options)).code in (1, 2)
    assert budgets(run, home) == []
    path.write_text("example_id,label\n" + "".join(f"{i},{i % 10}\n" for i in range(50)))
    assert run(*arguments(path)).code == 0


@pytest.mark.parametrize("name", ["secret.key", "signing.key"])
def test_a_lost_key_is_missed_and_not_made_anew(name: str, run: Run, labels: Path, home: Path) -> None:
    assert run(*arguments(labels)).code == 0
    (home / "keys" / name).rename(home.parent / "backup")
    for command in (("budget",), arguments(labels, "again.parquet")):
        refused(run(*command), 1, name, "missing")
    assert not (home / "keys" / name).exists()
    (home.parent / "backup").rename(home / "keys" / name)
    assert run("audit", "verify").code == 0


def test_a_message_that_says_nothing_is_announced(run: Run, home: Path) -> None:
    tiny = home.parent / "tiny.csv"
    tiny.write_text("example_id,label\na,1\nb,2\nc,3\n")
    done = run(*arguments(tiny, domain="0:0"), "--json")
    assert "says nothing about single labels" in done.json["note"]


def test_the_same_examples_under_another_name_say_what_to_do(run: Run, labels: Path) -> None:
    assert run(*arguments(labels)).code == 0
    refused(run(*arguments(labels, "x.parquet", population="other")), 1, "population 'shop'", "--additional-release")
