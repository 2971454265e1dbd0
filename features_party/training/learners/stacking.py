"""Weights of models and numbers of trees, by out-of-fold error on privatized labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

SLIGHT = 0.01  # of the error
TOLD = 3.0
FIRM = 1e4  # penalty on sums other than 1, relative to errors
FAINT = 1e-4  # of the labels' standard deviation


def stacked(predictions: FloatArray, constants: FloatArray, labels: FloatArray, weights: FloatArray) -> FloatArray:
    """Compute shrunk weights float64[m] ≥ 0, at most 1 in sum, of members float64[n, m] around `constants`, by squared
    error.

    Every weight gains about the residual variance σ² by chance, so all shrink by 1 − (weights + 1)·σ²/gain (James and
    Stein 1961), to 0 if labels do not distinguish the models from the constant. Members are already shrunk to the mean;
    stretching them would fit chance. If the sum would exceed 1, the best weights with a sum of 1 are taken: dividing
    instead would let a member that hardly moves leave nothing to the others.
    """
    from scipy.optimize import nnls

    parts = predictions - constants[:, None]
    gram, along = (weights[:, None] * parts).T @ parts, parts.T @ (weights * (labels - constants))
    scale = np.sqrt(np.diag(gram))
    # a member that hardly moves would get a huge weight
    alive = np.flatnonzero(scale > FAINT * np.sqrt(weights @ (labels - constants) ** 2))
    solution = np.zeros(len(scale))
    if alive.size:
        unit = scale[alive]
        values, vectors = np.linalg.eigh(gram[np.ix_(alive, alive)] / np.outer(unit, unit))
        values = np.maximum(values, 1e-9)
        root = (vectors * np.sqrt(values)).T
        target = (vectors / np.sqrt(values)).T @ (along[alive] / unit)
        solved, _ = nnls(root, target)
        solution[alive] = solved / unit
        square = float(weights @ (labels - constants) ** 2)
        gain = float(2.0 * solution @ along - solution @ gram @ solution)
        chance = (int(np.count_nonzero(solution)) + 1) * (square - gain) / len(labels)
        shrunk = max(0.0, 1.0 - chance / gain) if gain > 0.0 else 0.0
        if shrunk * float(solution.sum()) > 1.0:
            smallest = float(unit.min())
            sums = np.append(root, [FIRM * smallest / unit], axis=0)
            solved, _ = nnls(sums, np.append(target, FIRM * smallest))
            solution[alive], shrunk = solved / unit, 1.0
        solution *= shrunk / max(1.0, shrunk * float(solution.sum()))
    return solution


def worthwhile(
    parts: Mapping[str, Sequence[FloatArray]],
    needs: Mapping[str, str],
    constants: FloatArray,
    labels: FloatArray,
    weights: FloatArray,
    noise: float,
) -> tuple[set[str], bool]:
    """Return the groups of members that the weighted sum needs, and whether the labels can decide this.

    Groups are left out one by one, the cheapest first, while the error on true labels is surely (by a standard error)
    less than SLIGHT above that of all. None is left out if labels are too few or too noisy to resolve SLIGHT: the gain
    of a weight by chance, the variance of a label over the rows, must be smaller even at TOLD standard errors.

    `parts` are predictions float64[n] by group; a group that another one `needs` stays as long as that one. `noise` is
    the variance that the mechanism adds to the labels.
    """

    def errors(groups: set[str]) -> FloatArray:
        table = np.stack([one for group in sorted(groups) for one in parts[group]], axis=1)
        prediction = constants + (table - constants[:, None]) @ stacked(table, constants, labels, weights)
        return np.asarray(weights * (labels - prediction) ** 2, np.float64)

    remaining = {group for group, members in parts.items() if members}
    if not remaining:
        return remaining, False
    all_of_them = errors(remaining)
    slight = SLIGHT * max(float(all_of_them.mean()) - noise, 0.0)
    if TOLD**2 * float(all_of_them.mean()) / len(labels) > slight:
        return remaining, False
    while len(remaining) > 1:
        bases = {needs[group] for group in remaining if group in needs}
        more = {group: errors(remaining - {group}) - all_of_them for group in sorted(remaining - bases)}
        slightest = min(more, key=lambda group: float(more[group].mean()))
        if more[slightest].mean() + more[slightest].std() / np.sqrt(len(labels)) > slight:
            break
        remaining.remove(slightest)
    return remaining, True


def best_rounds(
    out: dict[tuple[str, int], FloatArray], constants: FloatArray, labels: FloatArray, w: FloatArray, ruled: int
) -> dict[str, int]:
    """Choose the number of trees by member; 0 for members without trees.

    It is the rule's, unless another number's out-of-fold error is lower by more than the standard error of the
    difference; then that of the least error.
    """
    errors: dict[str, dict[int, FloatArray]] = {}
    for (name, rounds), predictions in out.items():
        filled = np.where(np.isfinite(predictions), predictions, constants)
        errors.setdefault(name, {})[rounds] = w * (labels - filled) ** 2
    best = {}
    for name, by in errors.items():
        usual = max(ruled, 1) if max(ruled, 1) in by else 0
        gains = {rounds: by[usual] - one for rounds, one in by.items()}
        clear = {r: g.mean() for r, g in gains.items() if g.mean() > g.std() / np.sqrt(len(labels))}
        best[name] = max(clear, key=lambda r: (clear[r], -r)) if clear else usual
    return best
