"""Calibrations: scores of a batch's examples in, a private monotone map from score, or from two scores, to label out.

Who may cause a charge. The ledger is the owner's, so an audience may request a calibration only within an allowance
that the owner has set for the batch (`allowances`), and the owner may at any time. Every request charges the whole
batch, whatever the scores are: which examples they are of says nothing about labels, but the map may depend on any.

Ids. Examples of the batch without a score are left out of the fit, and so are scores of ids that are not in the batch.
The owner is refused the latter by row, before anything is charged. An audience is not, and no answer says how many of
its ids matched: a free refusal would let it ask id by id what other audiences sent (invariant no-oracle). Nor does a
map: cuts and cells depend on all uploaded scores, matched or not, and means are rounded to a public lattice. It depends
on ids only through labels, with noise. An audience can see whether its ids are those of the batch by sending its list
of examples again. Membership is a matter of ids, never of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

from label_dp.companions.kinds.calibration import CALIBRATION
from label_dp.companions.maps.scores import FLOAT32, ScoreGrid
from label_dp.companions.maps.shapes import BINS, FORMS, GRID, LOSSES
from label_dp.documents.kind import REPLACE_ONE
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import InvalidInput, InvalidLoss
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.schemas.calibration import Calibration
from label_dp.schemas.json_types import JsonObject
from labels_party.companions.kinds.answer import AnswerKind, Computed, Parts, require_order
from labels_party.companions.kinds.calibration.scores import Scores
from labels_party.companions.kinds.calibration.shapes import AUTO, SHAPES, Terms, fitted, parse_options
from labels_party.labels.at_rest import digest_key
from labels_party.labels.batches import RUNS, SEALED, Batch
from labels_party.labels.chunks import Chunks
from labels_party.labels.parsing import ID, SCORE, SCORE_2
from labels_party.labels.runs import among
from labels_party.labels.vault import LabelVault
from labels_party.ledger.populations import Population
from labels_party.storage.secrets import Secrets
from labels_party.work.kind import Job, PlannedWork
from labels_party.work.store import Works

NUMBERS = ("scores", "scores_2")  # parameters that say how scores are numbered, in the order of the scores


@dataclass(frozen=True)
class CalibrationWish:
    """Checked request; all of it public."""

    epsilon: Epsilon
    loss: str
    shape: str
    options: dict[str, int | str]
    grids: tuple[ScoreGrid, ...]  # one for each score
    additional_release: bool

    @classmethod
    def parse(cls, asked: Calibration) -> CalibrationWish:
        """Parse a request. `auto` is the shape for as many scores as are numbered.

        Raises InvalidEpsilon, InvalidLoss, InvalidMechanism, InvalidInput (shape, options, numbers of scores).
        """
        epsilon, loss, two = Epsilon.parse(asked.epsilon, positive=True), asked.loss, asked.scores_2 is not None
        if loss not in LOSSES:
            raise InvalidLoss(f"The loss of a calibration is {' or '.join(LOSSES)}.")
        shape = BINS if asked.shape == AUTO else asked.shape  # the smallest error if nothing is known of the map
        options = parse_options(shape, asked.options)
        if two and 2 not in FORMS[shape].scores:
            raise InvalidInput(
                f"The shape '{shape}' has one score; for a map of two scores ask for '{BINS}' or '{GRID}'."
            )
        grids: tuple[ScoreGrid, ...] = (ScoreGrid.parse(asked.scores),)
        if two or 1 not in FORMS[shape].scores:
            grids += (ScoreGrid.parse(FLOAT32 if asked.scores_2 is None else asked.scores_2),)
        if FORMS[shape].spaced and grids[0].steps is None:
            raise InvalidInput(
                f"The shape '{shape}' speaks of distances between scores, and '{FLOAT32}' has none; number them "
                "by LO:HI:STEPS, such as 0:1:65536."
            )
        return cls(epsilon, loss, shape, options, grids, asked.additional_release)

    @property
    def parameters(self) -> JsonObject:
        parameters: JsonObject = {"loss": self.loss, "shape": self.shape, "options": self.options}
        return parameters | dict(zip_longest(NUMBERS, map(str, self.grids)))

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the upload, in our names."""
        return (ID, SCORE, SCORE_2)[: 1 + len(self.grids)]


def _terms(domain: Domain, epsilon: Epsilon, parameters: Mapping[str, Any], n: int, scores: Scores) -> Terms:
    """Build the terms of a fit for a batch of n examples: the same at the request, which they may refuse, and at the
    fit."""
    sizes = [ScoreGrid.parse(parameters[name]).size for name in NUMBERS if parameters[name] is not None]
    options = parameters["options"]
    n, distinct = min(n, scores.sent), min(n, scores.distinct)
    axes = SHAPES[parameters["shape"]].axes
    cells = () if axes is None else axes(options, scores.numbers, sizes, n, epsilon, parameters["loss"])
    return Terms(domain, sizes[0], epsilon, parameters["loss"], n, distinct, options, scores.numbers[0], cells)


@dataclass(frozen=True)
class CalibrationRequest:
    """Calibration request for `scores`. `by_audience`: the audience that asks for itself; None: the owner."""

    asked: CalibrationWish
    scores: Scores
    by_audience: str | None = None


class CalibrationKind(AnswerKind[CalibrationRequest]):
    """Kind with one pass over the sealed labels, paid by ε_randomize of the answer; the fit is ε-DP in them."""

    name = CALIBRATION
    adjacency = REPLACE_ONE

    def __init__(self, key: SigningKey, works: Works, vault: LabelVault, secrets_: Secrets) -> None:
        super().__init__(key)
        self.works, self.vault, self.secrets = works, vault, secrets_
        self.database = works.database

    @classmethod
    def made(cls, parts: Parts) -> Self:
        return cls(parts.key, parts.works, parts.vault, parts.secrets)

    # --- requests -----------------------------------------------------------------------------------------

    def scored(
        self,
        batch_id: str,
        wish: CalibrationWish,
        chunks: Callable[[tuple[str, ...]], Chunks],
        by_audience: str | None = None,
    ) -> CalibrationRequest:
        """Read the scores of an upload. Raises as `Works.allowed` and `Scores.read`; nothing is charged."""
        asks = (batch_id, self.name, by_audience)
        _, population = self.database.read("calibration.look", lambda c: self.works.allowed(c, *asks))
        fields = wish.fields
        return CalibrationRequest(
            wish, Scores.read(chunks(fields), population.label, self.secrets, wish.grids, fields), by_audience
        )

    def asker(self, wish: CalibrationRequest) -> str | None:
        return wish.by_audience

    def plan(self, batch: Batch, population: Population, wish: CalibrationRequest) -> PlannedWork:
        """Plan the work. Raises as the plan of a shape, and to the owner InvalidRows (ids that are not in the
        batch)."""
        calibration_wish, scores, audience = wish.asked, wish.scores, wish.by_audience
        assert batch.n is not None
        require_order(population.domain, "A calibration")
        SHAPES[calibration_wish.shape].plan(
            _terms(population.domain, calibration_wish.epsilon, calibration_wish.parameters, batch.n, scores)
        )
        if audience is None:
            folders = (RUNS, SEALED)
            runs = self.database.read("calibration.runs", lambda c: self.works.batches.segments(c, batch.id, *folders))
            scores.refuse_unknown(among(scores.run, [self.vault.run(run.key) for run in runs]))
        return self.asked(
            EpsilonSplit(ZERO, ZERO, calibration_wish.epsilon),
            calibration_wish.parameters,
            additional_release=calibration_wish.additional_release,
            audiences=None if audience is None else (audience,),
            by_audience=audience,
            inputs=scores,
            inputs_mac=scores.mac(self.secrets),
        )

    # --- computation --------------------------------------------------------------------------------------

    def compute(self, job: Job) -> Computed:
        """Compute the map. Raises Unavailable if the inputs cannot be read, RandomnessUnavailable."""
        assert job.inputs is not None
        parameters, domain = job.work.plan, job.population.domain
        scores = Scores.load(job.inputs)
        x, y = self._met(job, scores)
        terms = _terms(domain, job.work.split.randomize, parameters, job.n, scores)
        mapping, facts = fitted(parameters["shape"], terms, x, y)
        return Computed(
            {"map": mapping.as_json()}, "isotonic", SHAPES[parameters["shape"]].source, facts, self.adjacency
        )

    def _met(self, job: Job, scores: Scores) -> tuple[Any, Any]:
        """Join (numbers int64[m], or int64[2, m] of two scores; label positions int64[m]) of the examples that have a
        score, in the order of ids."""
        at, positions = scores.places(job.labels, digest_key(self.secrets, job.population.label))
        x = scores.numbers[:, at]
        return (x[0] if len(x) == 1 else x), positions
