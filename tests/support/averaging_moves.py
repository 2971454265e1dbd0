"""What the attacker of `averaging` tries: one function per way to be told of the same label once more."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from label_dp.actors import person
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from tests.support.asking import population as parse_population
from tests.support.asking import privatize
from tests.support.asking import request as parse_request
from tests.support.averaging import AUDIENCES, OTHERS, VICTIM, K, World

MECHANISMS = (
    "one-bit",
    "rr-on-bins",
    "rr",
    "rr-with-prior",
    "subset-selection",
    "discrete-laplace",
    "laplace",
    "staircase",
    "exponential",
    "unbiased",
    "balanced",
    "auto",
)
LIFETIMES = ("0.7", "1.3", "2.5")
EPSILONS = ("0.000000001", "0.01", "0.03", "0.07", "0.1", "0.2")
LABEL = "Große ﬁnale"  # with letters that are written in several ways


class Attack:
    """One example in one batch of one label, which is sealed; then attempt after attempt to hear of it again."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.rng, self.number = world, world.rng, number
        self.label = f"{LABEL} {number}"
        self.others = {name: self.rng.randrange(K) for name in OTHERS}
        self.lifetime = self.rng.choice(LIFETIMES)
        self.four_eyes = self.rng.random() < 0.2
        self.units = self.rng.random() < 0.25
        self.audiences = self.rng.choice((["publisher"], list(AUDIENCES)))
        self.made = 0
        self.keys: list[tuple[str, dict[str, Any]]] = []
        self.population = self.declare(self.label, self.audiences, self.lifetime, four_eyes=self.four_eyes)
        self.batch = self.opening()

    # --- parts of attempts --------------------------------------------------------------------------------

    def declare(self, label: str, audiences: list[str], lifetime: str, **rules: Any) -> str:
        self.made += 1
        body = {"name": f"people-{self.number}-{self.made}", "label": label, "domain": "0:10", "missing_label": 0}
        if self.units:
            body |= {"unit_column": "person", "max_examples_per_unit": 5}
        body |= {"lifetime_epsilon": lifetime, "audiences": audiences} | rules
        return str(self.world.call("POST", "/populations", json=body).json()["id"])

    def open(self, population: str, **schedule: Any) -> str:
        presence = self.rng.choice(("public", "id-list"))
        body = {"presence": presence} | schedule
        batch = str(self.world.call("POST", f"/populations/{population}/batches", json=body).json()["id"])
        self.listed = presence == "id-list"
        return batch

    def rows(self, ids: Iterable[str]) -> dict[str, list[Any]]:
        names = list(ids)
        labels = [self.world.y if name == VICTIM else self.others.get(name, 3) for name in names]
        return {"example_id": names, "label": labels} | ({"unit": [f"p{n}" for n in names]} if self.units else {})

    def send(self, batch: str, rows: dict[str, list[Any]], mode: str = "insert") -> bool:
        """The ids where the batch wants them listed, and the labels, written in one of several ways."""
        if self.listed:
            if mode == "insert":
                listed = {k: v for k, v in rows.items() if k != "label"}
                self.world.call("PUT", f"/batches/{batch}/examples", json=listed)
            rows = {k: v for k, v in rows.items() if k != "unit"}
        path, form = f"/batches/{batch}/labels?mode={mode}", self.rng.randrange(4)
        if form == 1:  # an id that is a number, as a number
            numbers = [int(i) if i.isdigit() else i for i in rows["example_id"]]
            return self.world.call("POST", path, json=rows | {"example_id": numbers}).status_code == 200
        if form in (2, 3):
            kind, content = (
                ("text/csv", _csv(rows)) if form == 2 else ("application/vnd.apache.parquet", _parquet(rows))
            )
            sent = self.world.call("POST", path, content=content, headers={"content-type": kind})
            return sent.status_code == 200
        return self.world.call("POST", path, json=rows).status_code == 200

    def seal(self, batch: str) -> bool:
        return self.world.call("POST", f"/batches/{batch}/seal").status_code == 200

    def request(self) -> dict[str, Any]:
        """A release in some other way than the last one."""
        rng = self.rng
        epsilon = rng.choice(EPSILONS if rng.random() < 0.85 else (self.lifetime, f"{float(self.lifetime)}00000001"))
        body: dict[str, Any] = {"epsilon": epsilon, "mechanism": rng.choice(MECHANISMS)}
        body["loss"] = rng.choice(("squared", "absolute", "poisson"))
        published = self.published()
        prior = rng.choice((None, "estimate", "estimate", "uniform", "latest", "declared", "release"))
        if prior == "declared":
            drawn = [rng.randrange(K) for _ in range(32)]
            probabilities = [drawn.count(i) / 32 for i in range(K)]
            prior = {"probabilities": probabilities}
            self.world.declared.add(np.array(probabilities).tobytes())
        elif prior == "release":
            prior = {"release": rng.choice(published)} if published else None
        if prior is not None:
            body["prior"] = prior
        if prior == "estimate" and rng.random() < 0.7:
            body["prior_epsilon"] = rng.choice(("0.005", "0.02", "theorem7"))
            body["prior_method"] = rng.choice(("project", "clip"))
        return body

    def release(self, batch: str, client: TestClient | None = None, **more: Any) -> str | None:
        """Ask, have a colleague approve where two must, and have it drawn. None if it was refused."""
        headers = {"Idempotency-Key": more.pop("key")} if "key" in more else {}
        answer = self.world.call(
            "POST", f"/batches/{batch}/releases", client, json=self.request() | more, headers=headers
        )
        if answer.status_code != 202:
            return None
        release = str(answer.json()["id"])
        if answer.json()["state"] == "accepted":
            self.world.call("POST", f"/releases/{release}/approve")  # by who asked: refused
            self.world.call("POST", f"/releases/{release}/approve", self.world.colleague)
        return release

    def published(self) -> list[str]:
        """Releases that were read, in an order that does not depend on their random ids."""
        names = self.world.names
        return sorted((r for r in self.world.told if r in names), key=lambda r: names[r])

    def opening(self) -> str:
        """How the example gets into its one sealed batch."""
        world, rows, how = self.world, self.rows([VICTIM, *OTHERS]), self.rng.randrange(5)
        schedule: dict[str, Any] = {}
        if how == 0:
            schedule = {"seal_at": self.later(), "release": {"epsilon": "0.1", "mechanism": "one-bit"}}
        batch = self.open(self.population, **schedule)
        if how == 1:  # deleted and made again
            self.send(batch, rows)
            world.call("DELETE", f"/batches/{batch}")
            batch = self.open(self.population)
        if how == 2:  # a label that is replaced
            self.send(batch, rows | {"label": [5] * len(rows["label"])})
        self.send(batch, rows, "upsert" if how == 2 else "insert")
        if how == 0:
            world.clock.move(days=2)
            world.drain()
        else:
            assert self.seal(batch), world.about(str(world.transcript[-1]))
        return batch

    def later(self) -> str:
        return (self.world.clock() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def overlapping(self) -> list[str]:
        """Ids that have the example among them: permuted, fewer, more, shifted, it alone."""
        new = [f"new-{self.number}-{self.world.tried}-{i}" for i in range(3)]
        found = self.rng.choice(
            ([VICTIM, *OTHERS], [VICTIM, *OTHERS[:3]], [VICTIM, *OTHERS, *new], [VICTIM, *new], [VICTIM])
        )
        return self.rng.sample(found, len(found))

    def spelled(self) -> str:
        """The label's name as somebody else might write it."""
        wide = "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in self.label)
        ways = (self.label, self.label.upper(), self.label.replace("ﬁ", "fi"), self.label.casefold(), wide)
        return self.rng.choice(ways)

    def into(self, population: str) -> None:
        """The example into one more batch, and that one released."""
        batch = self.open(population)
        self.send(batch, self.rows(self.overlapping()))
        self.seal(batch)
        self.release(batch)

    # --- attempts -----------------------------------------------------------------------------------------

    def ask_again(self) -> None:
        self.release(self.batch, additional_release=self.rng.random() < 0.2)

    def ask_for_more(self) -> None:
        self.release(self.batch, additional_release=True)

    def take_what_is_left(self) -> None:
        spent, lifetime = self.world.spent([self.population])[self.batch]
        left = lifetime - spent + Fraction(self.rng.choice((0, 1)), 10**9)
        more = {"epsilon": str(float(round(left, 9))), "mechanism": "one-bit", "prior": None, "prior_epsilon": "auto"}
        self.release(self.batch, additional_release=True, **more)

    def another_key(self) -> None:
        client = self.world.party.client("owner")
        self.release(self.batch, client, additional_release=self.rng.random() < 0.5)

    def repeat_with_keys(self) -> None:
        """The same call with its idempotency key, with another body, by another key holder, with another key."""
        world, path = self.world, f"/batches/{self.batch}/releases"
        body = self.request() | {"additional_release": True}
        key = f"key-{world.tried}"
        for client, sent, name in (
            (None, body, key),
            (None, body, key),
            (None, body | {"epsilon": "0.04"}, key),
            (world.colleague, body, key),
            (None, body | {"additional_release": False}, key + "-new"),
        ):
            world.call("POST", path, client, json=sent, headers={"Idempotency-Key": name})

    def rename_population(self) -> None:
        audiences = self.rng.choice((["publisher"], ["ad-network"], list(AUDIENCES)))
        self.into(self.declare(self.spelled(), audiences, "9"))

    def overlap(self) -> None:
        self.into(self.population)

    def another_label(self) -> None:
        """Allowed: the owner says that it is another column. Its batch has a ledger of its own."""
        population = self.declare(f"another {self.world.tried}", ["publisher"], "0.9")
        self.into(population)

    def from_files(self) -> None:
        """The command's way: a file, a population that is new or was renamed."""
        world, services = self.world, self.world.party.services
        path = world.home.parent / f"labels-{world.tried}.parquet"
        rows = self.rows(self.overlapping() if self.rng.random() < 0.5 else [VICTIM, *OTHERS])
        rules: dict[str, Any] = {"missing_label": 0, "audiences": self.audiences, "four_eyes": self.four_eyes}
        if self.units:
            rules |= {"unit_column": "person", "max_examples_per_unit": 5}
        own = self.rng.random() < 0.6
        name, label, lifetime = f"people-{self.number}-1", self.label, self.lifetime
        if not own:
            name, label, lifetime = f"file-{world.tried}", self.spelled(), "5"
        columns = {"unit": "person", "label": label}
        path.write_bytes(_parquet({columns.get(name, name): column for name, column in rows.items()}))
        declared = parse_population(name, label, Domain.parse("0:10"), lifetime, **rules)
        request = self.request() | {"additional_release": self.rng.random() < 0.5}
        request.pop("prior", None)
        try:
            wanted = parse_request(services, declared, **request)
            out = path.with_suffix(".out")
            told = privatize(services, path, declared, wanted, out, actor=person("Mallory"))
            world.transcript.append((world.move, told.get("state", "written"), str(told["epsilon"])))
        except LabelDPError as error:
            world.transcript.append((world.move, error.code))
            world.refused += 1

    def schedule(self) -> None:
        world = self.world
        template = self.request() | {"additional_release": self.rng.random() < 0.5}
        population = self.rng.choice((self.population, self.declare(self.spelled(), ["publisher"], "9")))
        body = {"presence": "public", "seal_at": self.later(), "release": template}
        answer = world.call("POST", f"/populations/{population}/batches", json=body)
        if answer.status_code == 201:
            self.listed = False
            batch = str(answer.json()["id"])
            self.send(batch, self.rows(self.overlapping()))
            world.clock.move(days=2)
            world.drain()
            world.call("GET", f"/batches/{batch}")
        world.call("PATCH", f"/batches/{self.batch}", json={"seal_at": self.later(), "release": template})
        world.call("PATCH", f"/batches/{self.batch}", json={"release": template | {"additional_release": True}})
        world.clock.move(days=2)

    def cancel(self) -> None:
        """Before a draw the charge comes back, once; afterwards it stays."""
        release = self.release(self.batch, additional_release=True)
        if self.rng.random() < 0.5:
            self.world.drain()
        for _ in range(2 if release else 0):
            self.world.call("POST", f"/releases/{release}/cancel")
        for release in [r for r in self.published() if self.world.told[r].manifest.batch == self.batch][:2]:
            self.world.call("POST", f"/releases/{release}/cancel")

    def change_the_sealed(self) -> None:
        world, batch = self.world, self.batch
        rows = self.rows([VICTIM])
        world.call("POST", f"/batches/{batch}/labels?mode={self.rng.choice(('insert', 'upsert'))}", json=rows)
        world.call("DELETE", f"/batches/{batch}/labels", json={"example_id": [VICTIM]})
        world.call("PUT", f"/batches/{batch}/examples", json={"example_id": [VICTIM]})
        world.call("DELETE", f"/batches/{batch}")
        world.call("POST", f"/batches/{batch}/seal")
        self.ask_for_more()

    def erase(self) -> None:
        world = self.world
        world.call("POST", f"/populations/{self.population}/erasures", json={"example_ids": [VICTIM]})
        world.drain()
        self.ask_for_more()
        self.into(self.rng.choice((self.population, self.declare(self.spelled(), ["publisher"], "9"))))

    def purge(self) -> None:
        world = self.world
        world.drain()
        world.call("POST", f"/batches/{self.batch}/purge")
        self.ask_for_more()
        self.into(self.rng.choice((self.population, self.declare(self.spelled(), ["publisher"], "9"))))

    def as_receiver(self) -> None:
        world, receiver = self.world, self.world.receivers[self.rng.choice(AUDIENCES)]
        self.release(self.batch, receiver, additional_release=True)
        world.call("PUT", f"/batches/{self.batch}/examples", receiver, json={"example_id": [VICTIM]})
        for release in self.published()[:2]:
            world.call("POST", f"/releases/{release}/approve", receiver)
            world.call("POST", f"/releases/{release}/cancel", receiver)

    def restart(self) -> None:
        self.world.close()
        self.world.start()
        self.ask_again()


WEIGHTS = {
    "ask_again": 4,
    "ask_for_more": 8,
    "take_what_is_left": 1,
    "another_key": 3,
    "repeat_with_keys": 3,
    "rename_population": 5,
    "overlap": 5,
    "another_label": 1,
    "from_files": 4,
    "schedule": 3,
    "cancel": 4,
    "change_the_sealed": 2,
    "erase": 2,
    "purge": 1,
    "as_receiver": 2,
    "restart": 1,
}
LAST = frozenset({"purge", "erase"})  # then there is little left to learn
PER_ATTACK = 25  # attempts on one label before the next one


def run(world: World, attempts: int, moves: Iterable[str] = tuple(WEIGHTS)) -> None:
    """Make that many attempts, a new label after every few, and compare after each. Raises Leak."""
    names = list(moves)
    attack = None
    for number in range(attempts):
        if attack is None or number % PER_ATTACK == 0:
            world.move = "opening"
            attack = Attack(world, number // PER_ATTACK)
        world.tried += 1
        early = number % PER_ATTACK < PER_ATTACK * 2 // 3
        weights = [WEIGHTS[name] / (20 if early and name in LAST else 1) for name in names]
        (world.move,) = world.rng.choices(names, weights)
        getattr(attack, world.move)()
        world.drain()
        world.check()
        world.whole += 1
    world.pull(again=True)


def _csv(rows: dict[str, list[Any]]) -> bytes:
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    return "\n".join(lines).encode()


def _parquet(rows: dict[str, list[Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    return sink.getvalue()


def _quiet(_what: str, _share: float) -> None:
    pass
