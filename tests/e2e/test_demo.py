"""The demo as a first visitor runs it: what it tells, what it leaves, and that nothing of it stays behind."""

from __future__ import annotations

import ast
import json
import math
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from deploy.demo.__main__ import DemoStopped, orderly
from deploy.demo.clicks import DOMAIN, shop_day
from deploy.demo.ending import show_end, show_table
from deploy.demo.folder import MARKER, prepare
from deploy.demo.services import Service
from deploy.demo.shop import Shop
from deploy.demo.story import EVENTS
from deploy.demo.telling import Teller
from features_party.client import FeaturesPartyClient
from label_dp.documents.bundle import verify
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidInput
from label_dp.schemas.events import BECAME
from labels_party.client import LabelsPartyClient
from tests.support.commands import command
from tests.support.demo import Told, run, start
from tests.support.events import oracle
from tests.support.labels import LabelsParty

pytestmark = pytest.mark.processes

DOMAIN_END = float(DOMAIN.split(":")[1])
MECHANISMS = [
    "RR-on-Bins, uncorrected",
    "RR-on-Bins, corrected",
    "one bit",
    "discrete Laplace",
    "auto",
    "no privacy",
]


def check_table(rows: list[dict[str, Any]], constant: float) -> None:
    assert [row["mechanism"] for row in rows] == MECHANISMS
    test = {row["mechanism"]: row["test_mse"] for row in rows}
    assert all(0 < mse < 400**2 for mse in test.values())
    assert min(test, key=test.__getitem__) == "no privacy"
    assert test["no privacy"] < 0.8 * constant
    for row in rows[:-1]:
        assert float(row["epsilon"]["prior"]) + float(row["epsilon"]["randomize"]) == pytest.approx(1)
        assert row["gain"] == pytest.approx((constant - row["test_mse"]) / (constant - test["no privacy"]))
        assert row["label_mse"] > 0
        assert (row["epsilon_spent"], row["epsilon_lifetime"]) == ("1", "2")
        assert row["release"].startswith("rel_")
    assert rows[0]["release"] == rows[1]["release"]
    assert rows[0]["correction"]["applied"] == "none"
    # as it is drawn a label of RR-on-Bins has the smallest error
    assert min(rows[:-1], key=lambda row: row["label_mse"]) == rows[0]
    assert (rows[-1]["label_mse"], rows[-1]["gain"], rows[-1]["epsilon"]) == (0, 1, None)


def test_the_story_is_plain_text_that_fits_a_terminal(told: Told) -> None:
    text = told.done.stdout
    assert told.done.stderr == ""
    assert "\x1b" not in text
    assert "Traceback" not in text
    story = text.split("Try next")[0]
    assert max(len(line) for line in story.splitlines()) <= 80
    steps = [int(line[:2]) for line in story.splitlines() if re.match(r"[ 1]\d +\d+\.\d s  ", line)]
    assert steps == list(range(1, 14))


def test_every_step_shows_the_call_that_does_it(told: Told) -> None:
    """The calls are those of the clients, as valid Python or shell, and none of them shows a secret."""
    steps = re.split(r"\n\n[ 1]\d +\d+\.\d s  ", told.done.stdout.split("\nThe same ")[0])[1:]
    clients = {"owner": LabelsPartyClient, "backend": LabelsPartyClient}
    clients |= {"trainer": FeaturesPartyClient, "auditor": FeaturesPartyClient}
    seen = set()
    for number, step in enumerate(steps, 1):
        code = "\n".join(line for line in step.splitlines() if line.startswith(" " * 7))
        calls = re.findall(rf"^ *({'|'.join(clients)})\.(\w+)(\([^)]*\))$", code, re.M)
        assert calls or number in (1, 12), step
        for name, method, given in calls:
            assert callable(getattr(clients[name], method))
            seen.add(f"{name}.{method}")
            ast.parse(method + given.replace("{manifest, message with another bit}", "{}"))
    assert {"owner.release", "owner.budget", "trainer.send_ids", "trainer.pull", "owner.event_counts"} <= seen
    secrets = [path.read_text(encoding="utf-8").strip() for path in (told.out / "keys").glob("*.key")]
    assert len(secrets) == 5
    assert not any(secret in told.done.stdout for secret in secrets)


def test_the_story_shows_what_the_publisher_sees(told: Told) -> None:
    seen = re.findall(r"(clk-\d{8}) +([\d.]+) +([\d.]+)$", told.done.stdout, re.M)
    assert len(seen) == 4
    message = pq.read_table(told.out / "message.parquet").to_pylist()
    sent = {row["example_id"]: f"{row['label']:.2f}" for row in message}
    revenue = pq.read_table(told.out / "clicks" / "revenue.parquet").to_pylist()
    truth = {row["click_id"]: f"{row['revenue_eur']:.2f}" for row in revenue}
    assert [(sent[click], truth[click]) for click, _, _ in seen] == [(label, true) for _, label, true in seen]


def test_the_events_add_up_to_the_revenue_of_each_click(told: Told, tmp_path: Path) -> None:
    revenue = pq.read_table(told.out / "clicks" / "revenue.parquet")
    shop = Shop("shop-orders", {}, httpx.Client())
    shop_day(shop, revenue)
    sums = oracle(shop.outbox, EVENTS, dict.fromkeys(revenue["click_id"].to_pylist()))
    assert {click: float(euros) for click, euros in sums.items()} == dict(
        zip(*revenue.to_pydict().values(), strict=True)
    )
    shutil.copytree(told.out / "labels-party", tmp_path / "home")
    batch = told.results["table"][1]["batch"]
    with LabelsParty(tmp_path / "home", worker=False) as party:
        labels = party.sealed_positions(batch)
    assert labels == {click: min(int(euros), 400) for click, euros in sums.items()}


def test_the_story_says_what_became_of_the_events_by_rule(told: Told) -> None:
    table = told.done.stdout.split("which the owner alone is told")[1].split("clicks have a sum")[0]
    said = {words: int(number.replace(",", "")) for number, words in re.findall(r"^ +([\d,]+)  (.*)$", table, re.M)}
    absent = ("without_value", "other_currency", "outside_window")
    assert [*said] == [words for name, words in BECAME.items() if name not in absent]
    records = re.search(r"([\d,]+) events of the Event & Conversion API", told.done.stdout)
    assert records is not None
    assert sum(said.values()) == int(records[1].replace(",", ""))


def test_the_story_says_what_was_spent_and_what_is_left(told: Told) -> None:
    assert "ε = 1 is left per click" in told.done.stdout
    assert told.results["budget_left"] == "1"
    split = told.results["table"][1]["epsilon"]
    said = " ".join(told.done.stdout.split())
    assert f"ε = 1 is spent: {split['prior']} on a private prior, {split['randomize']} on the labels" in said


def test_the_error_of_a_label_is_the_one_that_the_card_expects(told: Told, tmp_path: Path) -> None:
    truth = pq.read_table(told.out / "clicks" / "revenue.parquet")
    revenue = dict(zip(truth["click_id"].to_pylist(), truth["revenue_eur"].to_pylist(), strict=True))
    messages = {
        "RR-on-Bins, uncorrected": ("message.parquet", "none"),
        "RR-on-Bins, corrected": ("message.parquet", "auto"),
        "one bit": ("comparison/one-bit.parquet", "auto"),
        "discrete Laplace": ("comparison/discrete-laplace.parquet", "auto"),
        "auto": ("comparison/auto.parquet", "auto"),
    }
    expected = {row["mechanism"]: row["label_mse"] for row in told.results["table"][:-1]}
    assert set(expected) == set(messages)
    for name, (message, correction) in messages.items():
        joined = tmp_path / "joined.parquet"
        words = ["join", "--message", str(told.out / message), "--labels-key", str(told.out / "labels-party.pub")]
        words += ["--features", str(told.out / "clicks" / "features.parquet"), "--id-column", "click_id"]
        words += ["--correction", correction, "--out", str(joined), "--force"]
        done = command(
            "features-party", *words, folder=tmp_path, environment={"FEATURES_PARTY_HOME": str(tmp_path / "reader")}
        )
        assert done.returncode == 0, done.stderr
        table = pq.read_table(joined)
        errors = [
            (label - min(revenue[click], DOMAIN_END)) ** 2
            for click, label in zip(table["click_id"].to_pylist(), table["corrected_label"].to_pylist(), strict=True)
        ]
        assert expected[name] == pytest.approx(sum(errors) / len(errors), rel=0.7), name


def test_the_story_shows_what_is_refused(told: Told) -> None:
    assert "Refused (budget-exceeded)" in told.done.stdout
    assert "Refused (digest-mismatch)" in told.done.stdout
    assert "lifetime 2" in told.results["refusals"]["over_budget"]


def test_the_story_says_where_the_guarantee_lies(told: Told) -> None:
    said = told.done.stdout.split("Where the guarantee lies")[1].split("Done in")[0]
    assert [line.split(".")[0].strip() for line in said.splitlines() if line.startswith("   In the ")] == [
        "In the channel",
        "In the guess",
        "In the ledger",
        "In the noise",
    ]
    factor = re.search(r"a factor of at most e\^[\d.]+ = (\d\.\d\d)\.", " ".join(said.split()))
    spent = float(told.results["table"][1]["epsilon"]["randomize"])
    assert factor is not None
    assert math.exp(spent) <= float(factor[1]) < math.exp(spent) + 0.011  # never rounded down
    channel = verify(told.out / "message.parquet", VerifyingKey.load(told.out / "labels-party.pub"), "features-party")
    matrix = channel.manifest.read_channel().matrix()
    assert (matrix.max(axis=0) / matrix.min(axis=0)).max() <= float(factor[1])
    assert "73.2 %" in said


def test_the_table_has_all_rows_and_no_privacy_is_best(told: Told) -> None:
    results = told.results
    check_table(results["table"], results["constant_mse"])
    assert results["simulated"] is True
    assert results["clicks"] == told.clicks
    for row in results["table"]:
        assert f"{row['test_mse']:,.0f}" in told.done.stdout


def test_exports_verify_with_the_keys_beside_them(told: Told) -> None:
    for name in ("labels-party", "features-party"):
        export, key = told.out / f"{name}-audit.dsse.json", told.out / f"{name}.pub"
        verify, given = (name, "audit", "verify", export, "--key"), {"folder": told.where, "environment": {}}
        verified = command(*verify, key, "--json", **given)
        assert verified.returncode == 0, verified.stderr
        assert json.loads(verified.stdout)["verified"] is True
        other = told.out / ("features-party.pub" if name == "labels-party" else "labels-party.pub")
        assert command(*verify, other, **given).returncode == 1


def test_the_ledger_left_behind_agrees_with_the_table(told: Told) -> None:
    home = {"LABELS_PARTY_HOME": str(told.out / "labels-party")}
    shown = command("labels-party", "budget", "--json", folder=told.where, environment=home)
    populations = {p["name"]: p for p in json.loads(shown.stdout)}
    assert set(populations) == {"shop-clicks", "demo-one-bit", "demo-discrete-laplace", "demo-auto"}
    assert {p["epsilon_spent_at_most"] for p in populations.values()} == {"1"}


def test_every_command_of_the_story_works_afterwards(told: Told, programs: Path) -> None:
    text = told.done.stdout.replace("\\\n", " ")
    audits = [line.strip() for line in text.split("Try next")[0].splitlines() if re.search(r" (audit|message) ", line)]
    assert [" ".join(line.split()).count("verify") for line in audits if line.startswith(("LABELS", "/", "."))] == [
        1
    ] * 4
    suggested = text.split("Try next")[1].split("Both services stay")[0]
    commands = [line.strip() for line in suggested.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(commands) == 3
    for line in [*(each for each in audits if "--" in each), *commands]:
        quick = re.sub(r"\S+/bin/(?=(labels|features)-party )", f"{programs}/", line)
        done = subprocess.run(["sh", "-c", quick], cwd=told.where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    asked = f"{commands[-1]} --json"
    judged = subprocess.run(["sh", "-c", asked], cwd=told.where, capture_output=True, text=True, check=True)
    assert json.loads(judged.stdout)["mse"] == pytest.approx(told.results["table"][1]["test_mse"], rel=1e-6)


def test_nothing_stays_running_and_nothing_is_written_elsewhere(told: Told) -> None:
    ports = {int(p) for p in re.findall(r"http://127\.0\.0\.1:(\d+)", told.done.stdout)}
    assert len(ports) == 2
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert sorted(p.name for p in told.where.iterdir()) == ["demo-output", "visitor"]
    assert list((told.where / "visitor").iterdir()) == []
    for secret in (told.out / "labels-party" / "keys").glob("*.key"):
        assert secret.stat().st_mode & 0o077 == 0
    for kept in ((told.out / "keys"), *(told.out / "keys").glob("*.key")):
        assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("prior", ["0.004715561", "0.00000005"])
def test_the_table_fits_a_terminal_whatever_the_split(prior: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"epsilon": {"prior": prior}, "outputs": 401, "label_mse": 3e9, "test_mse": 123_456.7, "gain": -1.5}
    rows = [row | {"mechanism": name} for name in MECHANISMS]
    results = {"clicks": 5_000_000, "held_out_clicks": 1, "epsilon": "1", "constant_mse": 1.0, "table": rows}
    show_table(Teller(), results)
    lines = capsys.readouterr().out.split("test MSE: ")[0].rstrip().splitlines()
    assert len(lines) == 3 + 2 + len(MECHANISMS)
    assert max(len(line) for line in lines) <= 80


def test_in_a_container_the_commands_to_try_are_those_of_a_visitor_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_end(Teller(), tmp_path, {}, ["docker", "compose", "run", "demo"])
    told = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    for command_line in ("labels-party inspect", "features-party verify", "tar -C"):
        assert f"docker compose run demo {command_line}" in told
    assert Path(sys.executable).parent.name + "/labels-party" not in told


def test_it_plays_on_services_that_played_it_before(told: Told, tmp_path: Path) -> None:
    assert told.again.returncode == 0, told.again.stderr
    results = json.loads(told.again.stdout)
    assert [row["mechanism"] for row in results["table"]] == MECHANISMS
    assert results["population"].startswith("shop-clicks-")
    assert not (told.where.with_name("told-plays") / "again" / "labels-party").exists()
    (tmp_path / "keys").mkdir()
    there = ("--labels-url", "http://127.0.0.1:1", "--features-url", "http://127.0.0.1:1", "--keys", "keys")
    refused = run(tmp_path, "--clicks", "1000", "--out", "one", *there)
    assert refused.returncode == 2
    assert "owner.key" in refused.stderr


def test_stopped_midway_it_stops_both_services(tmp_path: Path) -> None:
    process = start(tmp_path, "--clicks", "500")
    try:
        assert process.stdout is not None
        seen = ""
        while "sends its shop's events" not in seen:
            line = process.stdout.readline()
            assert line, "the demo ended early"
            seen += line
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.strip() == "error: stopped before the end of the story; both services have ended."
    assert "Traceback" not in out + err
    for port in re.findall(r"http://127\.0\.0\.1:(\d+)", seen):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(port))) != 0
    assert (tmp_path / "demo-output" / "logs" / "labels-party.log").exists()


def test_with_stay_its_keys_open_the_pages_until_it_is_stopped(told: Told) -> None:
    assert (told.done.returncode, told.done.stderr) == (0, "")
    assert len(told.pages) == 2
    for url, page in told.pages.items():
        assert "Sign out" in page
        with pytest.raises(httpx.TransportError):
            httpx.get(url, trust_env=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_of_being_told_to_stop_ends_alike(number: signal.Signals, tmp_path: Path) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # a test run that was started in the background ignores it, and so would the demo
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(DemoStopped, match="both services have ended"), orderly(tmp_path, own=True):
            signal.raise_signal(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_service_that_does_not_start_is_one_sentence_with_its_log(tmp_path: Path) -> None:
    service = Service("labels-party", "LABELS_PARTY_", tmp_path / "home", tmp_path / "logs" / "x.log", tmp_path / "n")
    service.environment["POLL_SECONDS"] = "never"
    began = time.monotonic()
    service.launch()
    with pytest.raises(Exception, match=r"LABELS_PARTY_POLL_SECONDS.*its log is"):
        service.await_ready()
    service.stop()
    assert time.monotonic() - began < 30


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    taken = tmp_path / "demo-output"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    refused = run(tmp_path, "--clicks", "1000")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: 'demo-output' exists and was not made by the demo")
    assert [p.name for p in taken.iterdir()] == ["thesis.txt"]
    (taken / MARKER).write_text("something else")
    with pytest.raises(InvalidInput, match="left alone"):
        prepare(taken)
    link = tmp_path / "link"
    link.symlink_to(taken)
    with pytest.raises(InvalidInput, match="not a folder"):
        prepare(link)


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "out")
    (folder / "results.json").write_text("{}")
    (folder / "labels-party" / "keys").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (folder / "shortcut").symlink_to(tmp_path / "precious")
    prepare(folder)
    assert sorted(p.name for p in folder.iterdir()) == [MARKER, "clicks", "comparison"]
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--clicks", "3"], "--clicks must lie between"),
        (["--epsilon", "much"], "--epsilon must be a decimal number"),
        (["--epsilon", "0"], "--epsilon"),
        (["--seed", "-1"], "--seed must lie between"),
        (["--labels-url", "http://127.0.0.1:1"], "go together"),
        (["--clicks", "many"], "invalid int value"),
        (["--stay", "--json"], "leave out --json"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    refused = run(tmp_path, *arguments)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "demo-output").exists()
