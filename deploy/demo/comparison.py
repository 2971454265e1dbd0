"""The same clicks by other mechanisms at the same ε, each in a population of its own so that every ledger is honest.

Errors here are measured on the generator's truth. That is possible only because the clicks are made up: no service
ever sees a true label beside a prediction.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.demo.generator import DOMAIN
from deploy.demo.scene import AUDIENCE, ID, Scene, plain
from deploy.demo.story import Outcome
from shared.domain import Domain
from shared.message.bundle import VerifiedMessage

FloatArray = npt.NDArray[np.float64]
SIDE = (
    ("one bit", "one-bit", "demo_one_bit"),
    ("discrete Laplace", "discrete-laplace", "demo_laplace"),
    ("auto", "auto", "demo_auto"),
)
NO_PRIVACY = "no privacy"


@dataclass(frozen=True)
class Row:
    """One line of the table. `label_mse_*` is the channel's expected squared error of the label that is trained on:
    under the private prior (what an operator knows), and under the generator's true labels."""

    mechanism: str
    correction: str
    release: str | None
    outputs: int | None
    epsilon_prior: str | None
    epsilon_randomize: str | None
    label_mse_private_prior: float
    label_mse_truth: float
    test_mse: float
    budget_left: str | None

    def as_json(self) -> dict[str, Any]:
        """For results.json."""
        return asdict(self)


@dataclass
class _Case:
    name: str
    correction: str
    training: str
    message: VerifiedMessage
    left: str


def compare(scene: Scene, outcome: Outcome) -> list[Row]:
    """All rows, in the order of the table."""
    t, a, p, o = scene.teller, scene.advertiser, scene.publisher, scene.options
    n = len(scene.clicks)
    t.step("Both", f"repeat it with other mechanisms, also at ε = {plain(o.epsilon)}")
    t.say(
        "Each gets a label name and a population of its own, so the ledger above stays as it is. Do this with made-up "
        "clicks only: of real ones, every further message reveals more, and its ε adds to the first."
    )
    # the publisher trains in the background while the advertiser goes on
    plain_training = p.order(outcome.table, outcome.release, "none")
    cases = [_Case("RR-on-Bins, uncorrected", "none", plain_training, outcome.message, outcome.budget_left)]
    with t.bar("releasing") as advance:
        for number, (name, mechanism, label) in enumerate(SIDE):
            population = scene.name(label.replace("_", "-"))
            batch = a.open(population, scene.name(label), DOMAIN, str(o.lifetime), AUDIENCE)
            p.send_ids(outcome.table, batch)
            a.send(batch, scene.ids, scene.clicks.revenue, lambda _done: None)
            a.owner.seal(batch)
            release = str(a.release(batch, str(o.epsilon), mechanism=mechanism)["id"])
            p.pull(release)
            message = scene.fetch(release, scene.folder.comparison / f"{mechanism}.parquet")
            training = p.order(outcome.table, release, "auto")
            cases.append(_Case(name, "auto", training, message, a.left(population)))
            advance((number + 1) / len(SIDE))
    prior = _prior(outcome.message)
    truth = np.bincount(scene.clicks.labels.astype(np.int64), minlength=len(prior)) / n
    rows = [_row(scene, case, _finish(scene, case), prior, truth) for case in cases]
    done = _Case("RR-on-Bins, corrected", "auto", "", outcome.message, outcome.budget_left)
    rows.insert(1, _row(scene, done, outcome.predictions, prior, truth))
    rows.append(_reference(scene))
    return rows


def constant_mse(scene: Scene) -> float:
    """Error of predicting the mean of the true labels for every held-out click."""
    return float(np.mean((scene.held_out.labels - scene.clicks.labels.mean()) ** 2))


def _finish(scene: Scene, case: _Case) -> FloatArray:
    with scene.teller.bar(f"training on {case.name}") as advance:
        model = scene.publisher.wait(case.training, advance)
        predictions = scene.publisher.predict(model, scene.held_out.features.drop_columns([ID]))
    _trained(scene, case.name)
    return predictions


def _trained(scene: Scene, name: str) -> None:
    scene.teller.show(f"{name:<25}trained at {scene.teller.elapsed:5.1f} s")


def _reference(scene: Scene) -> Row:
    error = _error(scene, _without_privacy(scene))
    _trained(scene, NO_PRIVACY)
    return Row(
        mechanism=NO_PRIVACY,
        correction="none",
        release=None,
        outputs=None,
        epsilon_prior=None,
        epsilon_randomize=None,
        label_mse_private_prior=0.0,
        label_mse_truth=0.0,
        test_mse=error,
        budget_left=None,
    )


def _without_privacy(scene: Scene) -> FloatArray:
    """The features party's own training code on true labels: no service offers that."""
    from features_party.training import fit

    threads = min(os.cpu_count() or 1, 8)
    with scene.teller.bar("training on true labels") as advance:
        model = fit(
            scene.clicks.features.drop_columns([ID]),
            scene.clicks.labels,
            domain=Domain.parse(DOMAIN),
            progress=lambda _what, share: advance(share),
            model="trees",
            threads=threads,
        )
    return model.predict(scene.held_out.features, threads=threads)


def _error(scene: Scene, predictions: FloatArray) -> float:
    return float(np.mean((predictions - scene.held_out.labels) ** 2))


def _row(scene: Scene, case: _Case, predictions: FloatArray, prior: FloatArray, truth: FloatArray) -> Row:
    from features_party.correction import correct

    manifest = case.message.manifest
    channel = manifest.read_channel()
    correction = correct(channel, case.correction, prior, rows=manifest.n)
    labels = channel.labels
    # E[(v − y)² | y] for every y of the domain, v the label that the model was trained on
    squared = np.einsum("kz,kz->k", channel.matrix(), (correction.corrected[None, :] - labels[:, None]) ** 2)
    return Row(
        mechanism=case.name,
        correction=correction.applied,
        release=manifest.release,
        outputs=channel.m,
        epsilon_prior=plain(manifest.split.prior),
        epsilon_randomize=plain(manifest.split.randomize),
        label_mse_private_prior=float(prior @ squared),
        label_mse_truth=float(truth @ squared),
        test_mse=_error(scene, predictions),
        budget_left=plain(case.left),
    )


def _prior(message: VerifiedMessage) -> FloatArray:
    """The private prior that came with the main message: already paid for, so every row may use it."""
    from features_party.intake.accepted import read_prior

    k = message.manifest.read_domain().k
    path: Path | None = message.prior_path
    return read_prior(path, message.manifest) if path is not None else np.full(k, 1.0 / k)
