"""Strongly convex learners whose predictions one label moves by a bound that is computed, not estimated.

Features x have whole coordinates in units of 1/UNIT and squared norm at most B²; a label y lies in [0, 1]. With F(w) =
(1/n) Σ ℓ(w·x_i, y_i) + (λ/2)‖w‖² and λ = r·B² (r: the regularisation, without a unit), two minimizers w, w′ for labels
that differ in example i alone satisfy λ‖w − w′‖ ≤ ‖∇F′(w)‖ = |∂ℓ(·, y_i) − ∂ℓ(·, y_i′)|·‖x_i‖/n ≤ B/n: for the squared
loss the derivative moves by |y_i − y_i′| ≤ 1 for any w, and for the logistic loss of y in {0, 1} by 1. So a prediction
w·x moves by at most B²/(λn) = 1/(r·n). This is Theorem 4.9 of Dwork & Feldman 2018 (after Shalev-Shwartz et al. 2010)
for neighbours that differ in a label; their 4L²/(λn), for any other example, is larger and bounds w as well.

It holds for *labels only*: features are public inputs, as everywhere in label DP. The solvers' remaining gaps are
counted:

- `ridge`: w = M·b with b = Xᵀy/n in whole numbers and M a rounded inverse, of which ‖I − A·M‖ ≤ 2⁻²⁰ is *proved* from
  the features alone in whole numbers, A = XᵀX/n + λI. Then ‖M‖ ≤ (1 + 2⁻²⁰)/λ, and since w is linear in y, a prediction
  moves by at most ‖x‖‖M‖‖x_i‖/n ≤ (1 + 2⁻²⁰)/(r·n): no gap of a solver remains.
- `logistic`: gradient descent in floats, of a number of steps that is fixed beforehand so that it must end within τ of
  the minimizer, rounding included (Nesterov 2004, Theorem 2.1.15, with inexact gradients). Privacy does not depend on
  that: at the final weights ‖∇F‖ ≤ λτ is checked, a bound of all rounding added, and F is λ-strongly convex, so
  they are within τ of the minimizer for any earlier steps. The bound is 1/(r·n) + 2Bτ. The bound of rounding assumes
  two things that are not checked: that float operations are those of IEEE 754, and that a matrix product sums the
  products of rows and columns, in any order, fused or not. The error of `exponentials.logistic` is proved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from label_dp.errors import EpsilonNotProved, InvalidMechanism
from labels_party.companions.mechanisms.private_prediction import GRID, UNIT
from labels_party.mechanisms.exponentials import logistic

IntArray = npt.NDArray[np.int64]
INVERSE_BITS = 60  # the rounded inverse is a multiple of 2⁻⁶⁰
REGULARISATION_BITS = 30
GAP = Fraction(1, 1 << 20)
SHARE = 200  # τ is so small that both solvers' gaps together are a hundredth of the bound
ROUNDING = Fraction(1, 1 << 52)
BLOCK = 1 << 12  # rows of a partial sum: its rounding grows with a block and the number of blocks
MOST_COLUMNS = 256
MOST_STEPS = 20_000


def regularisation_for(n: int, epsilon: Fraction, share: Fraction = Fraction(7, 10)) -> Fraction:
    """Return `share`/√(nε), between 2⁻¹¹ and 1, up to a multiple of 2⁻³⁰: the order of Corollary 4.11 for ε up to 1.

    The cost of shrinking grows with r², that of noise with 1/(r·n·ε)²; 0.7 balances them if features explain much of
    the label. Probabilities have a quarter of the noise, so half of it is better there.
    """
    unit = 1 << REGULARISATION_BITS
    units = math.ceil(float(share) / math.sqrt(n * float(epsilon)) * unit)
    return Fraction(min(max(units, unit >> 11), unit), unit)


def check_regularisation(regularisation: Fraction) -> None:
    """Check the regularisation. Raises InvalidMechanism."""
    if not Fraction(1, 1 << 20) <= regularisation <= 1024:
        raise InvalidMechanism("The regularisation lies between 2⁻²⁰ and 1024.")
    if (regularisation * (1 << REGULARISATION_BITS)).denominator != 1:
        raise InvalidMechanism("The regularisation must be a multiple of 2⁻³⁰.")


def stability(n: int, regularisation: Fraction) -> Fraction:
    """Return 1/(r·n): the largest move of a prediction of the exact minimizer by one label of n, in shares of the
    range."""
    return 1 / (regularisation * n)


# --- ridge ---------------------------------------------------------------------------------------------------


def ridge_sensitivity(n: int, regularisation: Fraction) -> int:
    """Return the largest move of `ridge_position` by one label, in steps of 1/GRID: (1 + 2⁻²⁰)/(r·n), rounded up.

    Rounding down to a step moves two numbers that differ by s steps to numbers that differ by at most ⌈s⌉.
    """
    return math.ceil((1 + GAP) * stability(n, regularisation) * GRID)


@dataclass(frozen=True, eq=False)
class Ridge:
    """Weights as whole numbers: a prediction is Σ x_j·`weights`_j / `scale` shares of the range, above `centre`."""

    weights: tuple[int, ...]
    scale: int
    centre: int


def fit_ridge(x: IntArray, labels: IntArray, squared_norm: int, regularisation: Fraction, centre: int) -> Ridge:
    """Fit the ridge regression of labels int64[n] (0 … GRID) less `centre` on x int64[n, D], in exact arithmetic.

    Precondition: every |x| ≤ UNIT and every row's squared norm ≤ `squared_norm`·UNIT². O(nD² + D³); its time and
    refusals depend on x alone. Raises InvalidMechanism.
    """
    n, width = _checked(x, squared_norm, regularisation)
    gram, moment = np.zeros((width, width), np.int64), np.zeros(width, np.int64)
    for start in range(0, n, BLOCK):
        rows = x[start : start + BLOCK].astype(np.float64)
        gram += (rows.T @ rows).astype(np.int64)  # exact: whole numbers below 2⁵³ in every partial sum
        moment += (rows.T @ (labels[start : start + BLOCK] - centre).astype(np.float64)).astype(np.int64)
    # everything times n·UNIT²·2³⁰: A becomes a whole matrix
    unit, bits = UNIT * UNIT, 1 << REGULARISATION_BITS
    whole = gram.astype(object) * bits
    whole[np.diag_indices(width)] += int(regularisation * bits) * squared_norm * n * unit
    inverse = np.linalg.inv(gram / (n * unit) + float(regularisation * squared_norm) * np.eye(width))
    rounded = np.vectorize(lambda v: round(Fraction(v) * (1 << INVERSE_BITS)), otypes=[object])(
        (inverse + inverse.T) / 2
    )
    _prove(whole, rounded, (n * unit * bits) << INVERSE_BITS)
    weights = rounded @ moment.astype(object)  # M·Xᵀy, times 2⁶⁰·UNIT·GRID
    return Ridge(tuple(int(w) for w in weights), ridge_scale(n), centre)


def ridge_scale(n: int) -> int:
    """Return the divisor of the whole weights of n examples."""
    return (n * UNIT * GRID * UNIT) << INVERSE_BITS


def _prove(whole: npt.NDArray[np.object_], inverse: npt.NDArray[np.object_], one: int) -> None:
    """Prove ‖I − A·M‖ ≤ 2⁻²⁰ in the Frobenius norm, so in the spectral one; independent of labels."""
    error = whole @ inverse
    error[np.diag_indices(len(error))] -= one
    if int((error * error).sum()) * GAP.denominator**2 > one * one:
        raise InvalidMechanism(
            "The regularisation is too small for these features to be solved exactly; take a larger one."
        )


def ridge_position(model: Ridge, x: IntArray) -> int:
    """Predict for x int64[D] in steps of 1/GRID, rounded down exactly; the result may lie outside 0 … GRID."""
    total = sum(int(a) * w for a, w in zip(x.tolist(), model.weights, strict=True))
    return model.centre + GRID * total // model.scale


# --- logistic ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Schedule of gradient descent and its largest final distance from the minimizer: a function of public numbers."""

    steps: int
    size: float
    distance: Fraction  # τ


def plan_descent(n: int, width: int, squared_norm: int, regularisation: Fraction) -> Descent:
    """Plan the steps after which descent from 0 has ‖∇F‖ ≤ λτ, so is within τ = 1/(200·B·r·n) of the minimizer.

    F is λ-strongly convex and L-smooth, L = λ + B²/4, so a step of size 2/(L + λ) brings it nearer by (κ − 1)/(κ + 1),
    κ = L/λ = 1 + 1/(4r); ‖w*‖ ≤ ‖∇F(0)‖/λ ≤ B/(2λ); gradients with an error of at most e leave e/λ; and ‖∇F‖ is at most
    L times the distance, which therefore has to be τ/κ, half of it for rounding. Raises InvalidMechanism if rounding
    alone could exceed that, or too many steps were needed.
    """
    check_regularisation(regularisation)
    root = Fraction(math.isqrt(squared_norm << 40) + 1, 1 << 20)  # B, from above
    strong = regularisation * squared_norm
    distance = 1 / (SHARE * root * regularisation * n)
    error = gradient_error(n, width, squared_norm, regularisation)
    kappa = 1 + 1 / (4 * regularisation)
    if 2 * error * (kappa + 4) > strong * distance:
        raise InvalidMechanism(
            "With so many examples and so small a regularisation a logistic regression cannot be certified; take a "
            "larger regularisation, or ridge."
        )
    contraction = -math.log1p(-2 / (float(kappa) + 1))
    start = root / (2 * strong)
    steps = math.ceil(math.log(float(2 * kappa * start / distance)) / contraction * 1.001) + 1
    if steps > MOST_STEPS:
        raise InvalidMechanism(
            "The regularisation is too small for a certified logistic regression; take a larger one."
        )
    return Descent(steps, float(2 / (2 * strong + Fraction(squared_norm, 4))), distance)


def gradient_error(n: int, width: int, squared_norm: int, regularisation: Fraction) -> Fraction:
    """Bound the move of a computed gradient of F, and of the step made with it, by rounding to 64-bit floats.

    Forward bounds of dot products (Higham 2002, §3.1) with ‖w‖ ≤ 2/(rB), the logistic function within 16·2⁻⁵² (it is
    within 8 of them); ‖x‖ ≤ B makes every one of the D + n/BLOCK + BLOCK additions cost at most B·2⁻⁵² per unit.
    """
    root = Fraction(math.isqrt(squared_norm << 40) + 1, 1 << 20)
    sums = BLOCK + -(-n // BLOCK) + 8
    residual = (width + 8) / (2 * regularisation) + 16
    return ROUNDING * root * (residual + sums + 8 * (1 + regularisation))


def logistic_sensitivity(n: int, width: int, squared_norm: int, regularisation: Fraction) -> int:
    """Return the largest move of `logistic_position` by one label, in steps of 1/GRID, rounded up.

    The score moves by 1/(r·n) + 2Bτ, the logistic function is ¼-Lipschitz, and evaluating it in floats is within (D +
    8)·2⁻⁴⁹/r + 2⁻⁴⁷, at both neighbours.
    """
    root = Fraction(math.isqrt(squared_norm << 40) + 1, 1 << 20)
    distance = plan_descent(n, width, squared_norm, regularisation).distance
    score = stability(n, regularisation) + 2 * root * distance + (width + 8) * 8 * ROUNDING / regularisation
    return math.ceil((score / 4 + 32 * ROUNDING) * GRID)


def fit_logistic(
    x: IntArray, labels: npt.NDArray[np.bool_], squared_norm: int, regularisation: Fraction
) -> npt.NDArray[np.float64]:
    """Fit weights float64[D] within τ of the minimizer of F for the logistic loss of labels bool[n] on x int64[n, D].

    Precondition as `fit_ridge`. O(steps·nD), for any labels. Raises InvalidMechanism, EpsilonNotProved.
    """
    n, width = _checked(x, squared_norm, regularisation)
    plan = plan_descent(n, width, squared_norm, regularisation)
    strong = float(regularisation * squared_norm)
    rows = x.astype(np.float64) / UNIT  # exact
    targets = labels.astype(np.float64)
    weights = np.zeros(width)
    for _ in range(plan.steps):
        weights = weights - plan.size * _gradient(rows, targets, weights, strong)
    _certify(_gradient(rows, targets, weights, strong), weights, n, squared_norm, regularisation)
    return weights


def _certify(
    gradient: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    n: int,
    squared_norm: int,
    regularisation: Fraction,
) -> None:
    """Check that descent ended with ‖∇F‖ ≤ λτ and ‖w‖ ≤ 2/(rB), which `gradient_error` assumes.

    In exact arithmetic from the computed gradient on. By the theorem a failure is impossible for any labels: a fault of
    the machine or of this code. Raises EpsilonNotProved.
    """
    width = len(weights)
    most = regularisation * squared_norm * plan_descent(n, width, squared_norm, regularisation).distance
    most -= 2 * gradient_error(n, width, squared_norm, regularisation)
    finite = bool(np.isfinite(gradient).all() and np.isfinite(weights).all())
    if (
        not finite
        or most < 0
        or _squared(gradient) > most * most
        or _squared(weights) * regularisation**2 * squared_norm > 4
    ):
        raise EpsilonNotProved("Gradient descent did not end where it must, so this predictor was not made.")


def _squared(vector: npt.NDArray[np.float64]) -> Fraction:
    """Compute ‖vector‖², exact."""
    return sum((Fraction(value) ** 2 for value in vector.tolist()), Fraction(0))


def _gradient(
    rows: npt.NDArray[np.float64], targets: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], strong: float
) -> npt.NDArray[np.float64]:
    total = np.zeros(len(weights))
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        total += part.T @ (logistic(part @ weights) - targets[start : start + BLOCK])
    return total / len(rows) + strong * weights


def logistic_position(weights: npt.NDArray[np.float64], x: IntArray) -> int:
    """Predict the probability for x int64[D] in steps of 1/GRID, rounded down."""
    score = np.array([float(np.dot(x.astype(np.float64) / UNIT, weights))])
    return math.floor(float(logistic(score)[0]) * GRID)


def _checked(x: IntArray, squared_norm: int, regularisation: Fraction) -> tuple[int, int]:
    """Return the shape of x after checking the preconditions, without which no bound holds."""
    check_regularisation(regularisation)
    n, width = x.shape
    if n < 1 or not 1 <= width <= MOST_COLUMNS:
        raise InvalidMechanism(f"A stable learner needs an example and between 1 and {MOST_COLUMNS} columns.")
    if int(np.abs(x).max()) > UNIT or int((x.astype(np.int64) ** 2).sum(1).max()) > squared_norm * UNIT * UNIT:
        raise InvalidMechanism("A row of features is longer than the bound that the stability follows from.")
    return n, width
