"""Peers of `make tables` do what their papers say, on cases small enough to be known."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.optimize import linprog

from features_party.training.ranking import auc
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.unbiased import unbiased_channel
from tests.benchmarks.utility import figures, table_classes, table_peers
from tests.benchmarks.utility.cells import INFINITE, Cell, options_text
from tests.benchmarks.utility.conversions import INCOME
from tests.benchmarks.utility.grid import Settings
from tests.benchmarks.utility.peers import boosters, lp_mst, noisy_gradients
from tests.benchmarks.utility.peers import cell as peers_cell
from tests.benchmarks.utility.peers.cell import (
    BLOCK_RR,
    EDUCATION,
    LP_MST,
    MESSAGE,
    NEAR,
    NOISY,
    RP_WITH_PRIOR,
    nearest,
)
from tests.benchmarks.utility.peers.coded import Coded, one_hot
from tests.benchmarks.utility.peers.judged import Best, judge, macro_auc
from tests.benchmarks.utility.results import Results
from tests.benchmarks.utility.store import Result

pytestmark = pytest.mark.extended

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
PRIOR = np.array([0.5, 0.3, 0.15, 0.05])


def test_stage_one_of_lp_mst_is_randomized_response() -> None:
    (channel,) = lp_mst.channels(np.full((1, 5), 0.2), 1.3)
    other = 1.0 / (math.exp(1.3) + 4.0)
    assert channel == pytest.approx(np.where(np.eye(5, dtype=bool), math.exp(1.3) * other, other), abs=1e-15)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_a_stage_keeps_its_epsilon_and_is_right_most_often(epsilon: float) -> None:
    priors = np.random.default_rng(2).dirichlet(np.full(6, 0.5), size=50)
    for prior, channel, kept in zip(
        priors, lp_mst.channels(priors, epsilon), lp_mst.kept(priors, epsilon), strict=True
    ):
        assert channel.sum(axis=1) == pytest.approx(np.ones(6), abs=1e-12)
        assert np.max(channel / np.where(channel.min(axis=0) > 0, channel.min(axis=0), 1.0)) <= math.exp(epsilon) + 1e-9
        assert np.all((channel == 0).all(axis=0) | (channel > 0).all(axis=0))
        right = float(prior @ np.diag(channel))
        falling = np.sort(prior)[::-1]
        best = [math.exp(epsilon) / (math.exp(epsilon) + d - 1) * falling[:d].sum() for d in range(1, 7)]
        assert right == pytest.approx(max(best), abs=1e-12)
        assert right == pytest.approx(best[kept - 1], abs=1e-12)


def test_a_confident_prior_sends_a_constant() -> None:
    # of two labels the likelier one alone is right more often from e^ε/(e^ε + 1) on
    edge = math.exp(1.0) / (math.exp(1.0) + 1.0)
    assert lp_mst.kept(np.array([[edge + 1e-6, 1 - edge - 1e-6], [edge - 1e-6, 1 - edge + 1e-6]]), 1.0).tolist() == [
        1,
        2,
    ]


def test_labels_are_drawn_from_their_own_channels() -> None:
    n, rng = 200_000, np.random.default_rng(5)
    priors = np.tile([PRIOR, PRIOR[::-1]], (n // 2, 1))
    labels = np.tile([0, 0, 1, 2], n // 4)
    expected = lp_mst.channels(priors, 1.0)[np.arange(4), labels[:4]]
    drawn = lp_mst.randomized(labels, priors, 1.0, rng).reshape(-1, 4)

    def farthest(outputs: IntArray) -> float:
        shares = np.stack([np.bincount(column, minlength=4) for column in outputs.T]) / len(outputs)
        return float(np.max(np.abs(shares - expected)))

    # 16 shares of 50,000 draws: 5 standard errors are 0.0112; a right sampler fails once in 10⁵
    assert farthest(drawn) < 0.0112
    planted = lp_mst.randomized(labels, priors, 1.3, rng).reshape(-1, 4)
    assert farthest(planted) > 0.0112


def test_each_label_is_randomized_once_by_the_last_stages_prediction() -> None:
    n, k, rng = 3000, 3, np.random.default_rng(1)
    labels, seen = rng.integers(0, k, n), []
    sure = np.full((n, k), 1e-6)
    sure[:, 2] = 1.0 - 2e-6

    def train(rows: IntArray, noisy: IntArray) -> tuple[FloatArray, FloatArray]:
        seen.append((rows.copy(), noisy.copy()))
        return sure, sure[:10]

    *_, last = lp_mst.multi_stage(labels, k, 1.0, 2, train, rng)
    assert last.shape == (10, k)
    (first_rows, first), (rows, both) = seen
    assert len(first_rows) == n // 2
    assert np.array_equal(rows, np.arange(n))
    assert np.array_equal(both[first_rows], first)  # not drawn again
    later = np.setdiff1d(rows, first_rows)
    assert set(both[later]) == {2}  # the model was sure of it
    assert set(first) == {0, 1, 2}


def _literal(labels: FloatArray, outputs: FloatArray, prior: FloatArray, epsilon: float) -> tuple[FloatArray, float]:
    """The program of Badanidiyuru et al. 2023 as it stands: least expected squared error of M[label, output] on a grid
    of outputs, subject to ε-DP for all pairs of labels, rows that sum to 1, and means equal to the labels."""
    k, m = len(labels), len(outputs)
    cost = prior[:, None] * (outputs - labels[:, None]) ** 2
    above = []
    for a in range(k):
        for b in range(k):
            if a != b:
                block = np.zeros((m, k, m))
                block[np.arange(m), a, np.arange(m)] = 1.0
                block[np.arange(m), b, np.arange(m)] = -math.exp(epsilon)
                above.append(block.reshape(m, k * m))
    equal = np.concatenate([np.kron(np.eye(k), np.ones(m)), np.kron(np.eye(k), outputs)])
    limits = np.concatenate(above)
    solved = linprog(
        cost.ravel(), limits, np.zeros(len(limits)), equal, np.concatenate([np.ones(k), labels]), method="highs"
    )
    assert solved.status == 0
    return solved.x.reshape(k, m), float(solved.fun)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_optimal_unbiased_randomizer_is_the_mechanism_unbiased(epsilon: float) -> None:
    domain, prior = Domain.parse("0:6"), np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1])
    channel = unbiased_channel(domain, prior, Epsilon.parse(str(epsilon)))
    matrix, outputs = np.asarray(channel.rows(0, 7), np.float64), channel.outputs
    assert np.max(np.abs(matrix @ outputs - domain.values)) < 1e-9
    assert channel.satisfies(Epsilon.parse(str(epsilon)))  # in exact arithmetic
    assert not channel.satisfies(Epsilon.parse(str(0.99 * epsilon)))
    reach = 3.0 * 1.5 / math.tanh(epsilon / 2.0)
    # the grid of the program has our outputs among its own, so it cannot be worse, and ours was free to choose
    grid = np.unique(np.concatenate([np.linspace(3.0 - reach, 3.0 + reach, 61), outputs]))
    rows, least = _literal(domain.values, grid, prior, epsilon)
    assert np.max(np.abs(rows @ grid - domain.values)) < 1e-7
    ours = float(prior @ np.sum(matrix * (outputs - domain.values[:, None]) ** 2, axis=1))
    assert ours == pytest.approx(least, rel=0.002)
    # a randomizer of another prior is farther off than that, so the comparison can fail
    other = unbiased_channel(domain, prior[::-1], Epsilon.parse(str(epsilon)))
    wrong = np.asarray(other.rows(0, 7), np.float64)
    theirs = float(prior @ np.sum(wrong * (other.outputs - domain.values[:, None]) ** 2, axis=1))
    assert theirs > ours


def test_the_accountant_of_noisy_gradients_is_exact() -> None:
    # Φ(−½) − e·Φ(−3/2), by Balle & Wang's formula at σ = 1
    assert noisy_gradients.delta_of(1.0, 1.0) == pytest.approx(0.12693673750664394, abs=1e-12)
    # the noise that their analytic Gaussian mechanism has at (1, 10⁻⁵)
    assert noisy_gradients.sigma_for(1.0, 1e-5) == pytest.approx(3.730631634816464, rel=1e-6)
    for epsilon, sigma in ((0.5, 3.0), (1.0, 2.0), (2.0, 1.0)):
        # ∫ max(0, p − e^ε·q) of two normal densities, one apart
        x = np.linspace(-12.0 * sigma, 12.0 * sigma + 1.0, 400_001)
        p, q = (np.exp(-((x - at) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) for at in (1.0, 0.0))
        told = float(np.sum(np.maximum(0.0, p - math.exp(epsilon) * q)) * (x[1] - x[0]))
        assert noisy_gradients.delta_of(epsilon, sigma) == pytest.approx(told, rel=1e-5)
        assert noisy_gradients.delta_of(epsilon, 0.99 * sigma) > 1.01 * told
        # steps at √steps times the noise cost what one release costs
        assert noisy_gradients.delta_of(epsilon, 5.0 * sigma, steps=25) == pytest.approx(told, rel=1e-5)
    sigma = noisy_gradients.sigma_for(1.0, 1e-6, math.sqrt(2.0))
    assert noisy_gradients.delta_of(1.0, sigma, math.sqrt(2.0)) <= 1e-6
    assert noisy_gradients.delta_of(1.0, 0.999 * sigma, math.sqrt(2.0)) > 1e-6


def test_the_poisson_model_of_noisy_gradients_has_no_gradient(coded: Coded) -> None:
    train, _ = one_hot(coded, crossed=False)
    domain = Domain.parse("0:4")
    labels = np.clip(np.random.default_rng(12).poisson(0.3, 500), 0, 4).astype(np.float64)
    t, _ = noisy_gradients.targets(domain, labels)
    found = dict(noisy_gradients.log_linear(domain, train, train.T @ t, train, (2.0,)))["log link, λ 2"]
    offset = math.log(labels.mean())

    def farthest(penalty: float) -> float:
        """Xᵀ(rate − y) + λw = 0 gives w, which must give the rates again."""
        return float(np.max(np.abs(np.exp(offset + train @ (train.T @ (labels - found)) / penalty) - found)))

    assert farthest(2.0) < 1e-3
    assert farthest(2.5) > 1e-2  # of another penalty it is not the minimum
    assert found.sum() == pytest.approx(labels.sum(), rel=0.1)


@pytest.fixture
def coded() -> Coded:
    rng = np.random.default_rng(3)
    sides = [
        pa.table(
            {
                "x": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1),
                "group": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
                "small": rng.integers(0, 4, n),
            }
        )
        for n in (500, 100)
    ]
    return Coded.of(*sides)


@pytest.mark.parametrize("crossed", [False, True])
def test_one_label_moves_what_is_released_by_the_sensitivity_at_most(coded: Coded, crossed: bool) -> None:
    train, test = one_hot(coded, crossed)
    assert np.asarray(train.multiply(train).sum(axis=1)).ravel() == pytest.approx(np.ones(500), abs=1e-12)
    assert test.shape[1] == train.shape[1]
    for domain, ends in ((Domain.parse("0:60"), (0.0, 60.0)), (Domain.from_names(("p", "q", "r")), (0.0, 2.0))):
        labels = np.full(500, ends[0])
        changed = labels.copy()
        changed[7] = ends[1]
        (before, sensitivity), (after, _) = (noisy_gradients.targets(domain, one) for one in (labels, changed))
        assert np.linalg.norm(train.T @ (after - before)) == pytest.approx(sensitivity, rel=1e-12)


def test_released_sums_have_the_noise_that_was_accounted_for(coded: Coded) -> None:
    train, _ = one_hot(coded, crossed=False)
    t, sensitivity = noisy_gradients.targets(Domain.parse("0:60"), np.full(500, 30.0))  # t = 0
    rng = np.random.default_rng(4)
    draws = np.concatenate([noisy_gradients.released(train, t, sensitivity, 1.0, rng).ravel() for _ in range(400)])
    wanted = noisy_gradients.sigma_for(1.0, noisy_gradients.DELTA)
    # the standard error of a standard deviation of N draws is σ/√(2N); five of them, once in 10⁶
    allowed = 5.0 / math.sqrt(2.0 * len(draws))
    assert abs(draws.std() / wanted - 1.0) < allowed
    assert abs(0.9 * draws.std() / wanted - 1.0) > allowed  # a tenth less noise is seen
    # shaped: as seen through A, all directions have the noise of the row that A makes longest
    dense = train.toarray()
    values, vectors = np.linalg.eigh(dense.T @ dense)
    a = vectors @ np.diag(1.0 / np.sqrt(np.maximum(values, 0.0) + 10.0)) @ vectors.T
    longest = float(np.max(np.linalg.norm(dense @ a, axis=1)))
    assert longest < 0.5  # so the noise is less than that of A alone at norm 1
    some = [noisy_gradients.released(train, t, sensitivity, 1.0, rng, 10.0) for _ in range(400)]
    seen = np.concatenate([(a @ one).ravel() for one in some])
    assert abs(seen.std() / (longest * wanted) - 1.0) < allowed
    assert abs(np.concatenate([one.ravel() for one in some]).std() / wanted - 1.0) > allowed


def test_noisy_gradients_without_noise_find_the_closed_form(coded: Coded) -> None:
    train, test = one_hot(coded, crossed=False)
    domain = Domain.parse("0:60")
    labels = np.clip(30.0 + 20.0 * np.asarray(train @ np.linspace(-1, 1, train.shape[1])), 0, 60)
    t, _ = noisy_gradients.targets(domain, labels)
    found = dict(noisy_gradients.models(domain, train, train.T @ t, test, (1.0, 10.0)))
    dense = train.toarray()
    for penalty in (1.0, 10.0):
        w = np.linalg.solve(dense.T @ dense + penalty * np.eye(dense.shape[1]), dense.T @ t)
        assert found[f"λ {penalty:g}"] == pytest.approx(30.0 + 60.0 * (test.toarray() @ w)[:, 0], abs=1e-2)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_minimum_over_noisy_gradients_has_no_gradient(coded: Coded, classes: int) -> None:
    train, _ = one_hot(coded, crossed=False)
    domain = Domain.parse("0:1") if classes == 2 else Domain.from_names(("p", "q", "r"))
    labels = np.random.default_rng(6).integers(0, classes, 500).astype(np.float64)
    t, _ = noisy_gradients.targets(domain, labels)
    found = dict(noisy_gradients.models(domain, train, train.T @ t, train, (2.0,)))["λ 2"]
    p = found.reshape(500, -1) - (0.5 if classes == 2 else 0.0)

    def farthest(penalty: float) -> float:
        """Xᵀ(p − t) + λw = 0 gives w, which must give p again."""
        scores = np.asarray(train @ (train.T @ (t - p))) / penalty
        odds = np.exp(scores)
        again = odds / (1.0 + odds) - 0.5 if classes == 2 else odds / odds.sum(axis=1, keepdims=True)
        return float(np.max(np.abs(again - p)))

    assert farthest(2.0) < 1e-4
    assert farthest(2.1) > 1e-3  # of another penalty it is not the minimum


def test_boosters_learn_and_say_which_setting_it_was(coded: Coded) -> None:
    labels = 10.0 * np.nan_to_num(coded.train[:, 2].astype(np.float64))
    truth = 10.0 * coded.test[:, 2].astype(np.float64)
    libraries = [boosters.xgboost] + ([boosters.lightgbm] if boosters.without_lightgbm() == "" else [])
    for library in libraries:
        best = Best(Domain.parse("0:30"), truth)
        for setting, predictions in library(coded, labels, boosters.QUICK_SIZES):
            best.see(setting, predictions)
        assert best.figures["mse"] < 0.05 * truth.var()
        rounds = {f"{boosters.QUICK_SIZES[0]}, {rounds} rounds" for rounds in boosters.ROUNDS[1:]}
        assert best.settings["mse"] in rounds


def test_figures_are_those_of_the_best_setting_each() -> None:
    best = Best(Domain.parse("0:1"), np.array([0.0, 0.0, 1.0, 1.0]))
    best.see("ranks", np.array([0.1, 0.2, 0.3, 0.4]))
    best.see("sure", np.array([0.0, 0.6, 0.5, 1.0]))
    assert best.figures["auc"] == 1.0
    assert best.settings == {"auc": "ranks", "log_loss": "sure"}
    classes = Domain.from_names(("p", "q", "r"))
    told = judge(classes, np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]), np.array([0.0, 1.0]))
    assert told == {"accuracy": 0.5, "log_loss": pytest.approx(math.log(8.0) / 2.0), "macro_auc": 0.5}
    numbers = judge(Domain.parse("0:10"), np.array([-5.0, 12.0]), np.array([0.0, 10.0]))
    assert numbers == {"mse": 0.0, "poisson": pytest.approx((5e-6 + 10.0 - 10.0 * math.log(10.0)) / 2.0)}
    assert judge(Domain.parse("-10:10"), np.array([1.0]), np.array([1.0])) == {"mse": 0.0}
    # means of 0 and less are floored by the best of three shares of the mean prediction, here 0.3 of 1
    counts = Best(Domain.parse("0:4"), np.array([0.0, 1.0]))
    counts.see("floored", np.array([2.0, -1.0]))
    assert counts.figures["poisson"] == pytest.approx((2.0 + 0.3 - math.log(0.3)) / 2.0)


def test_the_macro_auc_is_the_mean_of_the_services_own() -> None:
    rng = np.random.default_rng(3)
    predictions, truth = np.round(rng.random((200, 3)), 1), rng.integers(0, 3, 200).astype(float)  # with many ties
    own = [auc(predictions[:, at], (truth == at).astype(float), np.arange(200)).estimate for at in range(3)]
    assert macro_auc(predictions, truth) == pytest.approx(np.mean(own))
    assert macro_auc(np.eye(3)[truth.astype(int)], truth) == 1.0


def test_the_table_of_classes_shows_each_mechanism_beside_the_constant() -> None:
    settings = Settings(seeds=2, epsilons=("1",))
    wanted = list(table_classes.cells(settings))
    assert {cell.mechanism for cell in wanted} == set(table_classes.MECHANISMS)
    found: dict[Cell, Result] = {
        cell: {"ours": {"accuracy": 0.5 if cell.mechanism == "rr" else 0.7}, "constant_accuracy": 0.25}
        for cell in wanted
        if cell.mechanism != "auto"
    }
    (table,) = table_classes.tables(Results(found, settings))
    (row,) = table.rows
    shown = dict(zip(table.header, row, strict=True))
    assert (shown["figure"], shown["rr"], shown["subset-selection"]) == (
        "accuracy",
        "0.5000 ± 0.0000",
        "0.7000 ± 0.0000",
    )
    assert (shown["auto"], shown["constant"][:4]) == ("–", "0.25")
    assert not list(table_classes.cells(replace(settings, data=("bike",))))


def _results(settings: Settings) -> Iterator[tuple[Cell, Result]]:
    """Of every cell, those of further splits after those of the first."""
    first = dict(_figures(replace(settings, seeds=1)))
    yield from _figures(replace(settings, kept=first))


def _figures(settings: Settings) -> Iterator[tuple[Cell, Result]]:
    for cell in table_peers.cells(settings):
        if cell.learner.startswith(MESSAGE):
            worse = 20.0 * cell.seed
            yield cell, {"ours": {"mse": 100.0 + worse}, "xgboost": {"mse": 110.0 + worse}}
        elif cell.learner.startswith(NOISY):
            yield cell, {"mse": 50.0}
        elif cell.learner in (BLOCK_RR, RP_WITH_PRIOR):
            yield cell, {"mse": 130.0, "settings": {"mse": "σ 1, ℓ 1, part 0.1, 4"}}
        else:
            yield cell, {"mse": 150.0 if cell.capacity == 4.0 else 200.0}


def test_the_table_takes_a_peers_best_and_marks_the_best_of_one_message() -> None:
    settings = Settings(data=("bike",), seeds=2, epsilons=("1", INFINITE))
    found = dict(_results(settings))
    table, who = table_peers.tables(Results(found, settings))
    (row,) = table.rows
    shown = dict(zip(table.header, row, strict=True))
    assert shown["ours"] == "**110.0 ± 14.1**"
    assert shown["XGBoost, corrected labels"] == "120.0 ± 14.1"
    assert shown["RR-on-Bins"] == shown["RRWithPrior"] == shown["optimal unbiased"] == "150.0 ± 0.0"
    assert shown["RPWithPrior"] == shown["BlockRR"] == "130.0 ± 0.0"
    assert shown["noisy gradients"] == "50.00 ± 0.00"  # better, under another trust model
    assert shown["LP-MST"] == "–"
    assert [line[0] for line in who.rows] == table.header[3:]
    # a peer of which a setting is missing has no figure of that seed
    part = {cell: result for cell, result in found.items() if cell.capacity != 4.0 or cell.seed == 0}
    again = table_peers.figure(Results(part, settings), "rr-on-bins", "bike", "1", "mse")
    assert again.values == (150.0,)


def test_other_splits_take_the_settings_that_were_best_on_the_first() -> None:
    settings = Settings(data=("bike",), seeds=2, epsilons=("1",))
    assert {cell.seed for cell in table_peers.cells(settings) if not cell.learner.startswith((MESSAGE, NOISY))} == {0}
    kept = dict(_results(settings)) | {
        replace(cell, seed=0): {"mse": 130.0, "settings": {"mse": "δ 0.2, ε for the prior 0.1, 4"}}
        for cell in table_peers.cells(settings)
        if cell.learner in (BLOCK_RR, RP_WITH_PRIOR)
    }
    other = [cell for cell in table_peers.cells(replace(settings, kept=kept)) if cell.seed == 1]
    assert {cell.capacity for cell in other if cell.kind == "train"} == {4.0}
    near = options_text({NEAR: ["δ 0.2, ε for the prior 0.1, 4"]})
    assert {cell.options for cell in other if cell.learner in (BLOCK_RR, RP_WITH_PRIOR)} == {near}
    names = (
        "δ 0.19, ε for the prior 0.1, 4",
        "δ 0.19, ε for the prior 0.1, 1",
        "δ 0.4, ε for the prior 0.1, 4",
        "λ 0.2",
    )
    assert list(nearest(dict.fromkeys(names), json.loads(near)[NEAR])) == [names[0]]


def test_known_settings_are_the_only_ones_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[int] = []
    learn = peers_cell._regressed
    monkeypatch.setattr(peers_cell, "_regressed", lambda *given: (models.append(1), learn(*given))[1])
    cell = Cell("peers", "bike", 1, "2", mechanism=RP_WITH_PRIOR, learner=RP_WITH_PRIOR, rows=500)
    near = "δ 97.7, ε for the prior 0.2, 0.25"
    told = peers_cell.peers(replace(cell, options=options_text({NEAR: [near]})))
    assert len(models) == 1
    assert told["settings"]["mse"].endswith(", 0.25")


def test_the_picture_has_a_line_for_every_method_of_one_message(tmp_path: Path) -> None:
    settings = Settings(data=("retail",), seeds=2)
    assert set(figures.IN_FIELD) == {peer for peer, one in table_peers.PEERS.items() if one.one_message}
    (without,) = {replace(cell, seed=0) for cell in figures.cells(settings, ["peers"])}
    assert (without.mechanism, without.epsilon, without.learner) == ("none", INFINITE, "full")
    found = dict(_results(settings)) | {cell: {"mse": 40.0} for cell in figures.cells(settings, ["peers"])}
    (drawn,) = figures.draw(Results(found, settings), ["peers"], tmp_path)
    assert drawn[0] == "peers-retail.png"
    assert (tmp_path / drawn[0]).read_bytes().startswith(b"\x89PNG")
    assert not list(figures.draw(Results({}, settings), ["peers"], tmp_path))
    # names do not overlap, keep their order, and stay where there is room
    places = figures.places_of(np.array([0.1, 0.5, 0.5, 0.51, 0.9]))
    assert np.diff(places).min() >= figures.LABEL_GAP - 1e-9
    assert places[[0, 4]] == pytest.approx([0.1, 0.9])
    assert places[1:4].mean() == pytest.approx(np.mean([0.5, 0.5, 0.51]))


def test_every_peer_is_asked_for_its_own_tasks_only() -> None:
    settings = Settings(seeds=1)
    wanted = {
        data: {peer for peer in table_peers.PEERS if table_peers.cells_of(peer, data, "1", settings)}
        for data in ("bike", "claims", INCOME, EDUCATION)
    }
    every = set(table_peers.PEERS)
    assert wanted["bike"] == wanted["claims"] == every - {LP_MST}
    assert wanted[INCOME] == every - {RP_WITH_PRIOR}
    assert wanted[EDUCATION] >= {"ours", "rr-with-prior", BLOCK_RR, LP_MST, NOISY}
    assert not wanted[EDUCATION] & {"rr-on-bins", "unbiased", RP_WITH_PRIOR}
    assert table_peers.FIGURES["claims"] == ("poisson",)
    assert {cell.data for cell in table_peers.cells(replace(settings, data=("bike",)))} == {"bike"}
