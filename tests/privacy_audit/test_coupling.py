"""ε of whole releases, exactly: those of neighbouring label vectors, coupled by what was paid for.

Every mechanism of the catalogue and `auto`, with every option and prior, with bounds bought and without
(`tests.support.coupling` says how). The bugs planted below are of the kinds that this must catch.
`tests/soak/soak_exactness.py` takes random domains, ε and neighbours for longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_dp.domain import Domain
from label_dp.errors import EpsilonNotProved, InvalidMechanism
from label_dp.privacy import Epsilon
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms import quantiles
from labels_party.mechanisms.auto import AUTO
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.message import engine as engine_module
from labels_party.message.engine import LocalEngine
from tests.support.asked import release_wish
from tests.support.coupling import REFUSED, Pair, coupled
from tests.support.exact_matrix import CASES, uncovered

Patch = pytest.MonkeyPatch
ALL = [*CASES, (AUTO, {})]
BOUGHT: list[dict[str, Any]] = [
    {},
    {"clip_quantiles": ("0.9",), "clip_epsilon": Epsilon.parse("0.5")},
    {"clip_quantiles": ("0.1", "0.95"), "clip_epsilon": Epsilon.parse("0.7")},
]
ESTIMATE = {"prior": "estimate", "prior_epsilon": "0.3"}
DOMAIN = Domain.parse("0:12")
LABELS = (3, 3, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 5, 6, 7, 9, 9, 12)


def pair(name: str, options: Any, place: int = 0, **request: Any) -> Pair:
    """The example at `place` says 12 less its label in the other world: a cell, the mean, or the maximum moves."""
    asked = release_wish(Epsilon.parse("2"), name, options=dict(options), **(ESTIMATE | request))
    other = (*LABELS[:place], 12 - LABELS[place], *LABELS[place + 1 :])
    return Pair(DOMAIN, LABELS, other, asked, seed=place)


def fits(options: Any, request: dict[str, Any]) -> bool:
    """Ends of one bit are given or bought, not both."""
    return not ("clip_quantiles" in request and options.get("clip", "auto") != "auto")


def test_every_mechanism_and_option_is_tried() -> None:
    assert uncovered() == []
    assert {name for name, _ in ALL} == {*MECHANISMS, AUTO}


@pytest.mark.parametrize("method", ["project", "clip"])
@pytest.mark.parametrize(("name", "options"), ALL)
def test_a_release_depends_on_labels_through_what_was_paid_for_alone(
    name: str, options: Any, method: str, tmp_path: Path
) -> None:
    for (i, bought), place in itertools.product(enumerate(BOUGHT), (0, len(LABELS) - 1)):
        if fits(options, bought):
            found = coupled(pair(name, options, place, prior_method=method, **bought), tmp_path / f"{i}-{place}")
            assert found == [], bought


@pytest.mark.parametrize(("name", "options"), ALL)
def test_so_it_does_with_every_other_prior(name: str, options: Any, tmp_path: Path) -> None:
    given = np.arange(1.0, 14.0) / 91
    priors: list[dict[str, Any]] = [
        {"prior_epsilon": "theorem7"},
        {"prior": "uniform"},
        {"prior": None, "given_prior": given},
        {"prior": None, "given_prior": given, "carried_from": "rel_1"},
    ]
    for i, prior in enumerate(priors):
        bought = BOUGHT[-1] if fits(options, BOUGHT[-1]) else {}
        assert coupled(pair(name, options, **prior, **bought), tmp_path / str(i)) == [], prior


# --- planted bugs --------------------------------------------------------------------------------------------


def counts_of(patch: Patch) -> list[Any]:
    """The raw counts that the engine last read, for bugs to use."""
    seen: list[Any] = []
    read = LocalEngine.histogram

    def reading(*about: Any) -> Any:
        seen[:] = [read(*about)]
        return seen[0]

    patch.setattr(LocalEngine, "histogram", reading)
    return seen


def resolving(patch: Patch, change: Callable[[Any, Any, tuple[Any, ...]], Any]) -> None:
    """Have `change(resolve, raw counts, arguments)` in place of `resolve`."""
    counts, resolve = counts_of(patch), engine_module.resolve
    patch.setattr(engine_module, "resolve", lambda *about: change(resolve, counts[0], about))


def normalised_by_a_raw_count(patch: Patch) -> None:
    estimate = prior_module.estimate_prior

    def tilted(counts: Any, *about: Any) -> Any:
        prior = estimate(counts, *about)
        prior[-1] += 1e-12 * counts[0]
        return prior / prior.sum()

    patch.setattr(engine_module, "estimate_prior", tilted)


def a_prior_without_noise(patch: Patch) -> None:
    patch.setattr(engine_module, "estimate_prior", lambda counts, *_: (counts + 1.0) / (counts + 1.0).sum())


def chosen_by_the_raw_histogram(patch: Patch) -> None:
    def raw(resolve: Any, counts: Any, about: Any) -> Any:
        plan, domain, _, n = about
        return resolve(plan, domain, (counts + 1e-9) / (counts + 1e-9).sum(), n)

    resolving(patch, raw)


def a_reason_with_a_raw_figure(patch: Patch) -> None:
    def telling(resolve: Any, counts: Any, about: Any) -> Any:
        found, mean = resolve(*about), np.arange(counts.size) @ counts / counts.sum()
        return replace(found, why=f"{found.why}; the mean is {mean:.3f}")

    resolving(patch, telling)


def a_solver_that_fails_by_raw_labels(patch: Patch) -> None:
    def failing(resolve: Any, counts: Any, about: Any) -> Any:
        if counts[0] % 2 == 0:
            raise InvalidMechanism("The solver found no randomizer for these labels at this ε.")
        return resolve(*about)

    resolving(patch, failing)


def clipped_at_the_raw_maximum(patch: Patch) -> None:
    buy = engine_module.buy

    def read_off(counts: Any, *about: Any) -> Any:
        return buy(counts, *about)[0], int(np.flatnonzero(counts)[-1])

    patch.setattr(engine_module, "buy", read_off)


def bounds_at_twice_the_rate(patch: Patch) -> None:
    rate_of = quantiles.rate_of
    patch.setattr(quantiles, "rate_of", lambda *about: 2 * rate_of(*about))


def a_scale_of_one_over_epsilon(patch: Patch) -> None:
    patch.setattr(prior_module, "SENSITIVITY", 1)


def a_scale_for_the_whole_epsilon(patch: Patch) -> None:
    estimate, whole = prior_module.estimate_prior, Epsilon.parse("2")
    patch.setattr(engine_module, "estimate_prior", lambda counts, _, *about: estimate(counts, whole, *about))


def cells_by_the_labels(patch: Patch) -> None:
    estimate = prior_module.estimate_prior

    def merged(counts: Any, epsilon: Any, cells: Any, method: Any) -> Any:
        return estimate(counts, epsilon, cells if counts[0] % 2 else cells[[0, *range(2, cells.size)]], method)

    patch.setattr(engine_module, "estimate_prior", merged)


def labels_read_once_more(patch: Patch) -> None:
    draw = LocalEngine._bought

    def looking(self: LocalEngine, job: Any) -> Any:
        self.histogram(job, np.zeros(1, np.int64), "looking", 0.1)
        return draw(self, job)

    patch.setattr(LocalEngine, "_bought", looking)


def a_prior_file_of_the_labels(patch: Patch) -> None:
    counts, write = counts_of(patch), engine_module.write_prior

    def written(path: Any, values: Any, _: Any) -> int:
        return write(path, values, counts[0] / counts[0].sum())

    patch.setattr(engine_module, "write_prior", written)


BUGS: list[tuple[Callable[[Patch], None], str]] = [
    (normalised_by_a_raw_count, "prior.parquet differs"),
    (a_prior_without_noise, "a prior without noise"),
    (chosen_by_the_raw_histogram, "manifest differs"),
    (a_reason_with_a_raw_figure, "manifest differs"),
    (a_solver_that_fails_by_raw_labels, "refusal differs"),
    (clipped_at_the_raw_maximum, "manifest differs"),
    (bounds_at_twice_the_rate, "bounds cost more than ε_clip"),
    (a_scale_of_one_over_epsilon, "the noise has not the scale 2/ε_prior"),
    (a_scale_for_the_whole_epsilon, "the noise has not the scale 2/ε_prior"),
    (cells_by_the_labels, "prior.parquet differs"),
    (labels_read_once_more, "labels are read without being paid for"),
    (a_prior_file_of_the_labels, "prior.parquet differs"),
]


WITH_BUGS = ["rr-on-bins", "balanced", AUTO]


def worst(name: str) -> list[Pair]:
    """Neighbours that differ in the maximum; and two labels whose median moves through nearly all of the domain, so
    that bounds cost nearly what is paid for them."""
    last = len(LABELS) - 1
    median = pair(name, {}, clip_quantiles=("0.5",), clip_epsilon=Epsilon.parse("1.5"))
    return [pair(name, {}, last), pair(name, {}, last, **BOUGHT[-1]), replace(median, one=(12, 11), other=(0, 11))]


@pytest.mark.parametrize("name", WITH_BUGS)
def test_nothing_is_wrong_with_the_worst_neighbours(name: str, tmp_path: Path) -> None:
    for i, each in enumerate(worst(name)):
        assert coupled(each, tmp_path / str(i)) == []


@pytest.mark.parametrize("name", WITH_BUGS)
@pytest.mark.parametrize(("plant", "seen"), BUGS)
def test_a_planted_bug_is_caught(
    plant: Callable[[Patch], None], seen: str, name: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    assert any(seen in coupled(each, tmp_path / str(i)) for i, each in enumerate(worst(name)))


# --- what is charged is proved once more before labels are drawn ------------------------------------------------


@pytest.mark.parametrize("name", ["rr-on-bins", "one-bit", "unbiased", "balanced", AUTO])
def test_a_channel_that_costs_more_than_its_charge_draws_nothing(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    resolve, drawn = engine_module.resolve, list[Any]()

    def dearer(plan: Any, *about: Any) -> Any:
        split = replace(plan.split, randomize=Epsilon(plan.split.randomize.nano * 101 // 100))
        return resolve(replace(plan, split=split), *about)

    monkeypatch.setattr(engine_module, "resolve", dearer)
    monkeypatch.setattr(engine_module, "sample", lambda *of: drawn.append(of))
    # with the noise of this seed a prior of 18 labels leaves bins more than one, which would cost nothing
    (found,) = coupled(pair(name, {}, 1), tmp_path)
    assert found.startswith(f"{REFUSED}{EpsilonNotProved.__name__}: ")
    assert drawn == []
