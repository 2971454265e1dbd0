"""The main job on real input, through REST and through the command line: the figures the project promises.

Label errors are compared with the optimum for the true prior; test errors have room for the split (±1.5 on census) and
for the noise of one draw. Where the data is not there, a stand-in goes through the same calls and says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support import real_data
from tests.support.both_parties import CommandLine, ids_as_text, two_services
from tests.support.real_data import ID, Task

pytestmark = pytest.mark.processes

# label MSE and bins of RR-on-Bins on census at its best, from the issue that set the targets
CENSUS = {"0.5": (183.0, 2), "1": (165.0, 2), "2": (113.5, 2), "4": (38.0, 3)}
CONSTANT = 188.9  # variance of the census label, against which a split's own difficulty is measured


def optimum(task: Task, epsilon: str) -> float:
    """The least expected loss of any ε-DP randomizer, for the true distribution of these labels."""
    domain = Domain.parse(task.domain)
    index, _ = domain.index(task.truth)
    prior = np.bincount(index, minlength=domain.k) / len(index)
    channel = MECHANISMS["rr-on-bins"].design(domain, prior, Epsilon.parse(epsilon), task.loss, {})
    return float(channel.expected_loss(prior, task.loss))


def expected_loss(task: Task, manifest: Manifest) -> float:
    """The channel's expected loss for the true distribution, which only this test knows."""
    domain = manifest.domain
    index, _ = domain.index(task.truth)
    return float(manifest.read_channel().expected_loss(np.bincount(index, minlength=domain.k) / len(index), task.loss))


def check_label_error(task: Task, manifest: Manifest, table: pa.Table) -> float:
    """The realised label MSE agrees with the channel's expectation over the true labels within six standard errors."""
    truth = dict(zip(ids_as_text(task.train).to_pylist(), task.truth.tolist(), strict=True))
    y = np.array([truth[i] for i in table["example_id"].to_pylist()])
    channel = manifest.read_channel()
    matrix = channel.matrix()[np.searchsorted(channel.labels, y)]
    squares = (channel.outputs[None, :] - y[:, None]) ** 2
    expected = (matrix * squares).sum(1)
    deviation = np.sqrt(((matrix * squares**2).sum(1) - expected**2).sum()) / len(y)
    realised = float(np.mean((table["label"].to_numpy() - y) ** 2))
    assert abs(realised - expected.mean()) < 6 * deviation  # fails once in 5·10⁸ runs
    return realised


# over 300 private priors the loss was at most 1.026 times the optimum, at a mean of 1.016 and a deviation of 0.003;
# at ε = 8, where ten bins hang on the prior, at most 1.055 at a mean of 1.023 and a deviation of 0.006
WORST = {False: 1.06, True: 1.1}
RELEASES = {"census": ("0.5", "1", "2", "4", "8"), "retail": ("1",), "bike": ("2",)}


@pytest.mark.parametrize("make", [real_data.census, real_data.retail, real_data.bike], ids=list(RELEASES))
def test_through_rest_at_every_epsilon(make: object, tmp_path: Path) -> None:
    """One sealed batch, one release after another charged on top, each pulled, verified and accounted for."""
    task: Task = make()  # type: ignore[operator]  # one of the functions above
    print(f"{task.name}: {task.source()}")
    epsilons = RELEASES[task.name]
    lifetime = str(sum((Epsilon.parse(e) for e in epsilons), Epsilon(0)))
    with two_services(tmp_path, task.train.num_rows) as (advertiser, publisher, access):
        table_id = publisher.upload(task.features(), ID)
        batch = advertiser.open(task.name, task.label, task.domain, lifetime, "features-party")
        assert publisher.send_ids(table_id, batch) == task.train.num_rows
        labels = pa.array(task.train[task.label].to_numpy().astype(np.float64))
        assert advertiser.send(batch, ids_as_text(task.train), labels, lambda _n: None) == task.train.num_rows
        advertiser.owner.seal(batch)
        key = VerifyingKey.load(access.labels_key)
        spent = Epsilon(0)
        for epsilon in epsilons:
            release = advertiser.release(
                batch, epsilon, mechanism="rr-on-bins", additional_release=True, loss=task.loss
            )
            spent += Epsilon.parse(epsilon)
            said = publisher.pull(str(release["id"]))
            (attempt,) = (tmp_path / "lp" / "work" / str(release["id"])).iterdir()
            verified = verify(attempt, key, "features-party")
            manifest = verified.manifest
            realised = check_label_error(task, manifest, read_message(list(verified.paths), manifest))
            assert str(manifest.epsilon_spent) == str(spent)
            assert said["epsilon"]["total"] == epsilon
            if task.real:
                assert expected_loss(task, manifest) <= optimum(task, epsilon) * WORST[epsilon == "8"]
            if task.real and task.name == "census" and epsilon in CENSUS:
                mse, bins = CENSUS[epsilon]
                assert len(manifest.read_channel().outputs) == bins
                # over 300 priors the expectation was within 2.3 % of it; one realised draw also has sampling noise
                assert expected_loss(task, manifest) == pytest.approx(mse, rel=0.03)
                assert realised > 0
        assert advertiser.left(task.name) == "0"
        if task.name != "retail":  # 424,000 rows of it are trained on by nobody in a quick test
            model = publisher.wait(publisher.order(table_id, str(release["id"]), "debias"), lambda _s: None)
            later = task.test.drop_columns([task.label, ID]).slice(0, 1000)
            predicted = publisher.predict(model, later)
            low, high = (float(end) for end in task.domain.split(":"))
            assert predicted.shape == (later.num_rows,)
            assert np.all((predicted >= low) & (predicted <= high))
            assert predicted.std() > 0
        headers = {"Authorization": f"Bearer {access.auditor}"}
        events = httpx.get(f"{access.features_url}/v1/audit/events", headers=headers).json()
        assert [e["epsilon"]["total"] for e in events if e["kind"] == "message-accepted"] == list(epsilons)


# ε, mechanism, correction, test MSE that prototypes reached on splits of mean difficulty; `make tables` has all others
TARGETS = [
    ("0.5", "rr-on-bins", "none", 180.0),
    ("2", "rr-on-bins", "none", 134.0),
    ("0.5", "rr-on-bins", "debias", 121.0),
    ("0.5", "one-bit", "debias", 116.0),
]
# On this split the corrected ones lie 1 below to 1 above their aim. Uncorrected, by a mean and a deviation over 6 to 17
# draws: 4.1 and 0.3 above at ε = 0.5, 3.9 and 1.0 at 2 (one capacity rule for all, where the prototype took the best of
# several). Five deviations, or more, lie within 6, at ε = 2 within 9.
ROOM = {("2", "rr-on-bins", "none"): 9.0}


def test_census_by_command_line_reaches_its_test_errors(tmp_path: Path) -> None:
    task = real_data.census()
    print(f"census: {task.source()}")
    cli = CommandLine(tmp_path)
    cli.write(task)
    rows = []
    for epsilon, mechanism, correction, target in TARGETS:
        name = f"{mechanism}-{epsilon}"
        if not (tmp_path / f"{name}.parquet").exists():
            cli.privatize(task, epsilon, name, "--mechanism", mechanism)
        found = cli.train(name, f"{name}-{correction}", "--correction", correction, "--model", "trees")
        # a split whose labels vary more is harder for every model by about as much
        difficulty = float(np.var(task.test[task.label].to_numpy())) - CONSTANT
        rows.append((epsilon, mechanism, correction, found["mse"], target + difficulty))
        print(f"ε={epsilon} {mechanism} {correction}: test MSE {found['mse']:.1f}, aimed at {target + difficulty:.1f}")
        assert found["rows"] == task.test.num_rows
    if task.real:
        missed = [row for row in rows if row[3] > row[4] + ROOM.get(row[:3], 6.0)]
        assert missed == []
        by = {row[:3]: row[3] for row in rows}
        uncorrected = by["0.5", "rr-on-bins", "none"]
        assert by["0.5", "one-bit", "debias"] < uncorrected - 40
        assert by["0.5", "rr-on-bins", "debias"] < uncorrected - 35


@pytest.mark.parametrize(("make", "epsilon"), [(real_data.retail, "1"), (real_data.bike, "2")], ids=["retail", "bike"])
def test_retail_and_bike_by_command_line(make: object, epsilon: str, tmp_path: Path) -> None:
    task: Task = make()  # type: ignore[operator]  # one of the two functions above
    print(f"{task.name}: {task.source()}")
    cli = CommandLine(tmp_path)
    cli.write(task, most_features=60_000)
    made = cli.privatize(task, epsilon, "m", "--mechanism", "rr-on-bins")
    key = VerifyingKey.load(cli.labels_key)
    verified = verify(tmp_path / "m.parquet", key, "features-party")
    check_label_error(task, verified.manifest, read_message(list(verified.paths), verified.manifest))
    assert made["epsilon"]["total"] == epsilon
    assert made["loss"] == task.loss
    if task.real:
        assert expected_loss(task, verified.manifest) <= optimum(task, epsilon) * 1.06
    trees = ("--model", "trees")
    unmatched = ("--list-unmatched", str(tmp_path / "unmatched.csv"))
    plain = cli.train("m", "none", "--correction", "none", *trees, *unmatched)
    card = json.loads((tmp_path / "none" / "card.json").read_text())["report"]
    assert card["matched"] + card["message_ids_without_features"] == task.train.num_rows
    corrected = cli.train("m", "debias", "--correction", "debias", *trees)
    one_bit = cli.privatize(task, epsilon, "one", "--mechanism", "one-bit")
    assert one_bit["epsilon"]["prior"] == "0"
    bit = cli.train("one", "one-bit-model", *trees)
    print(f"{task.name} ε={epsilon}: none {plain['mse']:.1f}, debias {corrected['mse']:.1f}, one bit {bit['mse']:.1f}")
    print(f"{task.name}: constant {plain['constant_mse']:.1f}; labels of the test rows are clipped to the domain")
    for found in (corrected, bit):
        assert found["rows"] == task.test.num_rows
        assert found["mse"] < found["constant_mse"] * 1.05
        assert found["poisson"] == pytest.approx(found["poisson"])
    budget = cli.json("labels-party", "budget", "--population", task.name)
    assert budget[0]["epsilon_spent_at_most"] == str(2 * int(epsilon))
    audit = cli.json("features-party", "audit", "show")
    assert [e["epsilon"]["total"] for e in audit if e["kind"] == "message-accepted"] == [epsilon, epsilon]


def test_the_loader_names_its_source() -> None:
    for make in (real_data.census, real_data.retail, real_data.bike):
        task = make()
        assert task.real == (real_data.DATA / "README.md").exists()
        assert task.train.num_rows > 3 * task.test.num_rows
