"""Two worlds that differ in which ids have labels that others sent, and one sequence of calls of an ingest key to both.

Every answer must be the same in both, whatever the sequence: of uploads and deletions good and bad, repeated, with keys
and without, before and after the batch's owner (whose answers the sender does not see) tries to seal it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.support.labels import FakeClock, LabelsParty

IDS = [f"c-{i}" for i in range(8)]
STRANGERS = ["s-1", "s-2"]
HIDDEN = {"date", "x-request-id"}


@dataclass(frozen=True)
class Rules:
    """Of the batch that both worlds have."""

    presence: str
    missing: str | None
    scheduled: bool


class World:
    """One of the two: `labelled` are the ids whose labels the owner's other systems sent before."""

    def __init__(self, party: LabelsParty, clock: FakeClock, rules: Rules, labelled: list[str]) -> None:
        self.party, self.clock, self.rules = party, clock, rules
        self.owner, self.other, self.sender = party.client(), party.client("ingest"), party.client("ingest")
        body: dict[str, Any] = {"name": "shop", "label": "r", "domain": "0:10", "lifetime_epsilon": "3"}
        body |= {"missing_label": rules.missing, "out_of_domain": "refuse"}
        shop = self.owner.post("/v1/populations", json=body).json()["id"]
        when = {"seal_at": "2030-01-02T00:00:00Z"} if rules.scheduled else {}
        opened = self.owner.post(f"/v1/populations/{shop}/batches", json={"presence": rules.presence} | when)
        self.batch = str(opened.json()["id"])
        if rules.presence == "id-list":
            assert self.owner.put(self._path("examples"), json={"example_id": IDS}).status_code == 200
        for client, ids in ((self.owner, labelled[::2]), (self.other, labelled[1::2])):
            if ids:
                sent = client.post(self._path("labels"), json={"example_id": ids, "label": [3] * len(ids)})
                assert sent.status_code == 200, sent.text

    def _path(self, what: str) -> str:
        return f"/v1/batches/{self.batch}/{what}"

    def do(self, step: dict[str, Any]) -> Any:
        """What the sender sees of it."""
        if step["what"] == "seal":
            self.owner.post(self._path("seal"))
            return None
        if step["what"] == "wait":
            self.clock.move(hours=step["hours"])
            self.party.services.worker.drain()
            return None
        headers = {"content-type": step["media"]} | ({"idempotency-key": step["key"]} if step["key"] else {})
        path = self._path(step["path"])
        client: TestClient = self.sender
        answer = client.request(step["method"], path, content=step["body"], params=step["params"], headers=headers)
        told = {name: value for name, value in answer.headers.items() if name not in HIDDEN}
        return answer.status_code, told, answer.text.replace(self.batch, "BATCH")


def steps(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """A sequence of calls, some of which are repeated as they were."""
    done: list[dict[str, Any]] = []
    for _ in range(count):
        chance = rng.random()
        if chance < 0.08:
            yield {"what": "seal"}
        elif chance < 0.13:
            yield {"what": "wait", "hours": rng.choice([1, 13])}
        elif chance < 0.25 and done:
            yield rng.choice(done)
        else:
            done.append(_call(rng))
            yield done[-1]


def _call(rng: random.Random) -> dict[str, Any]:
    ids = rng.sample(IDS, rng.choice([1, 1, 2, 4, 8]))
    if rng.random() < 0.15:
        ids.insert(rng.randrange(len(ids) + 1), rng.choice([*STRANGERS, ids[0]]))
    labels: list[Any] = [rng.choice([0, 3, 3, 7, 10]) for _ in ids]
    if rng.random() < 0.1:
        labels[0] = rng.choice([11, "x", None])
    method = rng.choice(["POST"] * 4 + ["DELETE"])
    body = {"example_id": ids} | ({"label": labels} if method == "POST" else {})
    content = json.dumps(body).encode() if rng.random() > 0.03 else b"{"
    params = {"mode": rng.choice(["insert", "insert", "insert", "upsert"])} if method == "POST" else {}
    call = {"what": "call", "method": method, "path": "labels", "media": "application/json", "body": content}
    if rng.random() < 0.03:  # what such a key may not do at all
        call |= {"path": rng.choice(["seal", "set-aside", "set-aside/upl_1", "examples"])}
    return call | {"params": params, "key": rng.choice([None, None, "k1", "k2", "k3"])}


@contextmanager
def two_worlds(
    folder: Path, rules: Rules, labelled: tuple[list[str], list[str]], objects: tuple[str, str] = ("", "")
) -> Iterator[list[World]]:
    """`objects`: where each has its objects."""
    with ExitStack() as stack:
        worlds = []
        for number, (ids, where) in enumerate(zip(labelled, objects, strict=True)):
            clock = FakeClock()
            home = folder / str(number)
            party = stack.enter_context(LabelsParty(home, clock=clock, worker=False, objects=where))
            worlds.append(World(party, clock, rules, ids))
        yield worlds


def differences(worlds: list[World], calls: Iterator[dict[str, Any]]) -> list[tuple[dict[str, Any], Any, Any]]:
    """Where the sender is answered otherwise in one world than in the other."""
    found = []
    for step in calls:
        one, other = (world.do(step) for world in worlds)
        if one != other:
            found.append((step, one, other))
    return found
