"""Clipping bounds that are bought: over REST and on files, in templates, with four eyes, to a trained model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from features_party.models.card_text import card_markdown
from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidPrior, Unavailable
from label_dp.privacy import Epsilon
from labels_party.cli import privatize as cli_privatize
from labels_party.client import LabelsPartyClient
from labels_party.message import engine
from labels_party.message.clipping import FAR_OUT
from labels_party.message.plan import GivenPrior
from labels_party.work.store import Works
from tests.support.features_cli import Shell
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.labels_cli import Run, arguments, budgets, refused
from tests.support.schedule import NOON, listed, look, open_batch, population, send
from tests.support.serving import serving

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
BOUGHT = {"clip_quantile": "0.9", "clip_epsilon": "0.25"}
MUCH = Epsilon.parse("1000")


def manifest_of(party: LabelsParty, release: str) -> Manifest:
    return verify(party.bundle(release).path, party.services.key.public, "features-party").manifest


def ask(client: TestClient, batch: str, **body: Any) -> Any:
    return client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"} | BOUGHT | body)


# --- over REST -----------------------------------------------------------------------------------------------


def test_a_release_lives_on_the_range_that_it_bought(lite: LabelsParty) -> None:
    owner = lite.client("owner")
    batch = lite.sealed_batch(label_table(2000, k=101), domain="0:100", lifetime="3000")
    answer = ask(owner, batch, epsilon="1001", clip_epsilon="1000", mechanism="rr-on-bins", prior_epsilon="0.5")
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert body["clip_quantiles"] == ["0.9"]
    assert body["epsilon"] == {"clip": "1000", "prior": "0.5", "randomize": "0.5", "total": "1001", "delta": "0"}
    lite.services.worker.drain()
    labels = np.sort(np.asarray(label_table(2000, k=101)["label"]))
    ends = str(int(labels[1799])), str(int(labels[1800]))  # between them any bound misses by no label
    manifest = manifest_of(lite, body["id"])
    assert manifest.clipping is not None
    assert (manifest.clipping.quantiles, str(manifest.clipping.epsilon)) == (["0.9"], "1000")
    (bound,) = manifest.clipping.bounds
    assert int(ends[0]) <= int(bound) <= int(ends[1])
    assert (str(manifest.domain), manifest.domain_source) == (f"0:{bound}:1", "bought with ε_clip")
    assert manifest.clipping.public_domain.as_json() == {"range": "0:100:1"}
    assert manifest.read_channel().k == int(bound) + 1
    assert manifest.prior_file is not None
    assert manifest.prior_file.rows == int(bound) + 1
    table = read_message(list(verify(lite.bundle(body["id"]).path, lite.services.key.public, None).paths), manifest)
    assert table.num_rows == 2000
    assert lite.spent(batch) == "1001"
    (charge,) = [e for e in lite.client("auditor").get("/v1/audit/events").json() if "charged" in e["kind"]]
    assert charge["details"]["clip_quantiles"] == ["0.9"]
    assert "= 1000 clip + 0.5 prior + 0.5 randomize" in charge["sentence"]
    statement = owner.get(f"/v1/releases/{body['id']}/statement").text
    assert "bought with ε_clip" in statement
    assert "0 to 100 in steps of 1" in statement


@pytest.mark.parametrize(
    "mechanism", ["auto", "rr-on-bins", "one-bit", "balanced", "rr", "discrete-laplace", "exponential"]
)
@pytest.mark.parametrize("quantile", ["0.9", "0.2:0.8"])
def test_every_kind_of_mechanism_takes_bought_bounds(lite: LabelsParty, mechanism: str, quantile: str) -> None:
    batch = lite.sealed_batch(label_table(300), lifetime="10")
    answer = ask(lite.client("owner"), batch, mechanism=mechanism, clip_quantile=quantile)
    assert answer.status_code == 202, answer.text
    lite.services.worker.drain()
    manifest = manifest_of(lite, answer.json()["id"])
    assert manifest.clipping is not None
    assert manifest.epsilon.clip == Epsilon.parse("0.25")
    assert len(manifest.clipping.bounds) == len(quantile.split(":"))


def test_one_example_and_equal_labels_are_released_as_any_others(lite: LabelsParty) -> None:
    for n in (1, 50):
        rows = pa.table({"example_id": [f"{n}-{i}" for i in range(n)], "label": [0.0] * n})
        batch = lite.sealed_batch(rows, f"of {n}", lifetime="10")
        answer = ask(lite.client("owner"), batch)
        lite.services.worker.drain()
        assert manifest_of(lite, answer.json()["id"]).n == n


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no ε for it": ({"clip_epsilon": None}, "invalid-input", "both"),
    "no quantile": ({"clip_quantile": None}, "invalid-input", "both"),
    "a quantile of 0": ({"clip_quantile": "0"}, "invalid-input", "strictly between"),
    "a quantile of 1": ({"clip_quantile": 1}, "invalid-input", "strictly between"),
    "falling quantiles": ({"clip_quantile": ["0.9", "0.1"]}, "invalid-input", "lower first"),
    "three quantiles": ({"clip_quantile": ["0.1", "0.5", "0.9"]}, "invalid-input", "two"),
    "all of ε": ({"clip_epsilon": "1"}, "invalid-epsilon", "nothing would be left"),
    "more than ε": ({"clip_epsilon": "2"}, "invalid-epsilon", "nothing would be left"),
    "ε of 0": ({"clip_epsilon": "0"}, "invalid-epsilon", "greater than zero"),
    "too small an ε": ({"clip_epsilon": "0.0000005"}, "invalid-epsilon", "too small"),
    "nothing left for labels": (
        {"mechanism": "rr-on-bins", "prior_epsilon": "0.75"},
        "invalid-epsilon",
        "leave nothing of ε",
    ),
    "ends that are given too": ({"mechanism": "one-bit", "clip": ["0", "5"]}, "invalid-mechanism", "not both"),
    "more than the budget": ({"epsilon": "10.1"}, "budget-exceeded", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_wish_charges_nothing(lite: LabelsParty, name: str) -> None:
    change, code, words = REFUSED[name]
    batch = lite.sealed_batch(label_table(30), lifetime="10")
    body = {k: v for k, v in ({"epsilon": "1"} | BOUGHT | change).items() if v is not None}
    answer = lite.client("owner").post(f"/v1/batches/{batch}/releases", json=body)
    assert answer.status_code in (403, 422), answer.text
    assert answer.json()["code"] == code
    assert words in answer.json()["detail"]
    assert lite.spent(batch) == "0"
    assert lite.client("owner").get(f"/v1/batches/{batch}/releases").json() == []


def test_a_domain_of_one_value_has_no_bounds_to_buy(lite: LabelsParty) -> None:
    batch = lite.sealed_batch(pa.table({"example_id": ["a"], "label": [3.0]}), domain="3:3")
    answer = ask(lite.client("owner"), batch)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-domain")
    assert lite.spent(batch) == "0"


def test_a_new_attempt_buys_its_bounds_anew_and_charges_once(
    lite: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = lite.sealed_batch(label_table(200), lifetime="1")
    bought: list[tuple[int, int]] = []

    def buy(*_: Any) -> tuple[int, int]:
        bought.append((0, 3 + len(bought)))
        return bought[-1]

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "buy", buy)
    release = lite.charge(batch, "1", clip_quantiles=("0.9",), clip_epsilon=Epsilon.parse("0.2"))
    with monkeypatch.context() as broken:
        broken.setattr(engine, "write_message", full)
        with pytest.raises(Unavailable):
            lite.services.pipeline.run(release)
    shown = lite.client("owner").get(f"/v1/releases/{release}").json()
    assert (shown["state"], shown["files"], shown["clip_quantiles"]) == ("drawing", [], ["0.9"])
    assert lite.services.pipeline.run(release)
    assert bought == [(0, 3), (0, 4)]
    assert manifest_of(lite, release).domain.as_json() == {"range": "0:4:1"}
    assert lite.spent(batch) == "1"


def test_without_randomness_nothing_is_bought(lite: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = lite.sealed_batch(label_table(50), lifetime="1")
    release = lite.charge(batch, "1", clip_quantiles=("0.9",), clip_epsilon=Epsilon.parse("0.2"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "urandom", lambda _n: b"")
        with pytest.raises(Unavailable):
            lite.services.pipeline.run(release)
    assert lite.services.pipeline.run(release)
    assert lite.spent(batch) == "1"


def test_a_template_buys_bounds_when_its_window_closes(lite: LabelsParty, clock: FakeClock) -> None:
    owner = lite.client()
    population(owner)
    template = {"epsilon": "0.5", "clip_quantile": ["0.1", 0.9], "clip_epsilon": 0.125}
    batch = open_batch(owner, release=template)
    shown = look(owner, batch)["release_template"]
    assert (shown["clip_quantile"], shown["clip_epsilon"]) == (["0.1", "0.9"], "0.125")
    plain = look(owner, open_batch(owner))["release_template"]
    assert "clip_quantile" not in plain
    send(owner, batch)
    clock.move(days=1)
    lite.services.worker.drain()
    (release,) = listed(owner, batch)
    assert release["epsilon"]["clip"] == "0.125"
    assert manifest_of(lite, release["id"]).clipping is not None
    body = {
        "presence": "public",
        "seal_at": NOON.replace("2030", "2031"),
        "release": template | {"clip_epsilon": "0.5"},
    }
    answer = owner.post("/v1/populations/shop/batches", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-epsilon")


def test_four_eyes_approve_what_bounds_cost(lite: LabelsParty) -> None:
    owner, officer = lite.client("owner"), lite.client("auditor")
    rules = {"name": "eyes", "label": "l", "domain": "0:10", "lifetime_epsilon": "2", "four_eyes": True}
    assert owner.post("/v1/populations", json=rules).status_code == 201
    batch = owner.post("/v1/populations/eyes/batches", json={"presence": "public"}).json()["id"]
    send(owner, batch)
    owner.post(f"/v1/batches/{batch}/seal")
    waiting = ask(owner, batch).json()
    assert (waiting["state"], lite.spent(batch)) == ("accepted", "0")
    assert officer.get(f"/v1/releases/{waiting['id']}").json()["clip_quantiles"] == ["0.9"]
    assert officer.post(f"/v1/releases/{waiting['id']}/approve").status_code == 200
    lite.services.worker.drain()
    assert (str(manifest_of(lite, waiting["id"]).epsilon.clip), lite.spent(batch)) == ("0.25", "1")


def test_a_given_prior_is_clipped_and_a_bounded_one_is_not_carried_over(lite: LabelsParty) -> None:
    owner = lite.client("owner")
    batch = lite.sealed_batch(label_table(500), lifetime="5000")
    first = lite.release(batch, "1")
    options = {"clip_quantile": "0.5", "clip_epsilon": "1000", "epsilon": "1001", "mechanism": "rr-on-bins"}
    answer = ask(owner, batch, **options, prior={"release": first}, additional_release=True)
    assert answer.status_code == 202, answer.text
    lite.services.worker.drain()
    between = answer.json()["id"]
    manifest = manifest_of(lite, between)
    k = manifest.domain.k
    assert k < 11
    prior = pq.read_table(lite.bundle(between).path / "prior.parquet")["probability"].to_numpy()
    whole = pq.read_table(lite.bundle(first).path / "prior.parquet")["probability"].to_numpy()
    assert prior == pytest.approx([*whole[: k - 1], whole[k - 1 :].sum()])
    assert (manifest.epsilon.prior.nano, manifest.prior.source) == (0, "carried over")

    # another one, estimated on the bought range
    third = ask(owner, batch, **options, additional_release=True).json()["id"]
    lite.services.worker.drain()
    assert manifest_of(lite, third).prior.source == "estimated"
    for release in (between, third):
        refusal = ask(owner, batch, prior={"release": release}, additional_release=True)
        assert (refusal.status_code, refusal.json()["code"]) == (422, "invalid-prior")
        assert "clipping bounds that it bought" in refusal.json()["detail"]
    shop = lite.services.database.read("shop", lambda c: lite.services.populations.get(c, "shop"))
    latest = lite.services.priors.latest(shop)
    assert isinstance(latest, GivenPrior)
    assert latest.release == first
    with pytest.raises(InvalidPrior):
        lite.services.priors.of(shop, third)


def test_a_plan_shows_the_split_and_the_range_that_its_prior_expects(lite: LabelsParty) -> None:
    owner = lite.client("owner")
    batch = lite.sealed_batch(label_table(3000), lifetime="100")
    asked = "/v1/populations/shop/plan?epsilon=1&n=3000&clip_quantile=0.8&clip_epsilon=0.1"
    blind = owner.get(asked).json()
    clip = blind["clip"]
    assert (clip["quantiles"], clip["epsilon"], clip["domain"]) == (["0.8"], "0.1", {"range": "0:8:1"})
    assert clip["note"] is None
    assert 50 < clip["rank_error"] < 600
    lite.release(batch, "50")
    told = owner.get(asked).json()
    assert told["clip"]["domain"] in ({"range": "0:4:1"}, {"range": "0:5:1"})
    (advice,) = told["recommendations"]
    assert advice["epsilon_split"]["clip"] == "0.1"
    assert all(row["epsilon"]["clip"] == "0.1" for row in told["mechanisms"])
    k = int(told["clip"]["domain"]["range"].split(":")[1]) + 1
    assert next(row["outputs"] for row in told["mechanisms"] if row["mechanism"] == "rr") == k
    assert owner.get("/v1/populations/shop/plan?epsilon=1&n=3000").json()["clip"] is None
    few = owner.get("/v1/populations/shop/plan?epsilon=1&n=100&clip_quantile=0.8&clip_epsilon=0.1").json()
    assert "larger ε" in few["clip"]["note"]
    for wrong in ("clip_quantile=0.8", "clip_quantile=0&clip_epsilon=0.1", "clip_quantile=0.8&clip_epsilon=1"):
        answer = owner.get(f"/v1/populations/shop/plan?epsilon=1&n=3000&{wrong}")
        assert answer.status_code == 422, wrong


def test_the_python_client_buys_and_plans_bounds(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        app = party.client().app
        _, key = party.services.apikeys.create("owner", None)
        with serving(app) as url, LabelsPartyClient(url, key) as client:
            client.create_population("shop", label="revenue", domain="0:10", lifetime_epsilon="4")
            batch = client.open_batch("shop", presence="public")["id"]
            client.add_labels(batch, label_table(300))
            client.seal(batch)
            told = client.plan("shop", "1", n=300, clip_quantile="0.9", clip_epsilon="0.2")
            assert told["recommendations"][0]["epsilon_split"]["clip"] == "0.2"
            release = client.wait(client.release(batch, "1", clip_quantile="0.9", clip_epsilon="0.2")["id"])
            assert (release["epsilon"]["clip"], release["clip_quantiles"]) == ("0.2", ["0.9"])


# --- on files, to a trained model ----------------------------------------------------------------------------


@pytest.mark.processes
def test_bought_bounds_on_files(run: Run, labels: Path, home: Path) -> None:
    bought = {"clip_quantile": "0.05:0.95", "clip_epsilon": "0.3"}
    result = run(*arguments(labels, **bought), "--json")
    assert result.code == 0, result.err
    shown = result.json
    assert shown["epsilon"]["clip"] == "0.3"
    assert (shown["clipping"]["quantiles"], shown["clipping"]["public_domain"]) == (["0.05", "0.95"], "0:10:1")
    low, high = shown["clipping"]["bounds"]
    assert shown["domain"] == f"{low}:{high}:1"
    told = run("inspect", "m.parquet").out
    for words in ("0.3 clip", f"at {low} and {high}", "0.05, 0.95", "0:10:1"):
        assert words in told, told
    assert "0.3 clip" in run("audit", "show").out
    plan = run(
        "plan", "--population", "shop", "--epsilon", "1", "--n", "60", "--clip-quantile", "0.9", "--clip-epsilon", "0.1"
    )
    assert plan.code == 0, plan.err
    assert "buys clipping at 0.9" in plan.out
    checked = ["message", str(home.parent / "m.parquet"), "--key", str(home / "keys" / "signing.pub")]
    command = [sys.executable, str(ROOT / "deploy" / "verify_standalone"), *checked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"labels clipped at {low} and {high}" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip_quantile": "1", "clip_epsilon": "0.1"}, "strictly between"),
        ({"clip_quantile": "0.9"}, "both"),
        ({"clip_quantile": "0.9", "clip_epsilon": "1"}, "nothing would be left"),
        ({"clip_quantile": "0.9", "clip_epsilon": "nan"}, "ε for the clipping bound must be a decimal number"),
    ],
)
def test_refused_on_files_leaves_nothing(
    options: dict[str, str], words: str, run: Run, labels: Path, home: Path
) -> None:
    refused(run(*arguments(labels, **options)), 2, words)
    assert budgets(run, home) == []
    assert not (home.parent / "m.parquet").exists()


@pytest.mark.parametrize(("quantile", "epsilon", "little"), [("0.9", "0.00001", True), ("0.2:0.8", "8", False)])
def test_a_bound_that_cannot_be_accurate_is_warned_of_before_the_charge(
    quantile: str, epsilon: str, little: bool, run: Run, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    charge, warn = Works._request, cli_privatize.warn

    def noted(*given: Any) -> Any:
        order.append("charged")
        return charge(*given)

    def told(said: str) -> None:
        order.append("warned")
        warn(said)

    monkeypatch.setattr(Works, "_request", noted)
    monkeypatch.setattr(cli_privatize, "warn", told)
    bought = {"clip_quantile": quantile, "clip_epsilon": epsilon}
    done = run(*arguments(labels, epsilon="9", budget="9", missing_label="0", **bought), "--json")
    assert (done.code, order) == (0, ["warned", "charged"] if little else ["charged"])
    assert done.json["epsilon"]["clip"] == epsilon
    expected = f"warning: ε {epsilon} may be too little for clipping at {quantile}: {FAR_OUT}.\n"
    assert done.err == (expected if little else "")
    asked = ("--n", "60", "--clip-quantile", quantile, "--clip-epsilon", epsilon)
    planned = run("plan", "--population", "shop", "--epsilon", "9", *asked).out
    assert (FAR_OUT in " ".join(planned.split())) is little


def test_a_model_learns_from_messages_with_bounds_of_their_own(tmp_path: Path) -> None:
    """Two batches buy different bounds: their model is trained inside the wider range; hold-out messages must fit."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 10, 900)
    sent: list[Path] = []
    with LabelsParty(tmp_path / "lp", worker=False) as party:
        for part, (at, quantile) in enumerate([(slice(0, 450), "0.5"), (slice(450, 900), "0.9")]):
            ids = [f"e{i:04d}" for i in range(at.start, at.stop)]
            batch = party.sealed_batch(pa.table({"example_id": ids, "label": x[at] * 1.0}), lifetime="3000")
            bought: dict[str, Any] = {"clip_quantiles": (quantile,), "clip_epsilon": MUCH}
            release = party.release(batch, "1008", mechanism="one-bit", **bought)
            sent.append(tmp_path / f"m{part}")
            party.bundle(release).path.rename(sent[-1])
        key = tmp_path / "signing.pub"
        key.write_bytes(party.services.key.public.pem)
    pinned = VerifyingKey.load(key)
    highs = [int(float(verify(one, pinned, None).manifest.domain.values[-1])) for one in sent]
    assert highs[0] < highs[1] < 10
    pq.write_table(pa.table({"example_id": [f"e{i:04d}" for i in range(900)], "x": x}), tmp_path / "features.parquet")
    shell = Shell(tmp_path)
    told = shell.run("verify", sent[0], "--labels-key", key).stdout
    assert f"at {highs[0]}" in told
    assert "0.5" in told
    files = [part for one in sent for part in ("--message", one)]
    rest = ["--labels-key", key, "--features", tmp_path / "features.parquet", "--id-column", "example_id"]
    shell.run("train", *files, *rest, "--model", "linear", "--out", tmp_path / "model")
    card = json.loads((tmp_path / "model" / "card.json").read_text())
    assert card["domain"] == {"range": f"0:{highs[1]}:1"}
    assert [m["clipping"]["bounds"] for m in card["messages"]] == [[str(high)] for high in highs]
    assert f"labels clipped at {highs[0]} (bought)" in card_markdown(card)
    shell.run("predict", "--model", tmp_path / "model", *rest[2:], "--out", tmp_path / "p.csv")
    predictions = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, usecols=1)
    assert predictions.max() <= highs[1]
    assert predictions.max() > highs[0]
    held = ["--message", sent[0], *rest[:2], "--examples", *rest[3:]]
    assert "domain" in shell.refused("evaluate", "--model", tmp_path / "model", *held, code=2)
