"""Models of sums: an additive model of public codes, learned from noisy sums of labels and our own exact counts.

With N the counts of rows by pairs of cells, s the noisy sums of the cells and f = μ + Σ effects of a row's levels:

    s = N (μ + effects) + e,   e ~ (0, σ²N + V)    σ² what codes do not tell of a label, V the noise of the answer
    effects of a grouping ~ (0, τ² K)              K by `effect_covariance`

τ² and σ² maximise the marginal likelihood of s, less each over what is expected of it, so that what sums do not tell is
small; the effects are their posterior means. Nothing but the answer tells of labels, so all of it is free of ε.

The gain over the constant μ is Σ effects·s, less what the noise adds to that (Mallows' Cp), twice, less the model's own
variance. Its standard error is of the noise alone and stretched by a quarter, and the interval reaches further by that
correction once more, since τ² is learned from the same sums (`tests/simulation/test_sum_models.py` measures how often
it covers). All effects are shrunk by 1 − 4·(standard error/variance)² or to nothing, as in James and Stein's estimator:
where sums tell nothing, the model nearly always predicts the constant.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.companions.codes import SIGNAL, SPREAD, CodeTable, effect_covariance
from features_party.models.card import sums_card
from features_party.models.trainer import training_event
from features_party.tables.unmatched import Counts
from features_party.training.capacity import choose_capacity
from features_party.training.estimate import ErrorEstimate
from features_party.training.intervals import NORMAL_95, Interval
from features_party.training.learners.additive import Additive, Interaction
from features_party.training.learners.ensemble import Ensemble
from features_party.training.learners.members import Member
from features_party.training.model import TrainedModel
from label_dp.companions.kinds.sum import SUM, LabelLattice, SumsParameters, SumsResult
from label_dp.companions.maps.group_sums import deviation
from label_dp.documents.answer import read_answer
from label_dp.errors import InvalidInput
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.store.output_files import replacing

if TYPE_CHECKING:
    from features_party.bootstrap import Services
    from features_party.receive.answers import SignedAnswer
    from label_dp.documents.answer import Answer
    from label_dp.documents.signing import VerifyingKey
    from label_dp.domain import Domain

FloatArray = npt.NDArray[np.float64]

STEPS = 60  # of the search for variances
LARGEST, SMALLEST = 4.0, 1e-7  # variance of a grouping, in variances that features are expected to explain
STRETCH, SHRINKAGE = 1.25, 4.0
PER_CELL = "the sums know labels by cells of codes, so the squared error itself is not known"
WHY = "from the noisy sums alone, corrected for the noise that the model learned with them"


@dataclass(frozen=True)
class CellTotals:
    """Sums float64[c] of the labels of the rows in some cells of a grouping, with the variance of their noise."""

    grouping: tuple[int, ...]
    cells: npt.NDArray[np.int64]
    sums: FloatArray
    variance: float


@dataclass(frozen=True)
class SumsFit:
    """Fit: mean of the labels, effects of each grouping's cells, float64[cells], and the gain in squared error over the
    mean with half of its interval."""

    mean: float
    effects: tuple[FloatArray, ...]
    gain: float
    reach: float


def totals_of(answer: Answer, table: CodeTable) -> list[CellTotals]:
    """Read an answer's groupings as cells of the codes by which it was asked for. Raises InvalidInput for an answer of
    another table."""
    lattice, parameters = LabelLattice.of(answer.domain), SumsParameters.model_validate(answer.parameters)
    result, names = SumsResult.model_validate(answer.result), {c.name: i for i, c in enumerate(table.codes.columns)}
    values = {column.name: column.values for column in result.columns}
    low, unit, totals = float(lattice.low), float(lattice.unit), []
    if parameters.rows > table.rows:
        raise _other(f"has {parameters.rows:,} examples, and the table {table.rows:,} rows")
    scales = parameters.scales(lattice)
    for by, grouping, scale in zip(parameters.by, result.groupings, scales, strict=True):
        if not set(by) <= names.keys():
            raise _other(f"has sums by {', '.join(by)}")
        if len(by) > 2:
            raise InvalidInput("A model is of sums by one column, or by two; ask without the larger groupings.")
        columns = tuple(names[name] for name in by)
        levels = []
        for name, at in zip(by, columns, strict=True):
            level = {text: i for i, text in enumerate(table.codes.columns[at].texts, 1)} | {None: 0}
            strange = next((value for value in values[name] if value not in level), None)
            if strange is not None:
                raise _other(f"has a value '{strange}' of {name}")
            levels.append(np.array([level[value] for value in values[name]], np.int64))
        codes = np.array(grouping.cells, np.int64).reshape(-1, len(by)).T
        cells = np.ravel_multi_index([of[code] for of, code in zip(levels, codes, strict=True)], table.sizes(columns))
        sums = low * np.array(grouping.n) + unit * np.array([int(text) for text in grouping.sums], np.float64)
        totals.append(CellTotals(columns, cells.astype(np.int64), sums, (unit * deviation(scale)) ** 2))
    return totals


def _other(what: str) -> InvalidInput:
    return InvalidInput(f"The answer {what}: it was asked for by other codes. Name the table that ask-sums sent.")


def fit_sums(table: CodeTable, totals: Sequence[CellTotals], rows: int, width: float) -> SumsFit:
    """Fit the model above to the sums of `rows` of the table's rows; `width` is that of the label domain.

    Where the batch has some of the rows only, all counts are taken to shrink alike."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    counts, starts = table.gram([of.grouping for of in totals])
    counts *= rows / table.rows
    blocks = [starts[i] + of.cells for i, of in enumerate(totals)]
    places = np.concatenate(blocks)
    blocks = np.split(np.arange(len(places)), np.cumsum([len(block) for block in blocks])[:-1])
    counts = counts[np.ix_(places, places)]
    noise = np.concatenate([np.full(len(of.cells), of.variance) for of in totals])
    sums, size = np.concatenate([of.sums for of in totals]), np.diag(counts).copy()
    covariances = [
        effect_covariance(size[at], len(of.grouping) == 1 and table.codes.columns[of.grouping[0]].feature.ordered)
        for of, at in zip(totals, blocks, strict=True)
    ]
    square = width * width
    expected, spread = SIGNAL * square, SPREAD * square
    unit = np.sqrt(noise + spread * np.maximum(size, 1.0))  # so that all that follows is of order one
    reach_of = [counts[:, at] @ k for at, k in zip(blocks, covariances, strict=True)]
    of_effects = [part @ counts[at] / np.outer(unit, unit) for part, at in zip(reach_of, blocks, strict=True)]
    of_rows, of_noise = counts / np.outer(unit, unit), np.diag(noise / unit**2)
    z, ones = sums / unit, size / unit
    matrices = [*of_effects, of_rows]
    charge = np.append(np.full(len(totals), 1.0 / expected), 1.0 / spread)

    def solved(variances: FloatArray) -> tuple[Any, FloatArray, FloatArray, float, float]:
        total = of_noise + sum(v * m for v, m in zip(variances, matrices, strict=True))
        factor = cho_factor(total, lower=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(z)), check_finite=False)
        along = inverse @ ones
        weight = float(ones @ along)
        return factor, inverse, along, weight, float(along @ z) / weight

    def loss(logs: FloatArray) -> tuple[float, FloatArray]:
        variances = np.exp(logs)
        factor, inverse, along, weight, mean = solved(variances)
        rest = z - mean * ones
        weights = inverse @ rest
        value = 0.5 * float(rest @ weights) + float(np.log(np.diag(factor[0])).sum()) + 0.5 * np.log(weight)
        slopes = [
            0.5 * (float(np.sum(inverse * m)) - float(weights @ m @ weights) - float(along @ m @ along) / weight)
            for m in matrices
        ]
        return value + float(charge @ variances), (np.array(slopes) + charge) * variances

    start = np.append(np.full(len(totals), expected / len(totals)), spread)
    ends = [(np.log(SMALLEST * expected), np.log(LARGEST * expected))] * len(totals)
    ends.append((np.log(1e-2 * spread), np.log(3.0 * spread)))
    best = minimize(loss, np.log(start), jac=True, method="L-BFGS-B", bounds=ends, options={"maxiter": STEPS})
    variances = np.exp(best.x)
    _, inverse, along, weight, mean = solved(variances)
    smoother = np.zeros((len(z), len(z)))  # from sums to effects
    centred = (inverse - np.outer(along, along) / weight) / unit
    for at, part, variance in zip(blocks, reach_of, variances, strict=False):
        smoother[at] = variance * (part / unit[:, None]).T @ centred
    effects, uncertain = smoother @ sums, variances[-1] * counts + np.diag(noise)
    added = float(np.sum(smoother * uncertain)) / rows
    error = float(np.sqrt(max(effects @ uncertain @ effects, 0.0))) / rows
    along_sums, own = float(effects @ sums) / rows - added, float(effects @ counts @ effects) / rows
    shrunk = max(0.0, 1.0 - SHRINKAGE * (error / own) ** 2) if own > 0.0 else 0.0
    tables = []
    for of, at in zip(totals, blocks, strict=True):
        effect = np.zeros(int(np.prod(table.sizes(of.grouping))))
        effect[of.cells] = shrunk * effects[at]
        tables.append(effect)
    gain = 2.0 * shrunk * along_sums - shrunk * shrunk * own
    reach = 2.0 * shrunk * (NORMAL_95 * STRETCH * error + added)
    return SumsFit(mean, tuple(tables), gain, reach)


def model_of(
    table: CodeTable, totals: Sequence[CellTotals], rows: int, domain: Domain
) -> tuple[TrainedModel, ErrorEstimate]:
    """Fit a model of sums over `rows` of the table's rows, whose labels are in `domain`, and estimate its gain."""
    low, high = float(domain.values[0]), float(domain.values[-1])
    fit = fit_sums(table, totals, rows, high - low)
    mean = float(np.clip(fit.mean, low, high))
    codes = table.codes
    main = [np.zeros(column.feature.size) for column in codes.columns]
    pairs, spreads = [], []
    for of, effects in zip(totals, fit.effects, strict=True):
        if len(of.grouping) == 1:
            main[of.grouping[0]] = main[of.grouping[0]] + effects
            continue
        first, second = of.grouping
        sizes = table.sizes(of.grouping)
        rows_of, columns_of = (np.arange(size, dtype=np.int32) for size in sizes)
        pairs.append(Interaction(first, second, rows_of, columns_of, effects.reshape(sizes)))
    spreads = [float(np.var(effects[places])) for effects, places in zip(main, table.places, strict=True)]
    spreads += [float(np.var(pair.table.ravel()[pair.places(table.places)])) for pair in pairs]
    features = tuple(column.feature for column in codes.columns)
    body = Additive(features, mean, tuple(main), tuple(pairs), tuple(spreads), None)
    noise = float(np.mean([of.variance * len(of.cells) for of in totals])) / rows
    model = TrainedModel(
        kind="ensemble",
        loss="squared",
        objective="squares of noisy sums",
        schema=codes.schema,
        effects=codes.effects(),
        body=Ensemble(mean, (low, high), (Member("additive, of sums", 1.0, body),)),
        bounds=(low, high),
        mean=mean,
        capacity=choose_capacity(rows, noise, noise, high - low),  # sums do not tell the variance of the labels
        notes=_notes(table, rows),
    )
    gain = Interval(fit.gain, fit.reach / NORMAL_95, fit.gain - fit.reach, fit.gain + fit.reach)
    return model, ErrorEstimate(rows, None, None, gain, PER_CELL)


def _notes(table: CodeTable, rows: int) -> tuple[str, ...]:
    names = ", ".join(column.name for column in table.codes.columns)
    oblivious = f"not feature-oblivious: the labels party was sent codes of {names}, with the ids"
    if rows == table.rows:
        return (oblivious,)
    return (
        oblivious,
        f"the batch has {rows:,} of the {table.rows:,} rows; counts of pairs of codes are taken to shrink alike",
    )


def signed_sums(services: Services, name: str, labels_key: VerifyingKey | None) -> SignedAnswer:
    """Open sums: a file, which is verified and accounted for, or the id of an accepted answer. Raises InvalidInput for
    an answer of another kind, VerificationFailed kinds, NotFound, InvalidFile."""
    path = Path(name)
    opened = services.answers.verify(read_answer(path), labels_key) if path.is_file() else services.answers.open(name)
    if opened.answer.kind != SUM:
        raise InvalidInput(f"The answer is a {opened.answer.kind}; a model is trained of sums, which ask-sums brings.")
    return services.answers.accept(opened.envelope, labels_key) if path.is_file() else opened


def train_sums(
    services: Services,
    name: str,
    labels_key: VerifyingKey | None,
    codes: Path,
    id_column: str,
    out: Path,
    progress: Progress,
    *,
    force: bool = False,
    actor: str = "cli",
) -> JsonObject:
    """Train on sums and the codes by which they were asked for, save the model to the folder `out`; return its card.

    Raises as `signed_sums` and `CodeTable.read`, and InvalidInput for codes of another table."""
    began = time.monotonic()
    with replacing(out, force) as temporary:
        progress("reading codes", 0.0)
        table, signed_answer = CodeTable.read(codes, id_column), signed_sums(services, name, labels_key)
        progress("fitting", 0.3)
        answer, digest = signed_answer.answer, signed_answer.digest
        parameters = SumsParameters.model_validate(answer.parameters)
        model, estimate = model_of(table, totals_of(answer, table), parameters.rows, answer.domain)
        progress("saving", 0.95)
        counts = Counts(
            messages=0,
            message_rows=estimate.rows,
            feature_rows=table.rows,
            matched=estimate.rows,
            message_ids_without_features=0,
            features_without_message=table.rows - estimate.rows,
            ids_in_several_messages=0,
        )
        seconds = round(time.monotonic() - began, 2)
        return services.trainer.recorded(
            temporary,
            model,
            lambda now, keys: sums_card(model, answer, digest, counts, estimate, WHY, now, seconds, keys),
            lambda card: training_event(answer, [], card, actor),
        )
