"""The command line of the labels party: its other commands, settings, processes and help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from label_dp.cli.startup import run as run_app
from label_dp.documents.signing import VerifyingKey
from labels_party import cli
from tests.support.labels_cli import Run, arguments, refused

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
    batch = run(*arguments(labels, prior_epsilon="0.05"), "--json").json["batch"]
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
    refused(run("audit", "verify", "audit.json"), 1, "signed neither with our own key", "--key")
    path = home.parent / "audit.json"
    path.write_bytes(path.read_bytes().replace(b"A", b"B", 1))
    assert run("audit", "verify", "audit.json", "--key", public).code == 1
    refused(run("audit", "verify", "absent.json", "--key", public), 2, "absent.json")


def test_keygen_makes_one_key(run: Run, home: Path) -> None:
    first = run("keygen", "--json").json
    assert VerifyingKey.load(Path(first["public_key"])).id == first["key_id"]
    assert run("keygen", "--json").json == first
    assert run("keygen").out.split() == [first["key_id"], first["public_key"]]


def test_what_is_stored_is_shown_as_it_is(run: Run, labels: Path) -> None:
    """No markup, no emoji codes: a domain 0:100:1 was shown with a picture in it."""
    shown = run(*arguments(labels, domain="0:100", population="[red]x[/red] :smile:"))
    assert shown.code == 0, shown.err
    assert "0:100:1" in shown.out
    assert "[red]x[/red] :smile:" in shown.out
    assert "[red]x[/red] :smile:" in run("budget").out


# --- settings and keys -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["secret.key", "signing.key"])
def test_a_lost_key_is_missed_and_not_made_anew(name: str, run: Run, labels: Path, home: Path) -> None:
    assert run(*arguments(labels)).code == 0
    (home / "keys" / name).rename(home.parent / "backup")
    for command in (("budget",), arguments(labels, "again.parquet")):
        refused(run(*command), 1, name, "missing")
    assert not (home / "keys" / name).exists()
    (home.parent / "backup").rename(home / "keys" / name)
    assert run("audit", "verify").code == 0


# --- as a process ------------------------------------------------------------------------------------------


def process(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LABELS_PARTY_")}
    environment["LABELS_PARTY_HOME"] = str(home)
    code = "import sys; from labels_party.cli import main; sys.argv[0] = 'labels-party'; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.processes
def test_the_whole_way_as_processes(labels: Path, home: Path) -> None:
    done = process(*arguments(labels, str(home.parent / "m.parquet"), missing_label="0"), "--json", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["examples"] == 60
    again = process(*arguments(labels, str(home.parent / "n.parquet"), missing_label="0"), home=home)
    assert again.returncode == 1
    assert again.stderr.startswith("error: ")
    assert again.stderr.count("\n") == 1
    assert again.stdout == ""


@pytest.mark.processes
def test_a_bug_shows_neither_text_nor_locals(home: Path, labels: Path) -> None:
    code = (
        "import sys\n"
        "from labels_party import cli\n"
        "from labels_party.files import jobs\n"
        "def boom(*a): secret = 73194; raise RuntimeError(f'label {secret}')\n"
        "jobs.run = boom\n"
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


@pytest.mark.processes
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
