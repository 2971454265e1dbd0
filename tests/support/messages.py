"""Signed messages made by hand with `label_dp.documents`, so that each of their parts can be wrong on purpose."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features_party.bootstrap import Services, bootstrap
from features_party.settings import Settings
from label_dp.channels.base import Channel, N
from label_dp.channels.dense import DenseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.staircase import StaircaseChannel
from label_dp.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE
from label_dp.documents.canonical import digest
from label_dp.documents.manifest import FileEntry, Manifest, MechanismChoice, PriorRef
from label_dp.documents.members import PopulationRef
from label_dp.documents.rows import write_message, write_prior
from label_dp.documents.signing import MANIFEST_TYPE, SigningKey
from label_dp.domain import Domain
from label_dp.privacy import Epsilon, EpsilonSplit
from labels_party.mechanisms.laplace import laplace_channel

ZERO = Epsilon(0)


def odds(epsilon: float, d: int = 2) -> tuple[int, int]:
    """(A, B) with A + (d − 1)B = 2⁶⁴ and A/B at most e^ε."""
    below = Epsilon.parse(epsilon).exp_lower()
    b = -int(-Fraction(N) // (below + d - 1))
    return N - (d - 1) * b, b


def one_bit(domain: str = "0:10", epsilon: float = 2.0, clip: tuple[int, int] | None = None) -> OneBitChannel:
    parsed = Domain.parse(domain)
    low, high = clip or (int(parsed.values[0]), int(parsed.values[-1]))
    a, b = odds(epsilon)
    return OneBitChannel(domain=parsed, low=Decimal(low), high=Decimal(high), A=a, B=b)


def rr(domain: str = "0:10", epsilon: float = 2.0, cuts: tuple[int, ...] = (4, 8)) -> RRChannel:
    """Randomized response on bins cut at the given positions; means are the middles, outputs shrunk to the centre."""
    parsed = Domain.parse(domain)
    bounds = np.array([0, *cuts, parsed.k])
    means = np.array([parsed.values[a:b].mean() for a, b in itertools.pairwise(bounds)])
    a, b = odds(epsilon, len(means))
    outputs = means.mean() + 0.5 * (means - means.mean())
    return RRChannel(domain=parsed, boundaries=bounds, outputs=outputs, A=a, B=b, bin_means=means)


def laplace(domain: str = "0:10", epsilon: float = 2.0) -> Channel:
    """Clipped to the domain; discrete where the domain has few enough values."""
    parsed = Domain.parse(domain)
    return laplace_channel(parsed, Epsilon.parse(epsilon), discrete=parsed.k <= 1 << 16)


def staircase(domain: str = "0:10", epsilon: float = 2.0) -> StaircaseChannel:
    """Clipped to the domain: what no correction of the ends makes unbiased."""
    parsed, peak = Domain.parse(domain), int(0.1 * N) & ~1
    return StaircaseChannel(
        domain=parsed, noise_epsilon=Epsilon.parse(epsilon), cells=parsed.k - 1, reach=0, peak=peak, width=2
    )


def blind(domain: str = "0:10") -> DenseChannel:
    """Two outputs, equally likely under every label: nothing can be corrected."""
    parsed = Domain.parse(domain)
    weights = np.full((parsed.k, 2), N // 2, dtype=np.uint64)
    return DenseChannel(domain=parsed, outputs=parsed.values[[0, -1]], weights=weights)


def draw(channel: Channel, labels: npt.NDArray[np.float64], seed: int = 0) -> npt.NDArray[np.int64]:
    """int64[n]: outputs for labels float64[n]. Good enough for tests, where the labels are made up."""
    index, u = channel.domain.index(labels)[0], np.random.default_rng(seed).random(len(labels))
    drawn = np.empty(len(labels), np.int64)
    for own in np.unique(index):
        edges = np.cumsum(channel.rows(own, own + 1)[0])
        drawn[index == own] = np.searchsorted(edges, u[index == own])
    return np.minimum(drawn, channel.m - 1)


@dataclass
class Sender:
    """A labels party that signs whatever it is told to. What it states as spent is, unless said otherwise, the sum of
    the batch's releases that it wrote."""

    key: SigningKey = field(default_factory=SigningKey.generate)
    charged: dict[str, dict[str, Epsilon]] = field(default_factory=dict)

    def public_key(self, folder: Path) -> Path:
        path = folder / "labels-signing.pub"
        path.write_bytes(self.key.public.pem)
        return path

    def write(
        self,
        path: Path,
        ids: list[str],
        labels: npt.NDArray[np.float64],
        channel: Channel | None = None,
        *,
        prior: npt.NDArray[np.float64] | None = None,
        parts: int = 1,
        release: str = "rel_1",
        batch: str = "bat_1",
        epsilon: str = "2",
        seed: int = 0,
        edit: Any = None,
        **members: Any,
    ) -> Manifest:
        """Write the message at `path` (a folder if `parts` > 1). `edit` may change the signed document."""
        channel = channel or one_bit(epsilon=float(epsilon))
        order = np.argsort(np.array([i.encode() for i in ids], dtype=object))
        sorted_ids = [ids[i] for i in order]
        bins = draw(channel, labels, seed)[order]
        folder = path if parts > 1 else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for number, rows in enumerate(np.array_split(np.arange(len(ids)), parts)):
            target = path if parts == 1 else folder / f"part-{number}.parquet"
            write_message(target, [(pa.array([sorted_ids[i] for i in rows], pa.string()), bins[rows])], channel)
            name = "message.parquet" if parts == 1 else target.name
            files.append(self._entry("message", name, target, len(rows)))
        if prior is not None:
            target = folder / "prior.parquet" if parts > 1 else path.with_name(path.stem + ".prior.parquet")
            write_prior(target, channel.labels, prior)
            files.append(self._entry("prior", "prior.parquet", target, channel.k))
        split = EpsilonSplit(ZERO, ZERO, Epsilon.parse(epsilon))
        charged = self.charged.setdefault(batch, {})
        charged[release] = split.total
        spent = str(Epsilon(sum(one.nano for one in charged.values())))
        manifest = Manifest(
            id=release,
            batch=batch,
            population=PopulationRef(id="pop_1", name="shop", label="revenue"),
            audiences=members.pop("audiences", ["features-party"]),
            key_id=self.key.public.id,
            created="2024-01-31",
            chain_head=members.pop("chain_head", {"day": "2024-01-31", "digest": "cd" * 32}),
            n=len(ids),
            domain=channel.domain.as_json(),
            out_of_domain="clip",
            missing_label=None,
            presence="declared public by the owner",
            mechanism=MechanismChoice(name=members.pop("mechanism", "test")),
            loss=members.pop("loss", "squared"),
            channel=channel.as_json(),
            expected_loss=None,
            prior=PriorRef(source="not used"),
            epsilon=split.as_json(),
            epsilon_spent=members.pop("epsilon_spent", spent),
            epsilon_lifetime=members.pop("epsilon_lifetime", "10"),
            files=files,
            **members,
        )
        document = manifest.document()
        if edit is not None:
            edit(document)
        envelope = folder / FOLDER_ENVELOPE if parts > 1 else path.with_name(path.name + ENVELOPE_SUFFIX)
        envelope.write_bytes(self.key.sign(MANIFEST_TYPE, document))
        return manifest

    @staticmethod
    def _entry(role: Any, name: str, path: Path, rows: int) -> FileEntry:
        data = path.read_bytes()
        return FileEntry(role=role, name=name, bytes=len(data), rows=rows, sha256=digest(data))


@dataclass(frozen=True)
class World:
    """n made-up examples: features that explain the label, and the label."""

    ids: list[str]
    features: pa.Table
    labels: npt.NDArray[np.float64]

    def table(self, id_column: str = "click_id") -> pa.Table:
        return self.features.add_column(0, id_column, pa.array(self.ids))


def world(n: int = 600, seed: int = 0, high: int = 10, prefix: str = "c") -> World:
    rng = np.random.default_rng(seed)
    age, country = rng.normal(40.0, 10.0, n), rng.integers(0, 4, n)
    signal = 0.25 * (age - 40.0) + np.array([-2.0, 0.0, 1.0, 3.0])[country] + high / 2
    labels = np.clip(np.round(signal + rng.normal(0.0, 0.5, n)), 0, high).astype(np.float64)
    features = pa.table({"age": age, "country": pa.array(np.array(["FR", "DE", "UK", "US"])[country])})
    return World([f"{prefix}{i:05d}" for i in range(n)], features, labels)


def features_party(home: Path, **settings: Any) -> Services:
    return bootstrap(Settings(home=home, threads=1, **settings))


def sealed_envelope(path: Path) -> Any:
    """The envelope's JSON beside a message, for tests that damage it."""
    return json.loads(path.with_name(path.name + ENVELOPE_SUFFIX).read_bytes())
