"""Validation that costs no ε: members compared, and weighted, on privatized labels that they were not trained on.

If E[z | y] = y (nearly), the squared error on held-out z is the squared error on y plus a constant, so out-of-fold
predictions choose the number of trees and the weights of the members. A weight's own error is about σ²/n, far below the
differences it decides. The weights of a fold's rows come from the other folds, so that `CrossFit` is out of fold
throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from features_party.training.capacity import Capacity
from features_party.training.draws import seed
from features_party.training.effects import Effects
from features_party.training.learner import CrossFit, ModelInput, Sample, Task
from features_party.training.learners.additive import Additive, TrainingRows, fit_log, fit_main, fit_pairs
from features_party.training.learners.chance import Belief, drawn_in
from features_party.training.learners.comparison import MANY, assign_folds
from features_party.training.learners.forward import MOST_ROWS, Forward, fit_forward
from features_party.training.learners.gaussian import Gaussian, Kernel, choose_kernel, fit_gaussian
from features_party.training.learners.levels import learn_features
from features_party.training.learners.members import Member, moves, starting_score
from features_party.training.learners.stacking import best_rounds, stacked, worthwhile
from features_party.training.learners.staged import Course, Growth, stages_of
from features_party.training.learners.trees import Boosting, TreeInput, Trees, fit_trees
from features_party.training.progress import part
from label_dp.progress import Progress

FloatArray = npt.NDArray[np.float64]
Models = dict[str, Additive]
Weights = dict[str, tuple[float, int]]

CLEAR_ROWS = 20_000.0  # effective rows above which trees find the interactions without the Gaussian process
FOLD_SEARCH = 30_000  # rows up to which each fold chooses its own kernel; above, all share a dozen hyperparameters
PROCESS, ADDITIVE, FORWARD = "gaussian process", "additive model", "through the channel"
BAGS = 3  # boosters on other rows and columns each; their average has less noise
FASTER = 2.0  # factor on the steps of trees for MANY noisy rows, with so many fewer trees
KERNEL = 0.2  # of the time, if the kernel is chosen once
LOOKED_AT = 20_000  # rows used to measure how far the refitted members move predictions
SHALLOWER = 2  # levels less for trees on top of an additive model, which has the main effects
_TREES = {False: "trees", True: "trees on top"}
GROUPS = {
    ADDITIVE: ("main effects", "interactions", "multiplicative"),
    PROCESS: (PROCESS,),
    FORWARD: (FORWARD,),
    **{name: (name,) for name in _TREES.values()},
}
NEEDS = {_TREES[True]: ADDITIVE, FORWARD: ADDITIVE}


def _group(member: str) -> str:
    return next(group for group, names in GROUPS.items() if member in names)


def _few(task: Task) -> bool:
    """Check whether there are few effective rows."""
    return task.capacity.effective_rows <= CLEAR_ROWS


@dataclass(frozen=True)
class Fold:
    """Training rows of a fold, with out-of-fold effects of their categories."""

    seen: ModelInput
    sample: Sample


@dataclass(frozen=True)
class FoldPlan:
    """Plan that the first fold makes for the others: the members worth their time (None: all), the numbers of trees to
    compare, and whether the others are needed at all.

    They are not needed for MANY rows whose labels tell members apart well enough in one fold.
    """

    members: frozenset[str] | None = None
    stages: dict[str, list[int]] = field(default_factory=dict)
    enough: bool = False

    @classmethod
    def among(cls, members: frozenset[str] | None) -> FoldPlan:
        """Restrict the plan to these members and their bases."""
        if members is None:
            return cls()
        groups = {_group(name) for name in members}
        return cls(frozenset(groups | {NEEDS[group] for group in groups if group in NEEDS}))

    @classmethod
    def after(cls, out: dict[tuple[str, int], FloatArray], constants: FloatArray, held: Sample, task: Task) -> FoldPlan:
        """Derive the plan from `out` float64[h], by member and number of trees, for the rows `held`."""
        stages = {name: sorted(count for other, count in out if other == name) for name in _TREES.values()}
        stages = {name: counts for name, counts in stages.items() if counts}
        labels, w = held.labels, held.row_weights
        rounds = best_rounds(out, constants, labels, w, task.capacity.rounds)
        parts = {group: [out[n, rounds[n]] for n in names if n in rounds] for group, names in GROUPS.items()}
        groups, decisive = worthwhile(parts, NEEDS, constants, labels, w, task.capacity.noise_variance)
        return cls(frozenset(groups), stages, enough=decisive and task.capacity.rows >= MANY)

    def wants(self, group: str) -> bool:
        return self.members is None or group in self.members


def fit_validated(
    sample: Sample, task: Task, progress: Progress
) -> tuple[list[Member], Effects, CrossFit, tuple[str, ...]]:
    """Fit members on every fold's complement, their weights, and the weighted members on all rows; returns notes too.

    `chance` limits how far predictions move from the mean, those of the folds too.
    """
    labels, capacity = sample.labels, task.capacity
    if _few(task) and capacity.rows >= MANY:
        quick = {"learning_rate": FASTER * capacity.learning_rate, "rounds": max(round(capacity.rounds / FASTER), 1)}
        task = replace(task, capacity=capacity.model_copy(update=quick))
    fold = assign_folds(sample.draws)
    count = int(fold.max()) + 1
    out: list[dict[tuple[str, int], FloatArray]] = []
    plan, additive = FoldPlan.among(task.members), Models()
    kernel: Kernel | None = None
    begun, expected = 0.0, 1 if task.capacity.rows >= MANY else count  # folds; the first does most of the work
    clear = CLEAR_ROWS if len(labels) < MANY else CLEAR_ROWS / 2  # of MANY rows it takes long
    if len(labels) > FOLD_SEARCH and capacity.effective_rows <= clear and plan.wants(PROCESS):
        model_input, _ = sample.seen(task)
        begun = KERNEL
        kernel = _kernel(Fold(model_input, sample), task, lambda done: progress("kernel", KERNEL * done))
    share = (1.0 - begun) / (expected + 0.5)
    constants = np.empty(len(labels))
    for index in range(count):
        held = fold == index

        def report(what: str, done: float, at: int = index) -> None:
            progress(f"fold {at + 1} of {count}, {what}", begun + share * min(at + done, expected))

        test = sample.take(np.flatnonzero(held))
        rest = sample.take(np.flatnonzero(~held))
        out.append(dict(_fold(rest, test, additive, task, plan, kernel, report)))
        constants[held] = rest.mean
        if index == 0:
            plan = FoldPlan.after(out[0], constants[held], test, task)
        if plan.enough:
            break
    told = np.flatnonzero(fold <= index)
    # weights are never judged on rows that chose them
    side = fold[told] if index else assign_folds(sample.draws[told], "weights of members")
    merged = _kept(out, fold[told], plan)
    weights, stacked_up, belief = _weighted(merged, constants[told], sample.take(told), side, task)
    predictions = np.full(len(labels), np.nan)
    predictions[told] = np.clip(stacked_up, *task.bounds)
    del out, merged, test, rest  # frees memory before the members are fitted on all rows
    model_input, effects = sample.seen(task)
    models = additive if plan.enough else {}  # a third more rows would hardly change such smooth models
    last = part(progress, 1.0 - share / 2, share / 2)
    members = _refit(Fold(model_input, sample), models, task, weights, kernel, last)
    if not belief.certain and members:
        few = model_input.take(np.arange(0, len(model_input), -(-len(model_input) // LOOKED_AT)))
        factor = drawn_in(moves(members, sample.mean, task.bounds, few, task.threads), belief)
        members = [replace(member, weight=member.weight * factor) for member in members]
    return members, effects, CrossFit(predictions, constants, fold, index + 1), belief.notes


def _kept(
    out: list[dict[tuple[str, int], FloatArray]], fold: npt.NDArray[np.int8], plan: FoldPlan
) -> dict[tuple[str, int], FloatArray]:
    """Collect float64[h] by member and number of trees over the rows of all folds; NaN in folds without it."""
    if len(out) == 1:
        return {key: found for key, found in out[0].items() if plan.wants(_group(key[0]))}
    merged: dict[tuple[str, int], FloatArray] = {}
    for index, found in enumerate(out):
        for key, predictions in found.items():
            if plan.wants(_group(key[0])):
                merged.setdefault(key, np.full(len(fold), np.nan))[fold == index] = predictions
    return merged


def _weighted(
    out: dict[tuple[str, int], FloatArray],
    constants: FloatArray,
    sample: Sample,
    side: npt.NDArray[np.int8],
    task: Task,
) -> tuple[Weights, FloatArray, Belief]:
    """Weigh the members; returns weight and number of trees by member, the weighted sum float64[h], and the limit by
    all of them.

    `out` float64[h] by member and number of trees and `constants` float64[h] are out of fold, on the rows of `sample`.
    A row's sum uses weights and a limit from the other sides; `side` int8[h] is each row's own.
    """
    labels, w = sample.labels, sample.row_weights
    rounds = best_rounds(out, constants, labels, w, task.capacity.rounds)
    # excludes members missing in some fold, and those made only as a base for others
    wanted = rounds if task.members is None else task.members
    names = [name for name, trees in rounds.items() if name in wanted and np.all(np.isfinite(out[name, trees]))]
    table = np.stack([out[name, rounds[name]] for name in names], axis=1) if names else np.empty((len(labels), 0))
    spread, residuals = task.capacity.signal_share * task.capacity.label_variance, labels - constants
    parts, found = table - constants[:, None], np.empty(len(labels))
    for index in range(int(side.max()) + 1):
        others, own = side != index, side == index
        shares = stacked(table[others], constants[others], labels[others], w[others])
        belief = Belief.of(parts[others] @ shares, residuals[others], w[others], spread)
        moved = parts[own] @ (belief.factor * shares)
        found[own] = constants[own] + drawn_in(moved, belief) * moved
    shares = stacked(table, constants, labels, w)
    belief = Belief.of(parts @ shares, residuals, w, spread)
    weighted = zip(names, belief.factor * shares, strict=True)
    return {name: (float(s), rounds[name]) for name, s in weighted if s > 0.0}, found, belief


def _additive(fold: Fold, task: Task, report: Callable[[float], None]) -> Iterator[tuple[str, Additive]]:
    """Yield the additive members; the last one is the base of the trees."""
    features = learn_features(fold.seen, task.smooth)
    signal = task.capacity.signal_share * task.capacity.label_variance
    rows = TrainingRows.of(features, fold.seen, fold.sample.labels, fold.sample.weights, signal)
    if not features:
        return
    main = fit_main(rows, lambda done: report(0.2 * done))
    yield "main effects", main.model
    pairs = fit_pairs(rows, main, lambda done: report(0.2 + 0.3 * done))
    if pairs is not main:
        yield "interactions", pairs.model
    if task.positive:
        yield "multiplicative", fit_log(rows, pairs, task.bounds, lambda done: report(0.5 + 0.5 * done)).model


def _kernel(fold: Fold, task: Task, report: Callable[[float], None]) -> Kernel | None:
    """Choose the kernel; None if no feature is informative."""
    features = learn_features(fold.seen, task.smooth)
    if not features:
        return None
    cells = Kernel.empty(features).cells(fold.seen)
    kernel = choose_kernel(features, cells, fold.sample.labels, fold.sample.row_weights, fold.sample.draws, report)
    return kernel if kernel.features else None


def _process(fold: Fold, task: Task, kernel: Kernel | None, report: Callable[[float], None]) -> Gaussian | None:
    labels, w, draws = fold.sample.labels, fold.sample.row_weights, fold.sample.draws
    if len(labels) <= FOLD_SEARCH and _few(task):
        kernel = _kernel(fold, task, lambda done: report(0.8 * done))
    if kernel is None:
        return None
    cells = kernel.cells(fold.seen)
    return fit_gaussian(kernel, cells, labels, w, draws, lambda done: report(0.8 + 0.2 * done))


def _tree_capacity(task: Task, on_top: bool, rounds: int) -> Capacity:
    depth = max(task.capacity.depth - SHALLOWER, 2) if on_top else task.capacity.depth
    return task.capacity.model_copy(update={"depth": depth, "rounds": rounds})


def _fold(
    rest: Sample, test: Sample, models: Models, task: Task, plan: FoldPlan, kernel: Kernel | None, report: Progress
) -> Iterator[tuple[tuple[str, int], FloatArray]]:
    """Yield ((member, trees), predictions for the rows `test`) of everything that is compared; `models` receives the
    additive members."""
    model_input, effects = rest.seen(task)
    unseen = ModelInput(test.encoded, effects.apply(test.encoded.codes), task.sizes)
    fold, later = Fold(model_input, rest), Fold(unseen, test)
    base: tuple[Additive, FloatArray] | None = None
    if plan.wants(ADDITIVE):
        for name, additive in _additive(fold, task, lambda done: report("additive model", 0.2 * done)):
            models[name] = additive
            score = additive.score(later.seen)
            yield (name, 0), np.clip(additive.linked(score), *task.bounds)
            base = (additive, score)
    if plan.wants(PROCESS):
        process = _process(fold, task, kernel, lambda done: report(PROCESS, 0.2 + 0.15 * done))
        if process is not None:
            yield (PROCESS, 0), np.clip(process.predict(later.seen), *task.bounds)
    held_input = later.seen.once(TreeInput.of)
    if base is not None and plan.wants(FORWARD):
        forward = _forward(fold, task, base[0], part(report, 0.35, 0.05))
        if forward is not None:
            predictions = forward.outputs(held_input, task.threads, starting_score(*base, False, task.bounds))
            yield (FORWARD, 0), np.clip(predictions, *task.bounds)
    for on_top, name in _TREES.items():
        if (on_top and base is None) or not plan.wants(name):
            continue
        start = _start(base[0], fold, task) if on_top and base else None
        first = starting_score(*base, task.loss == "poisson", task.bounds) if on_top and base else None
        stages, ruled = plan.stages.get(name, stages_of(task.capacity.rounds)), task.capacity.rounds
        growths: list[Growth] = []
        count = BAGS if _few(task) and not on_top else 1  # with many effective rows one is enough
        for bag in range(count):
            ruled = stages[-1] if growths or name in plan.stages else ruled
            growths.append(Growth(Course(held_input, first, task.bounds, task.threads), later.sample, stages, ruled))
            progress = part(report, 0.4 + 0.3 * (on_top + bag / count), 0.3 / count)
            _booster(fold, task, on_top, stages[-1], Boosting(bag, start, enough=growths[-1].enough), progress)
            stages = sorted(growths[-1].predictions)
        for stage in stages:
            yield (name, stage), np.mean([one.predictions[stage] for one in growths], axis=0)


def _forward(fold: Fold, task: Task, base: Additive, report: Progress) -> Forward | None:
    cell_likelihood = fold.sample.cells
    if cell_likelihood is None or len(fold.sample.labels) > MOST_ROWS:
        return None
    start = starting_score(base, base.score(fold.seen), False, task.bounds)
    tree_seed = seed(fold.sample.draws, FORWARD)
    return fit_forward(fold.seen.once(TreeInput.of), cell_likelihood, start, task, report, tree_seed)


def _booster(fold: Fold, task: Task, on_top: bool, rounds: int, boosting: Boosting, report: Progress) -> Trees:
    capacity = _tree_capacity(task, on_top, rounds)
    return fit_trees(fold.seen.once(TreeInput.of), fold.sample, task, replace(boosting, capacity=capacity), report)


def _start(base: Additive, fold: Fold, task: Task) -> FloatArray:
    return starting_score(base, base.score(fold.seen), task.loss == "poisson", task.bounds)


def _refit(
    fold: Fold, models: Models, task: Task, weights: Weights, kernel: Kernel | None, report: Progress
) -> list[Member]:
    """Fit the members with a weight on all rows, but for the additive `models` that are given."""
    members: list[Member] = []
    on_top = _TREES[True] in weights or FORWARD in weights
    if set(weights) - {_TREES[False], PROCESS}:
        models = models or dict(_additive(fold, task, lambda done: report("additive model", 0.2 * done)))
        members += [Member(name, weights.get(name, (0.0, 0))[0], one) for name, one in models.items()]
    last = len(members) - 1
    # only members with a weight are kept, and the base of the trees on top
    refitted = [at for at, member in enumerate(members) if member.weight > 0.0 or (on_top and at == last)]
    members = [members[at] for at in refitted]
    if PROCESS in weights:
        process = _process(fold, task, kernel, lambda done: report(PROCESS, 0.2 + 0.2 * done))
        if process is not None:
            members.append(Member(PROCESS, weights[PROCESS][0], process))
    if FORWARD in weights and last >= 0:
        base = members[refitted.index(last)].body
        forward = _forward(fold, task, base, part(report, 0.35, 0.05)) if isinstance(base, Additive) else None
        if forward is not None:
            members.append(Member(FORWARD, weights[FORWARD][0], forward, refitted.index(last)))
    for top in (False, True):
        if _TREES[top] not in weights or (top and last < 0):
            continue
        weight, rounds = weights[_TREES[top]]
        at = refitted.index(last) if top else None
        body = None if at is None else members[at].body
        start = _start(body, fold, task) if isinstance(body, Additive) else None
        boosters = [
            _booster(fold, task, top, rounds, Boosting(bag, start), part(report, 0.4 + 0.3 * (top + bag / BAGS), 0.1))
            for bag in range(BAGS)
        ]
        members += [Member(_TREES[top], weight / len(boosters), one, at) for one in boosters]
    return members
