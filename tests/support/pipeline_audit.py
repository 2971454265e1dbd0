"""Many releases of two neighbouring label vectors, of a whole labels party or by the functions that its pipeline calls,
each turned into the symbol that an auditor sees: the chosen example's output, the bins, and the published prior."""

from __future__ import annotations

import functools
import io
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from label_dp.channels.base import Channel
from label_dp.documents.manifest import ENVELOPE_FILE, Manifest
from label_dp.documents.signing import MANIFEST_TYPE, open_envelope
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms import prior as prior_module
from labels_party.mechanisms.entropy import LaplaceNoise
from labels_party.mechanisms.sampling import sample
from labels_party.message.engine import DrawJob, LocalEngine
from labels_party.message.plan import ESTIMATED, make_plan, resolve
from tests.support.asked import release_wish
from tests.support.asking import population as parse_population
from tests.support.labels import LabelsParty

VICTIM = "v"
LEVELS = 6  # of the prior's mass on a label, of the output's place in the domain
BULK = 400
# what a receiver asks for, and the file that holds it
PULLED = {"manifest": ENVELOPE_FILE, "message": "message.parquet", "files/prior.parquet": "prior.parquet"}
Index = npt.NDArray[np.int64]


def symbol(
    output: float, prior: Any, y: int, other: int, labels: npt.NDArray[np.float64], m: int, ends: tuple[int, ...] = ()
) -> Hashable:
    """What is told apart of one release: where the output lies, how many outputs there are, how much mass the prior has
    on the two labels in question, and which bounds were bought."""
    span = float(labels[-1] - labels[0])
    place = int(np.clip(np.floor((output - labels[0]) / span * LEVELS), -2, LEVELS + 1))
    kept = [] if prior is None or ends else [y, other]
    mass = tuple(int(min(prior[i] * LEVELS, LEVELS - 1)) for i in kept)
    return place, min(m, 3), mass, ends


class Labels:
    """Sealed labels of a few rows, the chosen example's among them, as the engine reads them."""

    def __init__(self, index: list[int]) -> None:
        self.index = np.array(index, np.int64)

    def chunks(self) -> Iterator[tuple[None, Index]]:
        yield None, self.index

    def positions(self) -> Iterator[Index]:
        yield self.index


@contextmanager
def noise_in_bulk() -> Iterator[None]:
    """Noise is drawn for hundreds of priors at once: to open OpenDP's sampler takes longer than to draw from it."""
    draw, kept = prior_module.discrete_laplace, dict[LaplaceNoise, Index]()

    def handed(noise: LaplaceNoise, n: int) -> Index:
        if len(kept.get(noise, ())) < n:
            kept[noise] = draw(noise, BULK * n)
        found, kept[noise] = kept[noise][:n], kept[noise][n:]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_module, "discrete_laplace", handed)
        yield


def by_functions(index: list[int], y: int, other: int, domain: str, releases: int, **request: Any) -> list[Hashable]:
    """Symbols of that many releases of labels `index` (the chosen example's first), each with prior, bins and draws of
    its own: what `LocalEngine` does, without files. Channels of the same prior and bounds are designed once."""
    epsilon = Epsilon.parse(request.pop("epsilon"))
    population = parse_population("audited", "label", Domain.parse(domain), "1000000")
    plan = make_plan(release_wish(epsilon, **request), population, len(index))
    labels, values = Labels(index), population.domain.values
    job = DrawJob(population, plan, cast(Any, labels), len(index), 1, None, Path(), 1, lambda _what, _share: None)
    designs: dict[Any, Channel] = {}

    def design(bought: DrawJob, prior: Any, ends: tuple[int, ...]) -> Channel:
        key = ends, None if prior is None else prior.tobytes()
        if key not in designs:
            designs[key] = resolve(bought.plan, bought.population.domain, prior, len(index)).channel
        return designs[key]

    if plan.prior_source != ESTIMATED and not plan.clip_quantiles:
        channel = design(job, LocalEngine()._prior(job), ())
        seen = functools.cache(lambda j: symbol(float(channel.outputs[j]), None, y, other, values, channel.m))
        return [seen(j) for j in sample(channel, np.full(releases, index[0])).tolist()]
    found = []
    with noise_in_bulk():
        for _ in range(releases):
            bought = LocalEngine()._bought(job)
            ends = population.domain.place(bought.population.domain) if plan.clip_quantiles else ()
            prior = LocalEngine()._prior(bought)
            channel = design(bought, prior, ends)
            clipped = np.concatenate([chunk for _, chunk in bought.labels.chunks()])
            output = channel.outputs[int(sample(channel, clipped)[0])]
            found.append(symbol(float(output), prior, y, other, values, channel.m, ends))
    return found


def published(
    home: Path, index: list[int], y: int, other: int, domain: str, releases: int, **request: Any
) -> list[Hashable]:
    """The same of releases that a labels party charged, drew, signed and published, prior included.

    One batch, released again and again, each time charged on top. The last release is asked for and pulled through
    REST, where a receiver gets the very files that were read of the others.
    """
    with LabelsParty(home, worker=False) as party:
        owner, publisher = party.client(), party.client("features", "publisher")
        values = Domain.parse(domain).values
        body = {"name": "audited", "label": "label", "domain": domain, "lifetime_epsilon": "1000000"}
        assert owner.post("/v1/populations", json=body | {"audiences": ["publisher"]}).status_code == 201
        batch = owner.post("/v1/populations/audited/batches", json={"presence": "public"}).json()["id"]
        ids = [VICTIM, *(f"x{i}" for i in range(1, len(index)))]
        rows = {"example_id": ids, "label": values[index].tolist()}
        assert owner.post(f"/v1/batches/{batch}/labels", json=rows).status_code == 200
        assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
        made = [party.release(batch, additional_release=True, **request) for _ in range(releases - 1)]
        answer = owner.post(f"/v1/batches/{batch}/releases", json=request | {"additional_release": True})
        assert answer.status_code == 202, answer.text
        party.services.worker.drain()
        made.append(str(answer.json()["id"]))
        pulled = (publisher.get(f"/v1/releases/{made[-1]}/{part}").content for part in PULLED)
        assert tuple(pulled) == _stored(party, made[-1])
        report = owner.get("/v1/populations/audited/budget").json()
        (spent,) = [b["epsilon_spent"] for b in report["batches"]]
        assert Epsilon.parse(spent).nano == releases * Epsilon.parse(request["epsilon"]).nano
        return [_read(party, _stored(party, release), y, other, values) for release in made]


def _stored(party: LabelsParty, release: str) -> tuple[bytes, ...]:
    folder = party.bundle(release).path
    return tuple((folder / name).read_bytes() for name in PULLED.values())


def _read(party: LabelsParty, files: tuple[bytes, ...], y: int, other: int, values: Any) -> Hashable:
    envelope, message, prior = files
    payload = open_envelope(envelope, party.services.key.public, MANIFEST_TYPE, max_bytes=1 << 22)
    manifest = Manifest.from_payload(payload)
    table = pq.read_table(io.BytesIO(message))
    output = float(str(table["label"][table["example_id"].to_pylist().index(VICTIM)]))
    mass = pq.read_table(io.BytesIO(prior))["probability"].to_numpy()
    return symbol(output, mass, y, other, values, manifest.read_channel().m)
