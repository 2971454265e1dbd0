"""From accepted messages and a feature table to a saved model: join, correct, fit, describe, record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from features_party.models.card import CardSource, build_card
from features_party.models.folder import SavedModel, save_model
from features_party.receive.accepted import AcceptedMessage
from features_party.tables.feature_tables import FeatureTable
from features_party.tables.join import JoinResult, join
from features_party.tables.unmatched import Limits
from features_party.telemetry.steps import FIT, JOIN, Steps
from features_party.training.cells import CellLikelihood
from features_party.training.class_likelihood import ClassLikelihood
from features_party.training.class_metrics import ClassMetrics, indicators_of, judge_classes, told_indicators
from features_party.training.classes import are_classes
from features_party.training.estimate import MIN_ROWS, ErrorEstimate, held_out
from features_party.training.fitting import LOG, LOSSES, Examples, Recipe, fit
from features_party.training.holdout import estimate_on_rows, identify
from features_party.training.intervals import NO_FOLDS, Folds
from features_party.training.learner import CrossFit, Watch
from features_party.training.learners import learner
from features_party.training.likelihood import RowLikelihood
from features_party.training.model import TrainedModel
from features_party.training.objectives import ChannelGradients, LossCorrection, RowGradients
from features_party.training.progress import foretold, rising
from features_party.training.progress import part as part_of
from features_party.training.recentring import recentred
from features_party.training.warm import Warm
from label_dp.audit.events import TRAINED, Event, Subject
from label_dp.audit.hand_overs import families
from label_dp.audit.store import AuditStore, Clock
from label_dp.channels.base import Channel
from label_dp.documents.hand_over import KeyFamilies
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidMechanism
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.training import Learning
from label_dp.store.database import Database

if TYPE_CHECKING:
    import pyarrow as pa

    from label_dp.documents.answer import Answer
    from label_dp.documents.manifest import Manifest
    from label_dp.documents.signing import SigningKey

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


HIDDEN = (
    "none: with this channel E[corrected label | label] differs from the label, so privatized labels do not show a "
    "model's true error"
)


def limits_of(learning: Learning) -> Limits:
    """Return the limits of unmatched ids."""
    return Limits(learning.warn_unmatched, learning.refuse_unmatched)


def check_learning(learning: Learning) -> None:
    """Raise InvalidInput if the model's learner cannot be fitted here."""
    learner(learning.model).require()


@dataclass(frozen=True)
class Trainer:
    """Trainer of models from messages and features."""

    database: Database
    audit: AuditStore
    key: Callable[[], SigningKey]
    clock: Clock
    threads: int
    steps: Steps = field(default_factory=Steps, repr=False)
    _unseen: Watch = field(default=lambda _place, _loss: None, repr=False)
    _silent: Progress = field(default=lambda _what, _share: None, repr=False)

    def train(
        self,
        messages: list[AcceptedMessage],
        table: FeatureTable,
        learning: Learning,
        out: Path,
        progress: Progress | None = None,
        actor: str = "cli",
        finish: Callable[[Connection, dict[str, Any]], None] | None = None,
        earlier: SavedModel | None = None,
        saved: Callable[[], None] = lambda: None,
        watch: Watch = lambda _place, _loss: None,
    ) -> dict[str, Any]:
        """Train on accepted messages, save the model to the folder `out`, and return its card.

        `earlier` is the model that `learning.warm_start` names. `watch` receives losses of the model while it is
        fitted. An exception raised by `progress` ends the training. `saved` is called before the transaction of the
        audit event, which `finish` shares. Raises InvalidInput (options, or messages of different labels),
        InvalidTable, InvalidMechanism (`debias` requested but impossible), Conflict (`out` is taken).
        """
        report, began = rising(foretold(progress or self._silent)), time.monotonic()
        check_learning(learning)
        check_one_label(messages)
        loss = learning.loss or default_loss(messages)
        warm = None if earlier is None else warm_of(earlier, learning.model, loss)
        report("joining", 0.0)
        with self.steps.step(JOIN):
            joined = join(messages, table, learning.correction, limits_of(learning))
        comparable = all(c.comparable for c in joined.corrections)
        channels = [m.manifest.read_channel() for m in messages]
        domain = common_domain(messages)
        if domain.nominal and (loss != LOG or not learner(learning.model).of_trees):
            raise InvalidInput(
                "The labels are classes without order, which ensemble and trees learn with the log loss; choose "
                "one of them, and leave the loss out."
            )
        classes = loss == LOG and are_classes(domain)
        unknown = next((why for why in map(indicators_of, channels) if isinstance(why, str)), "") if classes else ""
        estimable = not unknown if classes else _estimable(messages, channels)
        # an ensemble returns its out-of-fold predictions, other models are trained once more for the estimate
        share = (
            0.55
            if estimable
            and not ((comparable or classes) and learning.model == "ensemble")
            and not (loss == LOG and learning.model == "linear")
            else 0.96
        )
        examples = Examples(
            joined.features(),
            _centred(joined) if comparable else joined.corrected,
            joined.noise_variance,
            domain,
            unbiased=comparable,
            groups=joined.position,
            draws=joined.draws,
            told=_told(joined, channels, domain, loss),
            cells=_cells(joined, channels)
            if comparable and learning.model == "ensemble" and loss in ("squared", "absolute")
            else None,
        )
        recipe = Recipe(learning.model, loss, learning.categorical, learning.exclude, warm=warm)

        def fitted(rows: IntArray | None, part: Progress) -> tuple[TrainedModel, CrossFit | None]:
            sample = examples if rows is None else examples.take(rows)
            seen = watch if rows is None else self._unseen
            return fit(sample, recipe, threads=self.threads, progress=part, watch=seen)

        with self.steps.step(FIT):
            model, cross = fitted(None, part_of(report, 0.02, share))
        why = unknown or ("" if estimable else HIDDEN)
        estimate = self._estimate(joined, cross, channels, examples.features, fitted, report) if estimable else None
        report("saving", 0.99)
        return self.kept(joined, domain, model, estimate or why or None, began, out, actor, finish, saved)

    def kept(
        self,
        joined: CardSource,
        domain: Domain,
        model: TrainedModel,
        estimate: ErrorEstimate | ClassMetrics | str | None,
        began: float,
        out: Path,
        actor: str = "cli",
        finish: Callable[[Connection, dict[str, Any]], None] | None = None,
        saved: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Save a model that was `began` at that monotonic time, and record it; returns its card.

        `saved` is called before the transaction that records it.
        """
        seconds = round(time.monotonic() - began, 2)
        rehearsed, messages = joined.messages[0].rehearsed, list(joined.messages)
        return self.recorded(
            out,
            model,
            lambda now, keys: build_card(model, joined, domain, estimate, now, seconds, keys),
            lambda card: None if rehearsed else trained_event(messages, card, actor),
            finish,
            saved,
        )

    def recorded(
        self,
        out: Path,
        model: TrainedModel,
        card_of: Callable[[str, KeyFamilies], JsonObject],
        event_of: Callable[[dict[str, Any]], Event | None],
        finish: Callable[[Connection, dict[str, Any]], None] | None = None,
        saved: Callable[[], None] = lambda: None,
    ) -> JsonObject:
        """Save a model with the card of now and of the keys that handed over to each other, and record its event, if it
        has one; returns the card. `finish` and `saved` as in `kept`."""
        keys = self.database.read("model.keys", lambda c: families(c, self.audit))
        card = save_model(out, model, card_of(self.clock().strftime("%Y-%m-%dT%H:%M:%SZ"), keys), self.key())
        saved()
        event = event_of(card)

        def record(connection: Connection) -> None:
            if event is not None:
                self.audit.append(connection, event)
            if finish is not None:
                finish(connection, card)

        self.database.write("model.trained", record)
        return card

    def _estimate(
        self,
        joined: JoinResult,
        cross: CrossFit | None,
        channels: list[Channel],
        features: pa.Table,
        fitted: Callable[[IntArray, Progress], tuple[TrainedModel, CrossFit | None]],
        report: Progress,
    ) -> ErrorEstimate | ClassMetrics | None:
        if cross is not None and len(joined.position) >= MIN_ROWS:
            rows = cross.rows
            return _judged(joined, channels, rows, cross.predictions[rows], cross.constants[rows], cross.folds)

        def fit_and_predict(train: IntArray, held: IntArray) -> tuple[FloatArray, float | FloatArray]:
            model, _ = fitted(train, lambda what, done: report(f"held-out estimate, {what}", 0.57 + 0.41 * done))
            return model.predict(features.take(held), threads=self.threads), model.constant

        split = held_out(joined.draws, fit_and_predict)
        if split is None:
            return None
        return _judged(joined, channels, *split)


def _estimable(messages: list[AcceptedMessage], channels: list[Channel]) -> bool:
    try:
        for message, channel in zip(messages, channels, strict=True):
            identify(channel, message.prior(), message.manifest.n)
    except InvalidMechanism:
        return False
    return True


def warm_of(earlier: SavedModel, kind: str, loss: str) -> Warm:
    """Return the choices that a training takes over. Raises InvalidInput if there are none."""
    return Warm.of(earlier.model, kind, loss, [str(message["release"]) for message in earlier.card["messages"]])


def _judged(
    joined: JoinResult,
    channels: list[Channel],
    held: IntArray,
    predictions: FloatArray,
    constants: float | FloatArray,
    folds: Folds = NO_FOLDS,
) -> ErrorEstimate | ClassMetrics | None:
    """Judge predictions for the rows `held`, float64[h], or float64[h, k] of classes."""
    message, bins, examples = joined.message[held], joined.bins[held], joined.position[held]
    if predictions.ndim == 1:
        priors = [message.prior() for message in joined.messages]
        return estimate_on_rows(predictions, constants, channels, message, bins, examples, folds, priors)
    indicators = told_indicators(channels, message, bins)
    assert not isinstance(indicators, str)  # else the error was not estimable
    metrics = judge_classes(predictions, np.asarray(constants), indicators, examples, folds)
    return metrics if isinstance(metrics, ClassMetrics) else None


def _told(
    joined: JoinResult, channels: list[Channel], domain: Domain, loss: str
) -> ChannelGradients | ClassLikelihood | None:
    """Build gradients by the channels, for the losses that take them. Raises InvalidLoss."""
    if loss == LOG and are_classes(domain):
        return ClassLikelihood.through(channels, joined.message, joined.bins, domain, _prior(joined))
    if loss == LOG:
        return RowLikelihood.through(channels, joined.message, joined.bins)
    return _row_gradients(joined, channels) if loss == "absolute" else None


def _prior(joined: JoinResult) -> FloatArray | None:
    """Average the messages' priors, float64[k]."""
    priors = [prior for prior in (message.prior() for message in joined.messages) if prior is not None]
    return np.mean(priors, axis=0) if priors else None


def _cells(joined: JoinResult, channels: list[Channel]) -> CellLikelihood | None:
    """Build the likelihood on cells; None if the messages identify nothing beyond means, or have bounds of their
    own."""
    if any(channel.domain != channels[0].domain for channel in channels):
        return None
    return CellLikelihood.through(channels, joined.message, joined.bins, _prior(joined))


def _row_gradients(joined: JoinResult, channels: list[Channel]) -> RowGradients | None:
    """Build gradients of the absolute loss under each message's channel; None if a channel does not identify them."""
    corrections = []
    for number, (message, channel) in enumerate(zip(joined.messages, channels, strict=True)):
        occurrences = np.bincount(joined.bins[joined.message == number], minlength=channel.m)
        shares = occurrences / max(int(occurrences.sum()), 1)
        try:
            corrections.append(LossCorrection.absolute(channel, message.prior(), shares))
        except InvalidMechanism:
            return None
    return RowGradients(tuple(corrections), joined.message, joined.bins)


def _centred(joined: JoinResult) -> FloatArray:
    """Return the corrected labels float64[N], those of a fully joined message shifted to the mean weighted with its
    prior's."""
    labels = joined.corrected.copy()
    for at, message in enumerate(joined.messages):
        manifest, rows = message.manifest, joined.message == at
        if manifest.prior.source == "estimated" and int(rows.sum()) == manifest.n:
            values = manifest.read_channel().labels
            epsilon, cells = float(str(manifest.epsilon.prior)), manifest.prior.cells or len(values)
            labels[rows] = recentred(labels[rows], values, message.prior(), epsilon, cells)
    return labels


def check_one_label(messages: list[AcceptedMessage]) -> None:
    """Raise InvalidInput if messages are about different labels or domains: a model has one target."""
    if len({m.digest for m in messages}) != len(messages):
        raise InvalidInput("The same message is named twice.")
    if len({(m.manifest.population.label, str(m.manifest.public_domain.as_json())) for m in messages}) > 1:
        raise InvalidInput("The messages have different labels or label domains; train one model for each.")


def common_domain(messages: list[AcceptedMessage]) -> Domain:
    """Return the messages' domain; of bounds bought separately for each message, the range that holds all of them."""
    public = messages[0].manifest.public_domain
    ends = [public.place(message.manifest.domain) for message in messages]
    return public.part(min(first for first, _ in ends), max(last for _, last in ends))


def default_loss(messages: list[AcceptedMessage]) -> str:
    """Return the default loss of the messages.

    For labels 0 and 1 it is the log loss, with which every model predicts probabilities. For named classes only the log
    loss is defined.
    """
    if messages[0].manifest.public_domain.nominal:
        return LOG
    named = {m.manifest.loss for m in messages}
    loss = named.pop() if len(named) == 1 else "squared"
    if loss in ("squared", LOG):
        binary = all(m.manifest.domain.values.tolist() == [0.0, 1.0] for m in messages)
        return LOG if binary else "squared"
    return loss if loss in LOSSES else "squared"


def trained_event(messages: list[AcceptedMessage], card: dict[str, Any], actor: str) -> Event:
    """Build the event without a charge: post-processing of a message keeps its guarantee."""
    return training_event(messages[0].manifest, [m.release for m in messages], card, actor, one=len(messages) == 1)


def training_event(
    first: Manifest | Answer, releases: list[str], card: dict[str, Any], actor: str, *, one: bool = True
) -> Event:
    """Build the event of a model of one document, or of several of which it names the `first` one's population."""
    population = first.population
    return Event(
        kind=TRAINED,
        subject=Subject(
            population=population.id,
            population_name=population.name,
            label=population.label,
            batch=first.batch if one else None,
            work=first.id if one else None,
        ),
        actor=actor,
        details={
            "model_sha256": card["model_sha256"],
            "releases": releases,
            "rows": int(np.int64(card["report"]["rows"])),
        },
    )
