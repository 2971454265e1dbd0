"""Audit of ε on made-up labels: a labels party of its own with the configuration of a population, asked over HTTP.

A release of a channel that does not depend on labels draws each row for itself. So one release of many rows, half with
one label and half with another, is as many trials of two neighbouring data sets. That is not so where a prior is
estimated: it depends on all rows, and one release is one trial. Nothing is read of the population but its declaration.
As control each audit is repeated on a leak that was planted: the same mechanism at a multiple of the ε that is judged.

`audit_canaries` bounds the ε of one published message by labels that the owner drew by coins. It restates Steinke, Nasr
& Jagielski 2023 for labels in place of membership. Kalemaj et al. 2025 (arXiv 2511.14084; only the abstract was read)
audit without a change of the data; that would take true labels, which no ε paid for, so coins stand for them.
"""

from __future__ import annotations

import csv
import io
import math
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
import uvicorn

from label_dp.audit.policies import policy_rules
from label_dp.channels.base import Channel
from label_dp.documents.bundle import Bundle, verify
from label_dp.documents.canonical import digest
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import iter_message
from label_dp.documents.signing import MANIFEST_TYPE, VerifyingKey, open_envelope
from label_dp.domain import Domain
from label_dp.errors import Conflict, InvalidFile, RemoteProblem
from label_dp.http.connection import Connection
from label_dp.prior_cells import prior_cells
from label_dp.privacy import Epsilon
from label_dp.progress import Progress
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.release import MECHANISMS
from label_dp.store.output_files import replacing
from labels_party.api.app import create_app
from labels_party.bootstrap import Services, bootstrap
from labels_party.client import LabelsPartyClient
from labels_party.companions.audit_bounds import audit, epsilon_bound, guess_bound, power
from labels_party.files.message import write_out
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.ledger.populations import Population
from labels_party.mechanisms.catalogue import get_mechanism
from labels_party.settings import Settings
from labels_party.work.kind import RELEASES

CONSISTENT, EXCEEDS, INCONCLUSIVE = "consistent", "exceeds", "inconclusive"
LEAK, PRIOR_LEAK = 2, 6  # multiples of ε that are planted; an estimated prior has few trials
PRIOR, PRIOR_EPSILON, OF_PRIOR = "estimated prior", "1", "0.95"
LABELS_TRIED, GROUPS = 33, 64  # labels that may be the worst pair; groups of outputs that are told apart
LIFETIME = Epsilon.parse("1000000")  # of the made-up population
NOT_COVERED = "bought clipping bounds, and answers: sums, medians, calibrations, predictions and others"


def judgement(subject: str, budget: Epsilon, bound: float, leak: int | None, control: float, most: float) -> JsonObject:
    """Judge a lower bound by the ε that was charged, and by whether the planted leak of `leak` times as much was found
    (None: of the true labels themselves)."""
    epsilon = float(budget.fraction)
    otherwise = CONSISTENT if control > epsilon else INCONCLUSIVE
    return {
        "mechanism": subject,
        "epsilon": str(budget),
        "lower_bound": round(bound, 4),
        "largest_provable": round(most, 4),
        "control": {
            "epsilon": "unbounded" if leak is None else str(Epsilon(leak * budget.nano)),
            "lower_bound": round(control, 4),
        },
        "verdict": EXCEEDS if bound > epsilon else otherwise,
    }


def verdict_of(rows: list[JsonObject]) -> str:
    """Return the worst verdict; none at all is inconclusive."""
    verdicts = {str(row["verdict"]) for row in rows} or {INCONCLUSIVE}
    return next(verdict for verdict in (EXCEEDS, INCONCLUSIVE, CONSISTENT) if verdict in verdicts)


def audit_population(
    party: Services,
    name: str,
    mechanisms: tuple[str, ...],
    epsilon: str,
    report: Progress,
    *,
    trials: int = 30_000,
    prior_trials: int = 60,
    confidence: float = 0.95,
) -> JsonObject:
    """Audit the mechanisms (all, if none is named) that a population of `party` offers, at `epsilon` each: by `trials`
    rows of each label, and priors by `prior_trials` releases. Raises InvalidEpsilon, InvalidMechanism, NotFound."""

    def look(connection: sa.Connection) -> tuple[Population, tuple[str, ...] | None]:
        ceilings = policy_rules(party.audit, connection).ceilings
        return party.populations.get(connection, name), ceilings.mechanisms

    for mechanism in mechanisms:
        get_mechanism(mechanism)
    budget = Epsilon.parse(epsilon, positive=True, name="--epsilon")
    population, allowed = party.database.read("audit.population", look)
    subjects = mechanisms or (*MECHANISMS, PRIOR)
    alpha = (1 - confidence) / len(subjects)
    rows, refused = list[JsonObject](), dict[str, str]()
    with temporary_party(population) as trial:
        for place, subject in enumerate(subjects):
            report(subject, place / len(subjects))
            if allowed is not None and subject not in (*allowed, PRIOR):
                refused[subject] = "The organisation's policy does not allow it."
                continue
            try:
                row = (
                    trial.prior(prior_trials, alpha)
                    if subject == PRIOR
                    else trial.channel(subject, budget, trials, alpha)
                )
            except RemoteProblem as refusal:
                refused[subject] = refusal.detail
            else:
                rows.append(row)
    return {
        "population": population.name,
        "domain": str(population.domain),
        "confidence": confidence,
        "trials": trials,
        "prior_trials": prior_trials,
        "mechanisms": [*rows],
        "not_offered": {**refused},
        "not_covered": NOT_COVERED,
        "verdict": verdict_of(rows),
    }


@contextmanager
def temporary_party(population: Population) -> Iterator[Trial]:
    """Serve a labels party of default settings on a free loopback port, with this population and none of its labels."""
    with tempfile.TemporaryDirectory(prefix="label-dp-audit-") as folder:
        # settings of the environment are those of the real party: its home, its database, its issuer
        services = bootstrap(Settings.model_construct(home=Path(folder, "home"), poll_seconds=0.05))
        _, key = services.apikeys.create("owner", None)
        own = {"people": None, "four_eyes": False, "retention_days": None, "events": None}
        made_up = replace(population, lifetime=LIFETIME, alert_percent=(), plain={**population.plain, **own})
        services.database.write("audit.population", lambda c: services.populations.create(c, made_up, "audit"))
        app, listener = create_app(services), socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(app, http=Connection, ws="none", log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(trust_env=False, timeout=60) as http:
                yield Trial(LabelsPartyClient(url, key, http=http), made_up, services.key.public)
        finally:
            server.should_exit = True
            thread.join()


@dataclass(frozen=True)
class Trial:
    """Trials of made-up labels, asked of the temporary party."""

    client: LabelsPartyClient
    population: Population
    key: VerifyingKey
    batches: dict[tuple[tuple[int, ...], int], str] = field(default_factory=dict)

    def channel(self, mechanism: str, epsilon: Epsilon, trials: int, alpha: float) -> JsonObject:
        """Audit the draws of a mechanism on the two labels that its own channel tells apart best."""
        prior = {"prior": "uniform"} if get_mechanism(mechanism).needs_prior({}) else {}
        options = {"tight": True} if mechanism == "exponential" else {}
        bounds, pair = [], (0, self.population.domain.k - 1)
        for times in (1, LEAK):
            wish = {"mechanism": mechanism, "epsilon": str(Epsilon(times * epsilon.nano)), **prior, **options}
            manifest, files = self._message(self._request(self._batch(pair, trials), wish))
            channel = manifest.read_channel()
            if times == 1 and (worst := worst_pair(channel, pair)) != pair:
                pair = worst
                manifest, files = self._message(self._request(self._batch(pair, trials), wish))
            bins = pa.concat_tables([pq.read_table(io.BytesIO(files[f.name])) for f in manifest.message_files])["bin"]
            symbols = output_groups(channel, pair)[bins.to_numpy()]
            bounds.append(audit(symbols[0::2].tolist(), symbols[1::2].tolist(), alpha))  # rows are sorted by their ids
        row = judgement(mechanism, epsilon, bounds[0], LEAK, bounds[1], power(math.inf, trials, alpha))
        return row | {"labels": [self.population.domain.text(position) for position in pair]}

    def prior(self, trials: int, alpha: float) -> JsonObject:
        """Audit a prior that is estimated from one label, as the published prior shows it: by which of the two cells in
        question has more mass. The event is fixed beforehand, so that all trials bound it."""
        domain, bounds = self.population.domain, []
        for times in (1, PRIOR_LEAK):
            total, share = (str(Epsilon(times * Epsilon.parse(part).nano)) for part in (PRIOR_EPSILON, OF_PRIOR))
            wish = {"epsilon": total, "prior": "estimate", "prior_epsilon": share}
            wish |= {"mechanism": "rr-with-prior" if domain.nominal else "rr-on-bins"}
            hits = []
            for label in (0, domain.k - 1):
                batch = self._batch((label,), 1)
                releases = [self._request(batch, wish) for _ in range(trials)]  # drawn while others are asked for
                hits.append(sum(self._first_cell_wins(release) for release in releases))
            bounds.append(max(0.0, epsilon_bound(hits[0], trials, hits[1], trials, alpha)))
        most = max(0.0, epsilon_bound(trials, trials, 0, trials, alpha))
        row = judgement(PRIOR, Epsilon.parse(PRIOR_EPSILON), bounds[0], PRIOR_LEAK, bounds[1], most)
        return row | {"labels": [*_ends(domain)]}

    def _first_cell_wins(self, release: str) -> bool:
        manifest, files = self._message(release)
        entry, cells, domain = manifest.prior_file, manifest.prior.cells, manifest.domain
        assert entry is not None
        assert cells is not None
        probabilities = pq.read_table(io.BytesIO(files[entry.name]))["probability"].to_numpy()
        masses = np.add.reduceat(probabilities, prior_cells(domain.k, cells, domain.from_zero)[:-1])
        return bool(masses[0] > masses[-1])

    def _batch(self, positions: tuple[int, ...], each: int) -> str:
        """Return a sealed batch of `each` rows of each label, in turns; each row is an example of its own unit."""
        if (positions, each) not in self.batches:
            domain, n = self.population.domain, each * len(positions)
            values = pa.array(domain.names) if domain.names else pa.array(domain.values)
            ids = pa.array([f"{'-'.join(map(str, positions))}/{row:08d}" for row in range(n)])
            table = pa.table({"example_id": ids, "label": values.take(pa.array(np.resize(positions, n)))})
            unit = "unit" if self.population.unit.unit_column else None
            batch = str(self.client.open_batch(self.population.name, presence="public")["id"])
            self.client.add_labels(batch, table if unit is None else table.append_column(unit, ids), unit_column=unit)
            self.client.seal(batch)
            self.batches[positions, each] = batch
        return self.batches[positions, each]

    def _request(self, batch: str, wish: dict[str, Any]) -> str:
        return str(self.client.release(batch, **wish, additional_release=True)["id"])

    def _message(self, release: str) -> tuple[Manifest, dict[str, bytes]]:
        """Return the manifest of a release once it is published, and its files by their names."""
        names = [str(file["name"]) for file in self.client.wait(release)["files"]]
        files = {name: self.client.message_file(release, name) for name in names}
        payload = open_envelope(files[names[0]], self.key, MANIFEST_TYPE, max_bytes=1 << 22)
        return Manifest.from_payload(payload), files


def worst_pair(channel: Channel, pair: tuple[int, int]) -> tuple[int, int]:
    """Return the two labels, among some of the domain, that the channel tells apart best by total variation; `pair` if
    none are told apart better."""
    positions = np.unique(np.linspace(0, channel.k - 1, LABELS_TRIED).astype(np.int64)).tolist()
    rows = np.concatenate([channel.rows(position, position + 1) for position in positions])
    best = float(np.abs(channel.rows(pair[0], pair[0] + 1) - channel.rows(pair[1], pair[1] + 1)).sum()) * (1 + 1e-6)
    for place, row in enumerate(rows):
        distance = np.abs(rows - row).sum(axis=1)
        if distance.max() > best:
            best, pair = float(distance.max()), (positions[place], positions[int(distance.argmax())])
    return min(pair), max(pair)


def output_groups(channel: Channel, pair: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Return the group of each output, int64[m]: the output itself if there are few, else one of GROUPS by the odds
    that the channel states for it. The draws do not decide it."""
    if channel.m <= GROUPS:
        return np.arange(channel.m)
    left, right = (channel.rows(position, position + 1)[0] for position in pair)
    order = np.lexsort((np.arange(channel.m), np.round(np.log(left) - np.log(right), 9)))
    groups = np.empty(channel.m, np.int64)
    groups[order] = np.minimum(np.cumsum((left + right)[order]) * (GROUPS / 2), GROUPS - 1).astype(np.int64)
    return groups


# --- canaries ------------------------------------------------------------------------------------------------


def make_canaries(party: Services, name: str, count: int, out: Path, force: bool) -> JsonObject:
    """Write ids with labels that fair coins chose among the first and the last of a population's domain, to be sent in
    with the labels of a batch. The digest of the file, noted before, shows later that nobody chose afterwards."""
    domain = party.database.read("audit.population", lambda c: party.populations.get(c, name)).domain
    labels = _ends(domain)
    lines = [f"{secrets.token_hex(16)},{labels[secrets.randbelow(2)]}" for _ in range(count)]
    with replacing(out, force) as path:
        path.write_text("\n".join(["example_id,label", *lines, ""]), encoding="utf-8")
    return {"canaries": count, "labels": [*labels], "file": str(out), "sha256": digest(out.read_bytes())}


def audit_canaries(party: Services, release: str, file: Path, confidence: float) -> JsonObject:
    """Bound the ε of a published message from below by how often its outputs alone tell the labels of canaries. Raises
    Conflict, InvalidFile, NotFound."""
    work = party.database.read("audit.release", lambda c: party.work.get(c, release, RELEASES))
    if work.state != PUBLISHED:
        raise Conflict(f"Release '{release}' is {work.state}; audit a published one.")
    with tempfile.TemporaryDirectory(prefix="label-dp-audit-") as folder:
        message = Path(folder, "message.parquet")
        write_out(party, release, message)
        verified = verify(message, party.own_keys.of(Bundle(message).envelope()), None)
        manifest = verified.manifest
        coins = read_canaries(file, manifest.public_domain)
        tables = iter_message([*verified.paths], manifest)
        rows = pa.concat_tables([t.filter(pc.is_in(t["example_id"], pa.array(coins))) for t in tables])
    first = np.array([coins[name] == 0 for name in rows["example_id"].to_pylist()], np.bool_)
    right, guesses = guess(manifest.read_channel(), rows["bin"].to_numpy(), first, 1 - confidence)
    bound, most = (guess_bound(hits, guesses, 1 - confidence) for hits in (right, guesses))
    return judgement(manifest.mechanism.name, manifest.epsilon.total, bound, None, most, most) | {
        "release": release,
        "canaries": len(coins),
        "in_message": len(rows),
        "guesses": guesses,
        "right": right,
        "confidence": confidence,
        "sha256": digest(file.read_bytes()),
    }


def read_canaries(file: Path, domain: Domain) -> dict[str, int]:
    """Return 0 or 1 by id: which of the two labels a canary has. Raises InvalidFile."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [(row["example_id"], row["label"]) for row in csv.DictReader(lines)]
        coins = {name: _ends(domain).index(label) for name, label in rows}
    except (OSError, ValueError, KeyError, csv.Error):
        coins, rows = {}, []
    if not coins or len(coins) < len(rows):
        raise InvalidFile(
            f"'{file}' is no CSV file of example_id and label with distinct ids and the first or the last label of the "
            "domain; take one that --make-canaries wrote."
        )
    return coins


def guess(channel: Channel, bins: npt.NDArray[np.int64], first: npt.NDArray[np.bool_], alpha: float) -> tuple[int, int]:
    """Return how many guesses were right, and how many there were. The likelier label is guessed where the channel's
    odds are clearest: outputs and channel alone decide where, and how often."""
    left, right = channel.rows(0, 1)[0][bins], channel.rows(channel.k - 1, channel.k)[0][bins]
    sure = np.maximum(left, right) / (left + right)
    order = np.argsort(-sure, kind="stable")
    expected = np.floor(np.cumsum(sure[order])).astype(np.int64)
    counts = np.unique(np.linspace(min(1, bins.size), bins.size, GROUPS).astype(np.int64)).tolist()
    best = max(counts, key=lambda n: guess_bound(int(expected[n - 1]), n, alpha) if n else 0.0)
    return int(np.sum((left > right)[order[:best]] == first[order[:best]])), best


def _ends(domain: Domain) -> list[str]:
    return [domain.text(0), domain.text(domain.k - 1)]
