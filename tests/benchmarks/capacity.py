"""`python -m tests.benchmarks.capacity`: what a day of so many labels costs, fitted to the kept lines of `make bench`.

A stage takes a + b·n seconds of CPU; a and b are the ones of least relative error that are not negative. What the fit
says beyond the largest measured size is an extrapolation, and the table marks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.benchmarks.__main__ import KEPT
from tests.benchmarks.lines import Line, read

PER_DAY = tuple(10**e for e in range(6, 12))
CORE_HOUR, TERABYTE_MONTH = 0.04, 23.0  # dollars, rounded list prices of rented machines and object storage
STAGES = {
    "upload": "an upload of Arrow streams",
    "privatize": "seal, draw and signed message",
    "verify": "the publisher's check of the message",
    "join": "join with 10 features",
    "train": "the default model, 10 features",
}
STORED = {
    "sealed labels": "labels at rest, with digests of ids",
    "privatize": "the message",
    "join": "the joined table",
}


@dataclass(frozen=True)
class Fit:
    """Seconds of CPU: `fixed` of a run, `each` of a row; `error` is the largest relative one, up to `largest` rows."""

    fixed: float
    each: float
    error: float
    largest: int

    def seconds(self, n: int) -> float:
        return self.fixed + self.each * n


def fit(sizes: Iterable[int], seconds: Iterable[float]) -> Fit:
    """Least squares of relative errors, neither coefficient negative. Where more rows took less, as with a model that
    leaves its dearest members out, in proportion to the largest."""
    n, t = np.array(list(sizes), float), np.array(list(seconds), float)
    columns = np.stack([1 / t, n / t], axis=1)
    fixed, each = _positive(columns)
    if not each:
        fixed, each = 0.0, float(t[n.argmax()] / n.max())
    told = np.abs((fixed + each * n) / t - 1)
    return Fit(fixed, each, float(told.max()), int(n.max()))


def _positive(columns: npt.NDArray[np.float64]) -> tuple[float, float]:
    ones = np.ones(len(columns))
    fixed, each = np.linalg.lstsq(columns, ones, rcond=None)[0]
    alone = [float(column.sum() / (column * column).sum()) for column in columns.T]
    if fixed < 0:
        return 0.0, alone[1]
    return (float(fixed), float(each)) if each >= 0 else (alone[0], 0.0)


def fits(found: list[Line]) -> dict[str, Fit]:
    """Of every stage that was measured."""
    made = {}
    for stage in STAGES:
        series = [(line.size, line.figure) for line in found if line.name == f"{stage}, CPU" and line.size]
        made[stage] = fit(*zip(*series, strict=True))
    return made


def report(found: list[Line]) -> str:
    """Markdown: the fit of every stage, and what a day costs."""
    made = fits(found)
    text = [_row("stage", "what", "CPU of a run, s", "of a label, µs", "largest error of the fit", "measured up to")]
    text.append("|---" * 6 + "|")
    for stage, f in made.items():
        error, largest = f"{f.error:.0%}", f"{f.largest:,}"
        text.append(_row(stage, STAGES[stage], f"{f.fixed:.2f}", f"{1e6 * f.each:.2f}", error, largest))
    text += ["", "| stored | bytes a label |", "|---|---|"]
    stored = {stage: _last(found, f"{stage}, stored") for stage in STORED}
    text += [f"| {STORED[stage]} | {size:.1f} |" for stage, size in stored.items()]
    text += [
        "",
        f"A core hour is taken as ${CORE_HOUR:g}, a terabyte stored for a month as ${TERABYTE_MONTH:g}.",
        "",
        _row("labels a day", *(f"{stage}, core hours" for stage in made), "stored a day, GB", "dollars a day"),
        "|---" * (len(made) + 3) + "|",
    ]
    for n in PER_DAY:
        hours = {stage: f.seconds(n) / 3600 for stage, f in made.items()}
        gigabytes = sum(stored.values()) * n / 1e9
        dollars = CORE_HOUR * sum(hours.values()) + TERABYTE_MONTH * gigabytes / 1e3
        shown = [f"{_short(h)}{'' if n <= made[stage].largest else ' *'}" for stage, h in hours.items()]
        text.append(_row(_power(n), *shown, _short(gigabytes), _short(dollars)))
    return "\n".join([*text, "", "\\* beyond the sizes that were measured"])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _last(found: list[Line], name: str) -> float:
    return max((line.size or 0, line.figure) for line in found if line.name == name)[1]


def _power(n: int) -> str:
    return "10" + str(len(str(n)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    print(report(read(KEPT)["growth"]))
