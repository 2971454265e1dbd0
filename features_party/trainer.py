"""From accepted messages and a feature table to a saved model: join, correct, fit, describe, account."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from features_party.correction import check_correction
from features_party.feature_tables import FeatureTable
from features_party.holdout import estimate_on_rows
from features_party.intake.accepted import AcceptedMessage
from features_party.join import Joined, join
from features_party.recentring import recentred
from features_party.registry.card import build_card
from features_party.registry.folder import save_model
from features_party.training.crossfit import CrossFit
from features_party.training.estimate import MIN_ROWS, ErrorEstimate, held_out
from features_party.training.fitting import LOSSES, MODELS, fit_and_judge
from features_party.training.mlp_fit import check_torch
from features_party.training.objectives import LossCorrection, RowGradients
from shared.audit.events import TRAINED, Event, Subject
from shared.audit.store import AuditStore, Clock
from shared.channel import Channel
from shared.domain import Domain
from shared.errors import InvalidInput, InvalidLoss, InvalidMechanism
from shared.service.cli import Progress
from shared.service.database import Database

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Options:
    """What a caller may choose. `loss` None: the loss of the messages where all name one that can be trained."""

    model: str = "gbdt"
    loss: str | None = None
    correction: str = "auto"
    categorical: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse unknown names before anything is read. Raises InvalidInput, InvalidLoss."""
        if self.model not in MODELS:
            raise InvalidInput(f"There is no model '{self.model}'; choose one of {', '.join(MODELS)}.")
        if self.model == "mlp":
            check_torch()
        check_correction(self.correction)
        if self.loss is not None and self.loss not in LOSSES:
            raise InvalidLoss(f"There is no training loss '{self.loss}'; choose one of {', '.join(LOSSES)}.")


@dataclass(frozen=True)
class Trainer:
    database: Database
    audit: AuditStore
    clock: Clock
    threads: int
    _silent: Progress = field(default=lambda _what, _share: None, repr=False)

    def train(
        self,
        messages: list[AcceptedMessage],
        table: FeatureTable,
        options: Options,
        out: Path,
        progress: Progress | None = None,
        actor: str = "cli",
        finish: Callable[[Connection, dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Train on accepted messages, save the model to the folder `out`, and return its card.

        Whatever `progress` raises ends the training; `finish` shares the transaction of the audit event.
        Raises InvalidInput (options, or messages of different labels), InvalidTable, InvalidMechanism (`debias` asked
        for where there is none), Conflict (`out` is taken).
        """
        report, began = progress or self._silent, time.monotonic()
        options.check()
        check_one_label(messages)
        report("joining", 0.0)
        joined = join(messages, table, options.correction)
        loss = options.loss or default_loss(messages)
        features = joined.features()
        # error estimates need more: channels that are unbiased exactly
        comparable = all(c.comparable for c in joined.corrections)
        channels = [m.manifest.read_channel() for m in messages]
        estimable = all(channel.unbiased for channel in channels)
        # an ensemble brings its out-of-fold predictions along, other models are trained once more for the estimate
        share = 0.55 if estimable and not (comparable and options.model == "gbdt") else 0.96
        domain = common_domain(messages)

        told = _row_gradients(joined, channels) if loss == "absolute" else None

        labels = _centred(joined) if comparable else joined.corrected

        def fit_rows(rows: Any, part: Progress) -> Any:
            chosen: pa.Table = features if rows is None else features.take(rows)
            at = slice(None) if rows is None else rows
            return fit_and_judge(
                chosen,
                labels[at],
                noise_variance=joined.noise_variance[at],
                domain=domain,
                model=options.model,
                loss=loss,
                categorical=options.categorical,
                exclude=options.exclude,
                unbiased=comparable,
                groups=joined.position[at],
                told=told.take(at) if told is not None else None,
                threads=self.threads,
                progress=part,
            )

        model, cross = fit_rows(None, lambda what, done: report(what, 0.02 + share * done))
        estimate = self._estimate(joined, cross, channels, features, fit_rows, report) if estimable else None
        report("saving", 0.99)
        now = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds = round(time.monotonic() - began, 2)
        card = save_model(out, model, build_card(model, joined, domain, estimate, now, seconds))

        def record(connection: Connection) -> None:
            self.audit.append(connection, trained_event(messages, card, actor))
            if finish is not None:
                finish(connection, card)

        self.database.write("model.trained", record)
        return card

    def _estimate(
        self,
        joined: Joined,
        cross: CrossFit | None,
        channels: list[Channel],
        features: pa.Table,
        fit_rows: Any,
        report: Progress,
    ) -> ErrorEstimate | None:
        if cross is not None and len(joined.position) >= MIN_ROWS:
            return estimate_on_rows(
                cross.predictions,
                cross.constants,
                channels,
                joined.message,
                joined.bins,
                joined.position,
                folds=int(cross.fold.max()) + 1,
            )

        def fit_and_predict(train: Any, held: Any) -> Any:
            model, _ = fit_rows(train, lambda what, done: report(f"held-out estimate, {what}", 0.57 + 0.41 * done))
            return model.predict(features.take(held), threads=self.threads), model.mean

        found = held_out(len(joined.position), joined.position, fit_and_predict)
        if found is None:
            return None
        held, predictions, constant = found
        message, bins = joined.message[held], joined.bins[held]
        return estimate_on_rows(predictions, constant, channels, message, bins, joined.position[held])


def _row_gradients(joined: Joined, channels: list[Channel]) -> RowGradients | None:
    """Gradients of the absolute loss under each message's channel; None where one does not tell them."""
    corrections = []
    for number, (message, channel) in enumerate(zip(joined.messages, channels, strict=True)):
        occurrences = np.bincount(joined.bins[joined.message == number], minlength=channel.m)
        shares = occurrences / max(int(occurrences.sum()), 1)
        try:
            corrections.append(LossCorrection.absolute(channel, message.prior(), shares))
        except InvalidMechanism:
            return None
    return RowGradients(tuple(corrections), joined.message, joined.bins)


def _centred(joined: Joined) -> npt.NDArray[np.float64]:
    """float64[N]: corrected labels, those of a message that is here with all its rows moved to the mean that its prior
    and they agree on."""
    labels = joined.corrected.copy()
    for at, message in enumerate(joined.messages):
        manifest, rows = message.manifest, joined.message == at
        if manifest.prior.source == "estimated" and int(rows.sum()) == manifest.n:
            values = manifest.read_channel().labels
            epsilon, cells = float(str(manifest.split.prior)), manifest.prior.cells or len(values)
            labels[rows] = recentred(labels[rows], values, message.prior(), epsilon, cells)
    return labels


def check_one_label(messages: list[AcceptedMessage]) -> None:
    """A model has one target. Raises InvalidInput where messages are about different labels or domains."""
    if len({m.digest for m in messages}) != len(messages):
        raise InvalidInput("The same message is named twice.")
    if len({(m.manifest.population.label, str(m.manifest.public_domain.as_json())) for m in messages}) > 1:
        raise InvalidInput("The messages have different labels or label domains; train one model for each.")


def common_domain(messages: list[AcceptedMessage]) -> Domain:
    """The messages' domain; of bounds that were bought for each message apart, the part that holds all of them."""
    public = messages[0].manifest.public_domain
    ends = [public.place(message.manifest.read_domain()) for message in messages]
    return public.part(min(first for first, _ in ends), max(last for _, last in ends))


def default_loss(messages: list[AcceptedMessage]) -> str:
    named = {m.manifest.loss for m in messages}
    loss = named.pop() if len(named) == 1 else "squared"
    return loss if loss in LOSSES else "squared"


def trained_event(messages: list[AcceptedMessage], card: dict[str, Any], actor: str) -> Event:
    """No charge: whatever is computed from a message keeps its guarantee."""
    first = messages[0].manifest
    one = len(messages) == 1
    return Event(
        kind=TRAINED,
        subject=Subject(
            population=first.population.id,
            population_name=first.population.name,
            label=first.population.label,
            batch=first.batch if one else None,
            release=first.release if one else None,
        ),
        actor=actor,
        details={
            "model_sha256": card["model_sha256"],
            "releases": [m.release for m in messages],
            "rows": int(np.int64(card["report"]["rows"])),
        },
    )
