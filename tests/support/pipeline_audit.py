"""Many releases of two neighbouring label vectors, through REST or by the functions that the pipeline calls below it,
each turned into the symbol that an auditor sees: the chosen example's output, the bins, and the published prior."""

from __future__ import annotations

import functools
import io
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from labels_party.kinds.message.engine import DrawJob, LocalEngine
from labels_party.kinds.message.plan import ESTIMATED, ReleaseRequest, make_plan, resolve
from labels_party.mechanisms.sampling import sample
from shared.documents.manifest import Manifest
from shared.documents.signing import MANIFEST_TYPE, open_envelope
from shared.domain import Domain
from shared.privacy import Epsilon
from tests.support.asking import population as parse_population
from tests.support.labels import LabelsParty

VICTIM = "v"
LEVELS = 6  # of the prior's mass on a label, of the output's place in the domain
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


def by_functions(index: list[int], y: int, other: int, domain: str, releases: int, **request: Any) -> list[Hashable]:
    """Symbols of that many releases of labels `index` (the chosen example's first), each with prior, bins and draws of
    its own: what `LocalEngine` does, without files. A channel that needs no estimated prior is designed once."""
    epsilon = Epsilon.parse(request.pop("epsilon"))
    population = parse_population("audited", "label", Domain.parse(domain), "1000000")
    plan = make_plan(ReleaseRequest(epsilon, **request), population, len(index))
    labels, values = Labels(index), population.domain.values
    job = DrawJob(population, plan, cast(Any, labels), len(index), 1, None, Path(), 1, lambda _what, _share: None)
    if plan.prior_source != ESTIMATED and not plan.clip_quantiles:
        channel = resolve(plan, population.domain, LocalEngine._prior(job), len(index)).channel
        seen = functools.cache(lambda j: symbol(float(channel.outputs[j]), None, y, other, values, channel.m))
        return [seen(j) for j in sample(channel, np.full(releases, index[0])).tolist()]
    found = []
    for _ in range(releases):
        bought = LocalEngine._bought(job)
        part, prior = bought.population.domain, LocalEngine._prior(bought)
        channel = resolve(bought.plan, part, prior, len(index)).channel
        clipped = np.concatenate([chunk for _, chunk in bought.labels.chunks()])
        output = channel.outputs[int(sample(channel, clipped)[0])]
        ends = population.domain.place(part) if plan.clip_quantiles else ()
        found.append(symbol(float(output), prior, y, other, values, channel.m, ends))
    return found


def through_rest(
    home: Path, index: list[int], y: int, other: int, domain: str, releases: int, **request: Any
) -> list[Hashable]:
    """The same of releases that were asked for, drawn, published and pulled through the REST interface, prior included.

    One batch, released again and again, each time charged on top.
    """
    with LabelsParty(home, worker=False) as party:
        owner, publisher = party.client(), party.client("features", "publisher")
        publisher.portal = owner.portal = party._clients[0].portal  # one event loop for all calls: half the time
        values = Domain.parse(domain).values
        body = {"name": "audited", "label": "label", "domain": domain, "lifetime_epsilon": "1000000"}
        assert owner.post("/v1/populations", json=body | {"audiences": ["publisher"]}).status_code == 201
        batch = owner.post("/v1/populations/audited/batches", json={"presence": "public"}).json()["id"]
        ids = [VICTIM, *(f"x{i}" for i in range(1, len(index)))]
        rows = {"example_id": ids, "label": values[index].tolist()}
        assert owner.post(f"/v1/batches/{batch}/labels", json=rows).status_code == 200
        assert owner.post(f"/v1/batches/{batch}/seal").status_code == 200
        asked, found = request | {"additional_release": True}, []
        for _ in range(releases):
            answer = owner.post(f"/v1/batches/{batch}/releases", json=asked)
            assert answer.status_code == 202, answer.text
            party.services.worker.drain()
            path = f"/v1/releases/{answer.json()['id']}"
            found.append(_pulled(party, publisher, path, y, other, values))
        report = owner.get("/v1/populations/audited/budget").json()
        (spent,) = [b["epsilon_spent"] for b in report["batches"]]
        assert Epsilon.parse(spent).nano == releases * Epsilon.parse(request["epsilon"]).nano
        return found


def _pulled(party: LabelsParty, publisher: Any, path: str, y: int, other: int, values: Any) -> Hashable:
    envelope, message = (publisher.get(f"{path}/{part}").content for part in ("manifest", "message"))
    payload = open_envelope(envelope, party.services.key.public, MANIFEST_TYPE, max_bytes=1 << 22)
    manifest = Manifest.from_payload(payload)
    table = pq.read_table(io.BytesIO(message))
    output = float(str(table["label"][table["example_id"].to_pylist().index(VICTIM)]))
    prior = publisher.get(f"{path}/files/prior.parquet")
    mass = pq.read_table(io.BytesIO(prior.content))["probability"].to_numpy() if prior.status_code == 200 else None
    return symbol(output, mass, y, other, values, manifest.read_channel().m)
