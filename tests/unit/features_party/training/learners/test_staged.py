"""How many trees are grown: as long as held-out labels speak for more; and which members later folds do without."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import xgboost

from features_party.training.capacity import choose_capacity
from features_party.training.encoding import Encoded
from features_party.training.learner import CrossFit, Sample, Task
from features_party.training.learners import crossfit
from features_party.training.learners.additive import AdditiveFit, Report, TrainingRows
from features_party.training.learners.crossfit import FoldPlan
from features_party.training.learners.stacking import worthwhile
from features_party.training.learners.staged import Course, Growth, stages_of
from features_party.training.learners.trees import LONGEST, Boosting, TreeInput, Trees, fit_trees
from label_dp.domain import Domain
from label_dp.progress import Progress
from tests.support.training import draws, fit_and_judge

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
ROWS = 3000


def rows(seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).random((ROWS, 2)).astype(np.float32)


def sample(matrix: npt.NDArray[np.float32], labels: FloatArray) -> Sample:
    return Sample(Encoded(matrix, np.empty((len(matrix), 0), np.int32)), labels, draws(len(matrix)))


def stripes(matrix: npt.NDArray[np.float32]) -> FloatArray:
    return np.asarray(np.floor(40.0 * matrix[:, 0]) % 2 * 4.0, np.float64)


def grown(noise: float, loss: str = "squared", base: float | None = None) -> tuple[Growth, Trees, Task]:
    """Trees for labels of stripes with noise of this standard deviation, grown while the held-out ones ask for it."""
    train, held = rows(0), rows(1)
    rng = np.random.default_rng(2)
    labels, truth = stripes(train) + noise * rng.normal(size=ROWS), stripes(held) + noise * rng.normal(size=ROWS)
    ruled = choose_capacity(ROWS, float(np.var(labels)), noise * noise).model_copy(update={"rounds": 40})
    task = Task([], loss, (0.0, 4.0), ruled, 1)
    first = None if base is None else np.full(ROWS, base)
    stages = stages_of(40)
    growth = Growth(Course(TreeInput(held, ["q", "q"]), first, task.bounds, 1), sample(held, truth), stages, 40)
    most = ruled.model_copy(update={"rounds": stages[-1]})
    boosting = Boosting(0, first, capacity=most, enough=growth.enough)
    found = fit_trees(TreeInput(train, ["q", "q"]), sample(train, labels), task, boosting, lambda _what, _share: None)
    return growth, found, task


def test_stages_rise_and_are_at_least_one_tree() -> None:
    assert stages_of(100) == [25, 50, 100, 150, 200, 300, 400]
    assert stages_of(1) == [1, 2, 3, 4]


def test_clean_labels_take_more_trees_and_noisy_ones_stop_at_the_rule() -> None:
    clean, trees, _ = grown(0.0)
    assert trees.count == 160 == max(clean.predictions)
    errors = {count: float(np.mean((p - clean.held.labels) ** 2)) for count, p in clean.predictions.items()}
    assert errors[160] < 0.8 * errors[40]
    noisy, trees, _ = grown(30.0)
    assert trees.count == 40 == max(noisy.predictions)


def test_the_length_of_steps_is_told_where_it_changes_and_no_oftener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees twice and four times the rule's take longer ones; the library reads all its parameters anew each time."""
    lengths: list[float] = []
    plain = xgboost.Booster.set_param

    def counted(booster: xgboost.Booster, parameter: Any, value: Any = None) -> None:
        if parameter == "learning_rate":
            lengths.append(value)
        plain(booster, parameter, value)

    monkeypatch.setattr(xgboost.Booster, "set_param", counted)
    ruled = grown(0.0)[2].capacity.learning_rate
    assert lengths == [2.0 * ruled, min(4.0 * ruled, LONGEST)]


@pytest.mark.parametrize(("loss", "base"), [("squared", None), ("squared", 1.5), ("poisson", None), ("poisson", 0.4)])
def test_each_stage_predicts_what_its_trees_predict_by_themselves(loss: str, base: float | None) -> None:
    growth, trees, task = grown(0.5, loss, base)
    assert len(growth.predictions) > 2
    first = None if base is None else np.full(ROWS, base)
    for count, predictions in growth.predictions.items():
        alone = np.clip(trees.outputs(growth.course.rows, 1, first, count), *task.bounds)
        assert predictions == pytest.approx(alone, abs=1e-4)
    assert np.abs(growth.predictions[10] - growth.predictions[40]).max() > 0.1


def test_boosters_of_the_same_rows_do_not_see_each_others_labels() -> None:
    """The binned rows are kept; labels, weights and scores are not."""
    matrix = rows(0)
    task = Task([], "squared", (0.0, 4.0), choose_capacity(ROWS, 4.0, 0.0).model_copy(update={"rounds": 20}), 1)
    kept = TreeInput(matrix, ["q", "q"])

    def fitted(seen: TreeInput, labels: FloatArray, base: FloatArray | None = None) -> FloatArray:
        found = fit_trees(seen, sample(matrix, labels), task, Boosting(0, base), lambda _what, _share: None)
        return found.outputs(seen, 1, base)

    labels, base = stripes(matrix), np.asarray(matrix[:, 1], np.float64)
    fitted(kept, labels + 5.0, base)
    again, fresh = fitted(kept, labels), fitted(TreeInput(matrix, ["q", "q"]), labels)
    assert again.tolist() == fresh.tolist()
    assert np.abs(again - fitted(kept, labels, base)).max() > 0.01


# --- members ------------------------------------------------------------------------------------------------

LABELS = np.random.default_rng(3).normal(size=ROWS)
GOOD = LABELS + 0.5 * np.random.default_rng(4).normal(size=ROWS)
OTHER = LABELS + 0.5 * np.random.default_rng(5).normal(size=ROWS)
NOISE = np.random.default_rng(6).normal(size=ROWS)
MEAN, ALIKE = np.zeros(ROWS), np.ones(ROWS)


def kept(parts: dict[str, list[FloatArray]], needs: dict[str, str] | None = None, noise: float = 0.0) -> set[str]:
    return told(parts, needs, noise)[0]


def told(
    parts: dict[str, list[FloatArray]], needs: dict[str, str] | None = None, noise: float = 0.0
) -> tuple[set[str], bool]:
    return worthwhile(parts, needs or {}, MEAN, LABELS, ALIKE, noise)


def test_only_members_that_say_the_same_or_nothing_are_left_out() -> None:
    assert kept({"a": [GOOD], "b": [NOISE]}) == {"a"}
    assert kept({"a": [GOOD], "b": [OTHER]}) == {"a", "b"}
    assert len(kept({"a": [GOOD], "b": [GOOD + 1e-3 * NOISE]})) == 1
    assert kept({"a": [GOOD, NOISE], "b": []}) == {"a"}
    assert kept({"a": [], "b": []}) == set()


def test_what_another_member_needs_stays_with_it() -> None:
    assert kept({"base": [NOISE], "top": [GOOD]}) == {"top"}
    assert kept({"base": [NOISE], "top": [GOOD]}, {"top": "base"}) == {"base", "top"}
    assert kept({"base": [GOOD], "top": [NOISE]}, {"top": "base"}) == {"base"}


@pytest.mark.parametrize(("apart", "dropped"), [(0.01, True), (0.03, True), (0.3, False), (1.0, False)])
def test_a_member_is_left_out_only_where_that_is_surely_slight(apart: float, dropped: bool) -> None:
    """Another one that is as good, and `apart` from it: what both gain is a quarter of the square of that."""
    assert (len(kept(pair(apart))) == 1) == dropped


def test_noise_of_the_labels_is_no_error_of_a_member() -> None:
    """The same members at the same distance: the less of the error is theirs, the less may be lost."""
    assert len(kept(pair(0.03))) == 1
    assert len(kept(pair(0.03), noise=0.8)) == 2


def test_none_is_left_out_where_noise_hides_what_it_is_worth() -> None:
    """A member that is nothing but the mean, among labels of which one part in a thousand is signal."""
    nothing = {"a": [GOOD], "b": [NOISE * 1e-3]}
    assert told(nothing) == ({"a"}, True)
    rows = len(LABELS)
    error = float(np.mean((LABELS - GOOD) ** 2))
    # 9/rows of it is more than 1 % of the rest
    assert told(nothing, noise=error * (1.0 - 890.0 / rows)) == (
        {"a", "b"},
        False,
    )


def pair(apart: float) -> dict[str, list[FloatArray]]:
    residual = np.random.default_rng(10).normal(size=ROWS)
    one, other = (LABELS + residual + sign * apart / 2 * NOISE for sign in (1.0, -1.0))
    return {"a": [one], "b": [other]}


def test_later_folds_take_what_the_first_one_left() -> None:
    rng, held = np.random.default_rng(9), 4000
    labels = rng.normal(size=held)
    out = {("main effects", 0): rng.normal(size=held)}
    out |= {("trees", count): labels + 0.3 * rng.normal(size=held) for count in (50, 100)}
    task = Task([], "squared", (-9.0, 9.0), choose_capacity(held, 1.0, 0.0).model_copy(update={"rounds": 100}), 1)
    plan = FoldPlan.after(out, np.zeros(held), sample(np.empty((held, 0), np.float32), labels), task)
    assert plan == FoldPlan(frozenset({"trees"}), {"trees": [50, 100]})
    assert (plan.wants("trees"), plan.wants("additive model")) == (True, False)
    assert FoldPlan().wants("additive model")


def test_one_fold_is_enough_for_many_rows_whose_labels_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictions out of fold are then of the first fold alone; few rows, or noise, ask for all folds."""
    rng, rows = np.random.default_rng(11), 4000
    table = pa.table({"x": rng.uniform(size=rows), "group": rng.integers(0, 5, rows).astype(str)})
    truth = 20.0 * table["x"].to_numpy() + rng.normal(size=rows)

    def validated(noise: float) -> CrossFit:
        labels = truth + noise * rng.normal(size=rows)
        _, cross = fit_and_judge(table, labels, noise_variance=noise**2, domain=Domain.parse("0:20"), unbiased=True)
        assert cross is not None
        assert np.array_equal(np.isfinite(cross.predictions), np.isin(np.arange(rows), cross.rows))
        return cross

    assert len(validated(0.0).rows) == rows
    monkeypatch.setattr(crossfit, "MANY", rows)
    one = validated(0.0)
    assert np.array_equal(one.rows, np.flatnonzero(one.fold == 0))
    assert len(one.rows) < rows / 2
    assert np.mean((one.predictions[one.rows] - truth[one.rows]) ** 2) < 2.0
    again = one.take(np.repeat(np.arange(rows), 2))
    assert np.array_equal(again.rows // 2, np.repeat(one.rows, 2))
    assert len(validated(200.0).rows) == rows


@pytest.mark.parametrize("clear", [0.0, 1e9], ids=["precise", "noisy"])
def test_many_rows_are_fitted_once_and_in_longer_steps(clear: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one fold the additive members are kept; where rows count as noisy, trees take longer steps."""
    rng, rows = np.random.default_rng(12), 4000
    table = pa.table({"x": rng.uniform(size=rows)})
    labels = 20.0 * table["x"].to_numpy() + rng.normal(size=rows)
    main, trees = crossfit.fit_main, crossfit.fit_trees
    smooth: list[int] = []
    rates: set[float] = set()

    def fit_main(data: TrainingRows, report: Report) -> AdditiveFit:
        smooth.append(len(data.labels))
        return main(data, report)

    def fit_some(inputs: TreeInput, data: Sample, task: Task, boosting: Boosting, progress: Progress) -> Trees:
        assert boosting.capacity is not None
        rates.add(boosting.capacity.learning_rate)
        return trees(inputs, data, task, boosting, progress)

    monkeypatch.setattr(crossfit, "CLEAR_ROWS", clear)
    monkeypatch.setattr(crossfit, "fit_main", fit_main)
    monkeypatch.setattr(crossfit, "fit_trees", fit_some)
    fit_and_judge(table, labels, unbiased=True)
    usual = rates.copy()
    rates.clear()
    if not clear:  # else the Gaussian process takes their weight
        assert smooth[-1] == rows
    smooth.clear()
    monkeypatch.setattr(crossfit, "MANY", rows)
    fit_and_judge(table, labels, unbiased=True)
    assert len(smooth) == 1
    assert smooth[0] < rows
    assert rates == {rate * (crossfit.FASTER if clear else 1.0) for rate in usual}
