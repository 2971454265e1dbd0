"""An attacker with the owner's and the receivers' keys who wants more out of one label than its budget.

It makes seeded attempts (`averaging_moves`), reads every message as a receiver does, and after each one compares what
all of them together say of the chosen example with what the ledger charged for it. A ledger that gave too much away
raises `Leak`, which names the seed and the attempt.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi.testclient import TestClient
from pydantic import ValidationError

from tests.support.labels import FakeClock, LabelsParty
from tests.support.posterior import NoisyCounts, Posterior, Told, told

VICTIM = "4711"
OTHERS = [f"c-{i}" for i in range(7)]
K = 11
AUDIENCES = ("ad-network", "publisher")
IDS = re.compile(r"(?:pop|bat|rel|era)_[0-9a-f]{24}|apikey:[0-9a-f]{12}")
DRAWN = frozenset({"manifest_sha256", "files"})  # they show the randomized labels, which ε has paid for


class Leak(AssertionError):
    """The messages say more about the example than the ledger charged for it."""


def read_alike(label: str) -> str:
    """Label names with one value here name one column, and share one budget."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold()).strip()


class World:
    """One labels party under attack. `y` is the position of the chosen example's label, all else is `seed`'s."""

    def __init__(
        self,
        home: Path,
        seed: int,
        counts: dict[str, NoisyCounts],
        y: int = 9,
        other: int = 1,
        database_url: str | None = None,
    ) -> None:
        self.seed, self.counts, self.y, self.other = seed, counts, y, other
        self.rng, self.clock, self.home = random.Random(seed), FakeClock(), home
        self.database_url = database_url
        self.transcript: list[tuple[Any, ...]] = []
        self.tried = self.whole = self.refused = self.charged = 0
        self.share = 0.0  # largest part of a charged ε that the drawn messages gave away
        self.move, self.planted = "start", False
        self.told: dict[str, Told] = {}
        self.bytes: dict[str, tuple[bytes, ...]] = {}
        self.declared: set[bytes] = {np.full(K, 1 / K).tobytes()}
        self.names: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        self.party = LabelsParty(self.home, database_url=self.database_url, clock=self.clock, worker=False)
        self.owner, self.colleague = self.party.client(), self.party.client()
        self.audiences: dict[str, list[TestClient]] = {}
        self.receivers = {name: self.party.client("features", name) for name in AUDIENCES}

    def close(self) -> None:
        self.party.__exit__()

    # --- calls --------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, client: TestClient | None = None, **options: Any) -> httpx.Response:
        """Any call; what it answers goes into the transcript, but for what the randomized labels decide."""
        self.clock.move(seconds=1)
        answer = (client or self.owner).request(method, f"/v1{path}", **options)
        assert answer.status_code < 500, self.about(answer.text)
        refused = answer.status_code >= 400
        body = answer.json() if answer.content else None
        shown = {k: v for k, v in body.items() if k not in DRAWN} if isinstance(body, dict) else body
        said = IDS.sub(self._alias, json.dumps(shown, sort_keys=True, ensure_ascii=False))
        length = None if "files" in (body or ()) else answer.headers.get("content-length")
        self.transcript.append((self.move, method, answer.status_code, said, length))
        self.refused += refused
        return answer

    def _alias(self, found: re.Match[str]) -> str:
        return self.names.setdefault(found[0], f"{found[0][:3]}-{len(self.names)}".ljust(len(found[0]), "-"))

    def drain(self) -> None:
        """Have everything drawn that waits. Where a bug is planted, a manifest may refuse to state what it made."""
        try:
            self.party.services.worker.drain()
        except ValidationError:
            if not self.planted:
                raise

    def about(self, what: str) -> str:
        return f"seed {self.seed}, attempt {self.tried} ({self.move}): {what}"

    # --- what the receivers know --------------------------------------------------------------------------

    def pull(self, *, again: bool = False) -> None:
        """Read every new message; with `again` all of them, as each receiver: they must be the same for ever."""
        for listed in self.owner.get("/v1/releases?limit=1000").json():
            readers = list(self.receivers.values()) if again else self._readers(listed["population"])[:1]
            for receiver in readers if again or listed["id"] not in self.told else []:
                self._read(receiver, listed["id"])

    def _readers(self, population: str) -> list[TestClient]:
        if population not in self.audiences:
            told = self.owner.get(f"/v1/populations/{population}").json()
            self.audiences[population] = [self.receivers[name] for name in told["audiences"]]
        return self.audiences[population]

    def _read(self, receiver: TestClient, release: str) -> None:
        path = f"/v1/releases/{release}"
        parts = [receiver.get(f"{path}/{part}") for part in ("manifest", "message", "files/prior.parquet")]
        found = tuple(p.content for p in parts if p.status_code == 200)
        if not found:
            return  # a message for others
        if self.bytes.setdefault(release, found) != found:
            raise Leak(self.about(f"release {release} was drawn again"))
        if release not in self.told:
            prior = found[2] if len(found) > 2 else None
            key = self.party.services.key.public
            self.told[release] = told(found[0], found[1], prior, key, VICTIM, self.y, self.other)
            self.charged += 1

    def spent(self, populations: Iterable[str]) -> dict[str, tuple[Fraction, Fraction]]:
        """By batch: what the ledger charged for its examples, and the lifetime ε of its population."""
        found = {}
        for population in populations:
            answer = self.owner.get(f"/v1/populations/{population}/budget")
            if answer.status_code != 200:
                raise Leak(self.about(f"messages are out and their ledger does not add up: {answer.text}"))
            report = answer.json()
            for batch in report["batches"]:
                found[batch["batch"]] = Fraction(batch["epsilon_spent"]), Fraction(report["epsilon_lifetime"])
        return found

    def check(self) -> None:
        """Compare what all messages say of the chosen example with what was charged for it. Raises Leak."""
        self.pull()
        spent = self.spent({m.manifest.population.id for m in self.told.values() if m.present})
        by_label: dict[str, list[Told]] = defaultdict(list)
        for message in self.told.values():
            if message.present:
                by_label[read_alike(message.manifest.population.label)].append(message)
        total, everything = Fraction(0), Posterior(self.y, self.other)
        self._check_priors()
        for label, messages in by_label.items():
            batches = {m.manifest.batch for m in messages}
            if len(batches) > 1:
                raise Leak(self.about(f"the example is in {len(batches)} released batches of label '{label}'"))
            charged, lifetime = spent[batches.pop()]
            posterior = Posterior(self.y, self.other)
            for message in messages:
                counts = self.counts.get(message.manifest.id)
                posterior.learn(message, counts)
                everything.learn(message, counts)
            self._compare(sum((m.charge for m in messages), Fraction(0)), posterior, charged, lifetime)
            total += charged
        if not everything.within(total):
            raise Leak(self.about("all labels together say more than was charged for them"))

    def _compare(self, promised: Fraction, posterior: Posterior, charged: Fraction, lifetime: Fraction) -> None:
        if not promised <= charged <= lifetime:
            raise Leak(self.about(f"messages of ε {promised}, charged {charged}, lifetime {lifetime}"))
        if not posterior.within(charged):
            raise Leak(self.about(f"the messages say more than the charged ε {charged}"))
        self.share = max(self.share, posterior.gained() / float(charged))

    def _check_priors(self) -> None:
        """Every prior is one that its message paid for, one that such a message brought, or public. Raises Leak."""
        paid = {m.prior for m in self.told.values() if m.manifest.prior.source == "estimated"}
        for message in self.told.values():
            source = message.manifest.prior.source
            if source == "estimated" and message.manifest.id not in self.counts:
                raise Leak(self.about("an estimated prior without noise"))
            if message.prior not in {None, *paid, *self.declared}:
                raise Leak(self.about(f"a prior that nobody paid for: {source}"))
