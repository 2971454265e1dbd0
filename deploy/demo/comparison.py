"""The same clicks by other mechanisms at the same ε, each in a population of its own so that every ledger is honest.

Errors here are measured on the generator's truth. That is possible only because the clicks are made up: no service
ever sees a true label beside a prediction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deploy.demo.clicks import DOMAIN
from deploy.demo.scene import ID, Scene, plain
from deploy.demo.story import Outcome
from shared.documents.bundle import VerifiedMessage
from shared.domain import Domain

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
    under the private prior (an operator's view), and under the generator's true labels."""

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


def compare(scene: Scene, outcome: Outcome) -> list[Row]:
    """All rows, in the order of the table."""
    t = scene.teller
    t.step("Both", f"repeat it with other mechanisms, also at ε = {plain(scene.epsilon)}")
    t.say(
        "Each gets a label name and a population of its own, so the ledger above stays as it is. Do this with made-up "
        "clicks only: of real ones, every further message reveals more, and its ε adds to the first."
    )
    # the publisher trains in the background while the advertiser goes on
    uncorrected = scene.order(outcome.table, outcome.release, "none")
    trainings = [("RR-on-Bins, uncorrected", "none", uncorrected, outcome.message, outcome.budget_left)]
    with t.bar("releasing"):
        for name, mechanism, label in SIDE:
            population = scene.name(label.replace("_", "-"))
            batch = scene.open(population, scene.name(label))
            scene.trainer.send_ids(outcome.table, scene.access.labels_url, batch, scene.access.reader)
            scene.send_labels(batch, lambda _share: None)
            release = str(scene.owner.release(batch, epsilon=str(scene.epsilon), mechanism=mechanism)["id"])
            scene.owner.wait(release)
            scene.trainer.pull(scene.access.labels_url, release, scene.access.reader)
            message = scene.fetch(release, scene.folder / "comparison" / f"{mechanism}.parquet")
            training = scene.order(outcome.table, release, "auto")
            trainings.append((name, "auto", training, message, scene.left(population)))
    judge = _Judge(scene, outcome)
    rows = []
    for name, correction, training, message, left in trainings:
        _, predictions = scene.trained(training, f"training on {name}")
        rows.append(judge.row(name, correction, message, predictions, left))
    rows.insert(
        1, judge.row("RR-on-Bins, corrected", "auto", outcome.message, outcome.predictions, rows[0].budget_left)
    )
    error = judge.error(_without_privacy(scene))
    return [*rows, Row(NO_PRIVACY, "none", None, None, None, None, 0.0, 0.0, error, None)]


def constant_mse(scene: Scene) -> float:
    """Error of predicting the mean of the true labels for every held-out click."""
    return float(np.mean((scene.held_out.labels - scene.clicks.labels.mean()) ** 2))


class _Judge:
    """Knows the truth, and the private prior of the main message, which is already paid for."""

    def __init__(self, scene: Scene, outcome: Outcome) -> None:
        from features_party.receive.accepted import read_prior

        assert outcome.message.prior_path is not None
        self.held_out, labels = scene.held_out.labels, scene.clicks.labels.astype(np.int64)
        self.prior = read_prior(outcome.message.prior_path, outcome.message.manifest)
        self.truth: FloatArray = np.bincount(labels, minlength=len(self.prior)) / len(labels)

    def error(self, predictions: FloatArray) -> float:
        return float(np.mean((predictions - self.held_out) ** 2))

    def row(self, name: str, how: str, message: VerifiedMessage, predictions: FloatArray, left: str | None) -> Row:
        from features_party.training.correction import correct

        manifest, channel = message.manifest, message.manifest.read_channel()
        correction = correct(channel, how, self.prior, rows=manifest.n)
        # E[(v − y)² | y] for every y of the domain, v the label that the model was trained on
        distance = (correction.corrected[None, :] - channel.labels[:, None]) ** 2
        squared = np.einsum("kz,kz->k", channel.matrix(), distance)
        expected = float(self.prior @ squared), float(self.truth @ squared)
        split = plain(manifest.split.prior), plain(manifest.split.randomize)
        return Row(name, correction.applied, manifest.id, channel.m, *split, *expected, self.error(predictions), left)


def _without_privacy(scene: Scene) -> FloatArray:
    """The features party's own training code on true labels: no service offers that."""
    from features_party.training.fitting import Examples, Recipe, fit

    features, labels = scene.clicks.features.drop_columns([ID]), scene.clicks.labels
    threads = min(os.cpu_count() or 1, 8)
    with scene.teller.bar("training on true labels") as advance:
        clicks = Examples(features, labels, domain=Domain.parse(DOMAIN))
        model, _ = fit(clicks, Recipe("trees"), threads=threads, progress=lambda _what, share: advance(share))
    return model.predict(scene.held_out.features, threads=threads)
