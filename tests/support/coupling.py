"""Two neighbouring label vectors released side by side, coupled by what their paid reads gave.

Every read of raw labels that ε pays for is intercepted: the choice of clipping bounds, the noise of the prior's counts,
the draw of the message. The first world gets what the harness makes up, the second what makes the outcome the same: the
same bound, noise shifted by what the counts differ, the same outputs. All that is public (files, manifest, progress, or
the refusal) must then be the same to the byte, so it depends on labels through these three outcomes alone, and ε of the
whole is that of the outcomes, by exact weights and the exact scale. Where something else looks at labels, the worlds
differ; where a read pays too little, `paid` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from label_dp.channels.base import Channel, smallest_unsigned
from label_dp.documents.members import ChainHead
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.labels.batches import Batch
from labels_party.ledger.rules import Account
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms import quantiles
from labels_party.mechanisms.choice import weights
from labels_party.mechanisms.entropy import LaplaceNoise
from labels_party.message import engine as engine_module
from labels_party.message import kind as kind_module
from labels_party.message.engine import DrawJob, LocalEngine
from labels_party.message.kind import build_manifest
from labels_party.message.plan import ESTIMATED, ReleasePlan, ReleaseRequest, make_plan
from labels_party.work.charged import charged_members
from tests.support.asking import population as parse_population
from tests.support.exact_matrix import columns, violations
from tests.support.posterior import exp_below
from tests.support.solved_once import solved_once

Index = npt.NDArray[np.int64]
Population = Any
CHUNK = 7
KEY = "ed25519:" + 64 * "0"
REFUSED = "both refuse: "


@dataclass(frozen=True)
class Pair:
    """What is asked for, and two label vectors that differ in one place; `seed` is of what is made up."""

    domain: Domain
    one: tuple[int, ...]
    other: tuple[int, ...]
    request: ReleaseRequest
    seed: int = 0


class Labels:
    """Sealed labels as the engine reads them; counts how often."""

    def __init__(self, index: tuple[int, ...]) -> None:
        self.index, self.passes = np.array(index, np.int64), 0

    def chunks(self) -> Iterator[tuple[pa.Array, Index]]:
        self.passes += 1
        ids = pa.array([f"id{i:04d}" for i in range(self.index.size)])
        for start in range(0, self.index.size, CHUNK):
            yield ids.slice(start, CHUNK), self.index[start : start + CHUNK]

    def positions(self) -> Iterator[Index]:
        return (index for _, index in self.chunks())


@dataclass
class World:
    """What one world shows, and what its paid reads were asked for and computed from."""

    labels: Labels
    public: dict[str, bytes] = field(default_factory=dict)
    bounds: list[tuple[Any, Fraction]] = field(default_factory=list)
    noises: list[tuple[LaplaceNoise, Index]] = field(default_factory=list)
    draws: list[tuple[Channel, Index]] = field(default_factory=list)
    own: Index = field(default_factory=lambda: np.zeros(0, np.int64))  # its labels on the domain that was bought


@dataclass
class Outcomes:
    """Of the paid reads, made up in the first world and given again in the second."""

    rng: np.random.Generator
    bounds: list[int] = field(default_factory=list)
    noisy: list[Index] = field(default_factory=list)
    outputs: list[npt.NDArray[Any]] = field(default_factory=list)

    def bound(self, at: int, options: int) -> int:
        if at == len(self.bounds):
            self.bounds.append(int(self.rng.integers(options)))
        return min(self.bounds[at], options - 1)

    def counts(self, at: int, noise: LaplaceNoise, own: Index) -> Index:
        """The noisy counts; the first world's with noise of the scale asked for, sometimes none or one that drowns."""
        if at == len(self.noisy):
            scale = (0.0, float(noise.scale), float(noise.scale), 1e9)[self.rng.integers(4)]
            self.noisy.append(own + np.rint(self.rng.laplace(0, scale, own.size)).astype(np.int64))
        return self.noisy[at]

    def drawn(self, at: int, m: int, n: int) -> npt.NDArray[Any]:
        if at == len(self.outputs):
            self.outputs.append(self.rng.integers(0, m, n))
        return self.outputs[at][:n].clip(0, m - 1).astype(smallest_unsigned(m))


@contextmanager
def intercepted(world: World, outcomes: Outcomes, public: Domain) -> Iterator[None]:
    prior_of = LocalEngine()._prior
    cells: list[Index] = []

    def choose(scores: Any, rate: Fraction, _source: Any, _sizes: Any = None) -> int:
        world.bounds.append((scores, rate))
        return outcomes.bound(len(world.bounds) - 1, len(scores))

    def prior(job: DrawJob) -> Any:
        first, last = public.place(job.population.domain)
        world.own = np.clip(world.labels.index, first, last) - first
        if job.plan.cells is not None:
            cells.append(job.plan.cells)
        return prior_of(job)

    def laplace(noise: LaplaceNoise, n: int) -> Index:
        counts = np.bincount(world.own, minlength=int(cells[-1][-1]))
        own = np.add.reduceat(counts, cells[-1][:-1]).astype(np.int64)
        world.noises.append((noise, own))
        drawn = outcomes.counts(len(world.noises) - 1, noise, own)
        return np.resize(drawn, own.size)[:n] - own[:n]

    def sample(channel: Channel, index: Index) -> npt.NDArray[Any]:
        world.draws.append((channel, index.copy()))
        return outcomes.drawn(len(world.draws) - 1, channel.m, index.size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "choose", choose)
        patch.setattr(prior_module, "discrete_laplace", laplace)
        patch.setattr(LocalEngine, "_prior", staticmethod(prior))
        patch.setattr(engine_module, "sample", sample)
        yield


def live(pair: Pair, index: tuple[int, ...], plan: ReleasePlan, outcomes: Outcomes, folder: Path) -> World:
    """One world: what the pipeline does between the charge and the signature."""
    folder.mkdir(parents=True)
    world, progress = World(Labels(index)), list[tuple[str, float]]()
    population, n = _population(pair.domain), len(index)
    job = DrawJob(
        population=population,
        plan=plan,
        labels=cast(Any, world.labels),
        n=n,
        id_bytes=6 * n,
        given_prior=None if pair.request.given is None else pair.request.given.probabilities,
        folder=folder,
        rows_per_file=10,
        progress=lambda what, share: progress.append((what, share)),
    )
    try:
        with intercepted(world, outcomes, pair.domain):
            drawn = LocalEngine().draw(job)
        entries = [kind_module._entry(folder, file) for file in drawn.files]
        account = Account(Epsilon.parse("1000000"), plan.split.total)
        about = (KEY, "rel_0", _batch(n), population, population.audiences, "2026-01-01", plan.split)
        members = charged_members(*about, account, plan.split.total, ChainHead(day="2026-01-01", digest="0" * 64))
        manifest = build_manifest(plan, drawn, entries, _batch(n), population.domain, members)
        world.public["manifest"] = manifest.payload()
    except Exception as error:  # a refusal is public as well, whatever its kind
        world.public["refusal"] = f"{type(error).__name__}: {error}".encode()
    world.public |= {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    world.public["progress"] = repr(progress).encode()
    return world


def _population(domain: Domain) -> Population:
    return replace(parse_population("coupled", "label", domain, "1000000"), id="pop_0")


def _batch(n: int) -> Batch:
    return Batch("bat_0", "pop_0", "label", "sealed", "public", 1, "2026-01-01", "2026-01-01", 1, n, 6 * n, "mac")


def coupled(pair: Pair, folder: Path) -> list[str]:
    """What is wrong: where the two worlds differ, and which read pays too little; nothing, if the guarantee holds.
    Where both refuse in the same words, that alone."""
    with solved_once():
        plan = make_plan(pair.request, _population(pair.domain), len(pair.one))
        outcomes = Outcomes(np.random.default_rng(pair.seed))
        indexes = enumerate((pair.one, pair.other))
        one, other = (live(pair, index, plan, outcomes, folder / str(i)) for i, index in indexes)
    shown = sorted(one.public.keys() | other.public.keys())
    wrong = [f"{name} differs" for name in shown if one.public.get(name) != other.public.get(name)]
    if not wrong and "refusal" in one.public:
        return [REFUSED + one.public["refusal"].decode()]
    wrong += [] if plan.split.total == pair.request.epsilon else ["the split is not the charge"]
    wrong += _bounds_pay(one, other, plan) + _counts_pay(one, other, plan) + _message_pays(one, other, plan)
    passes = bool(plan.clip_quantiles) + (plan.prior_source == ESTIMATED) + 1
    if (one.labels.passes, other.labels.passes) != (passes, passes):
        wrong.append("labels are read without being paid for")
    return wrong


def _bounds_pay(one: World, other: World, plan: ReleasePlan) -> list[str]:
    """Σ over the bounds of the worst ln of a ratio of probabilities, exactly, is at most ε_clip."""
    if len(one.bounds) != len(plan.clip_quantiles) or len(other.bounds) != len(one.bounds):
        return ["not as many bounds as quantiles"]
    worst = Fraction(1)
    for (first, rate), (second, again) in zip(one.bounds, other.bounds, strict=True):
        if rate != again or len(first) != len(second):
            return ["bounds are drawn otherwise"]
        a, b = (weights(scores, rate, len(scores)) for scores in (first, second))
        quotients = [Fraction(x * sum(b), y * sum(a)) for x, y in set(zip(a, b, strict=True))]
        worst *= max(max(quotients), 1 / min(quotients))
    return [] if worst <= exp_below(plan.split.clip.fraction) else ["bounds cost more than ε_clip"]


def _counts_pay(one: World, other: World, plan: ReleasePlan) -> list[str]:
    """The noise is that of sensitivity 2 at ε_prior, its scale 2/ε_prior rounded up by hardly anything, and what the
    counts differ by, over the scale, is at most ε_prior."""
    estimated = int(plan.prior_source == ESTIMATED)
    if len(one.noises) != len(other.noises) or len(one.noises) > estimated:
        return ["noise is drawn otherwise"]
    if not one.noises:
        return ["a prior without noise"] * estimated
    ((noise, first),), ((again, second),) = one.noises, other.noises
    epsilon, moved = plan.split.prior.fraction, int(np.abs(first - second).sum())
    if noise != again or not 2 / epsilon <= noise.scale <= 2 / epsilon * (1 + Fraction(1, 1 << 50)):
        return ["the noise has not the scale 2/ε_prior"]
    return [] if moved <= 2 and Fraction(moved) / noise.scale <= epsilon else ["the prior costs more than ε_prior"]


def _message_pays(one: World, other: World, plan: ReleasePlan) -> list[str]:
    """What is sampled is the world's own labels, by one channel whose exact matrix keeps ε_randomize."""
    wrong = []
    for world in (one, other):
        if world.draws and not np.array_equal(np.concatenate([index for _, index in world.draws]), world.own):
            wrong.append("something else than the labels is sampled")
    for (first, _), (second, _) in zip(one.draws, other.draws, strict=False):
        if first.as_json() != second.as_json():
            wrong.append("channels differ")
    for channel in {id(channel): channel for channel, _ in one.draws}.values():
        if violations(list(set(columns(channel))), plan.split.randomize):
            wrong.append("the message costs more than ε_randomize")
    return wrong
