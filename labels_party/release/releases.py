"""Releases in the database: accepted → charged → drawing → published, or failed. Charge first (invariant 2)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from labels_party.budget.populations import Population
from labels_party.budget.store import Ledger
from labels_party.labels.batches import Batch, Batches, require_sealed, timestamp
from labels_party.labels.standing import CHARGED, PUBLISHED, refuse_second
from labels_party.notify.outbox import APPROVAL_REQUESTED, Outbox
from labels_party.release.plan import Plan, ReleaseRequest, make_plan
from labels_party.storage.idempotency import NO_KEY, Answer, IdempotentCall
from labels_party.storage.tables import batches as batches_table
from labels_party.storage.tables import release_files, releases
from shared.audit.events import REQUESTED
from shared.errors import Conflict, NotFound
from shared.privacy import Epsilon
from shared.service.database import Database

ACCEPTED, DRAWING = "accepted", "drawing"
WORKING = (CHARGED, DRAWING)


@dataclass(frozen=True)
class ReleaseFile:
    name: str
    role: str
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Release:
    id: str
    batch: str
    state: str
    plan: dict[str, Any]
    attempt: int
    lease_owner: str | None
    lease_until: float | None
    created: str
    published: str | None
    manifest_sha256: str | None
    problem: dict[str, Any] | None
    requested_by: str | None = None
    approved_by: str | None = None
    approved: str | None = None


class Releases:
    def __init__(self, database: Database, batches: Batches, ledger: Ledger, outbox: Outbox) -> None:
        self.database, self.batches, self.ledger, self.outbox = database, batches, ledger, outbox

    def request(
        self,
        batch_id: str,
        request: ReleaseRequest,
        actor: str,
        call: IdempotentCall = NO_KEY,
        claim: Callable[[Connection, str], None] | None = None,
    ) -> Answer:
        """Transaction 1: charge the ledger and store the work, in one. Returns (202, the release).

        In a four-eyes population nothing is charged yet: the release is `accepted` and waits for `Approvals`.
        `claim` gets the release's id in the same transaction and may refuse it. Raises Conflict (batch not sealed),
        AlreadyReleased, BudgetExceeded, InvalidInput; then nothing was charged.
        """
        batch, population = self.database.read("release.look", lambda c: self.batches.get(c, batch_id))
        earlier = self.database.read("release.seen", call.earlier)
        if earlier is not None:
            return earlier
        require_sealed(batch)
        assert batch.n is not None
        plan = make_plan(request, population, batch.n)

        def charge(connection: Connection) -> Answer:
            def effect() -> Answer:
                now, _ = self.batches.get(connection, batch_id)
                require_sealed(now)
                refuse_second(connection, batch_id, additional=request.additional_release)
                release_id = "rel_" + secrets.token_hex(12)
                details = charge_details(plan, request.additional_release)
                if population.four_eyes:
                    self.ledger.check(connection, population, batch_id, plan.split)
                    details |= {"epsilon": plan.split.as_json()}
                    self.ledger.note(connection, REQUESTED, population, batch_id, release_id, actor, details)
                else:
                    self.ledger.charge(connection, population, batch_id, release_id, plan.split, actor, details)
                extra = {"given_prior": given_prior_json(request), "additional_release": request.additional_release}
                row = {
                    "id": release_id,
                    "batch": batch_id,
                    "state": ACCEPTED if population.four_eyes else CHARGED,
                    "plan": plan.as_json() | extra,
                    "attempt": 0,
                    "created": timestamp(self.batches.clock()),
                    "requested_by": actor,
                }
                connection.execute(sa.insert(releases).values(**row))
                if population.four_eyes:
                    self.tell(connection, APPROVAL_REQUESTED, release_id)
                if claim is not None:
                    claim(connection, release_id)
                return 202, self.describe(connection, self.get(connection, release_id), population)

            return call.once(connection, effect)

        return self.database.write("release.charge", charge)

    # --- reading ------------------------------------------------------------------------------------------

    def get(self, connection: Connection, release_id: str) -> Release:
        # what is not printable is no id, and not every database takes it as a parameter
        row = (
            release_id.isprintable()
            and connection.execute(sa.select(releases).where(releases.c.id == release_id)).first()
        )
        if not row:
            raise NotFound(f"There is no release '{release_id}'.")
        return Release(**row._mapping)

    def population_of(self, connection: Connection, release: Release) -> tuple[Batch, Population]:
        return self.batches.get(connection, release.batch)

    def of_batch(self, connection: Connection, batch_id: str) -> list[Release]:
        query = sa.select(releases).where(releases.c.batch == batch_id).order_by(releases.c.created, releases.c.id)
        return [Release(**row._mapping) for row in connection.execute(query)]

    def of_population(self, connection: Connection, population: str) -> list[Release]:
        query = (
            sa.select(releases)
            .join(batches_table, batches_table.c.id == releases.c.batch)
            .where(batches_table.c.population == population)
            .order_by(releases.c.created, releases.c.id)
        )
        return [Release(**row._mapping) for row in connection.execute(query)]

    def working(self, connection: Connection) -> list[Release]:
        query = sa.select(releases).where(releases.c.state.in_(WORKING)).order_by(releases.c.created, releases.c.id)
        return [Release(**row._mapping) for row in connection.execute(query)]

    def files(self, connection: Connection, release_id: str) -> list[ReleaseFile]:
        """The published files, the envelope first. Raises Conflict before publication."""
        release = self.get(connection, release_id)
        if release.state != PUBLISHED:
            raise Conflict(
                f"Release '{release_id}' is {release.state}; its message can be fetched once it is published."
            )
        t = release_files
        query = sa.select(t).where(t.c.release == release_id).order_by(t.c.position)
        return [ReleaseFile(r.name, r.role, r.path, r.bytes, r.sha256) for r in connection.execute(query)]

    def describe(self, connection: Connection, release: Release, population: Population) -> dict[str, Any]:
        """What the API and the command line show: state and ε split at any time; digests once published."""
        plan = Plan.from_json(release.plan)
        data: dict[str, Any] = {
            "id": release.id,
            "batch": release.batch,
            "population": population.id,
            "state": release.state,
            "mechanism": plan.mechanism,
            "loss": plan.loss_name,
            "epsilon": plan.split.as_json(),
            "prior": {"source": plan.prior_source, "release": plan.carried_from},
            "clip_quantiles": list(plan.clip_quantiles) or None,
            "created": release.created,
            "published": release.published,
            "manifest_sha256": release.manifest_sha256,
            "files": [],
            "problem": release.problem,
            "requested_by": release.requested_by,
            "approved_by": release.approved_by,
            "approved": release.approved,
        }
        if release.state == PUBLISHED:
            listed = self.files(connection, release.id)
            data["files"] = [{"name": f.name, "role": f.role, "bytes": f.bytes, "sha256": f.sha256} for f in listed]
        return data

    def tell(self, connection: Connection, event: str, release_id: str) -> None:
        """Queue a notice of a release's new state, in the transaction that changed it: what its audience may see."""
        release = self.get(connection, release_id)
        _, population = self.population_of(connection, release)
        described = self.describe(connection, release, population)
        data = {name: described[name] for name in ("id", "batch", "population", "state", "mechanism", "loss")}
        data |= {name: described[name] for name in ("epsilon", "manifest_sha256", "files")}
        data |= {"published": release.published and release.published[:10], "audiences": list(population.audiences)}
        self.outbox.queue(connection, event, population.id, data)

    def spent(self, connection: Connection, batch_id: str) -> Epsilon:
        return self.ledger.spent(connection, batch_id)


def charge_details(plan: Plan, additional_release: bool) -> dict[str, Any]:
    """What the audit event of a charge, or of the request for it, says besides ε."""
    details = {
        "mechanism": plan.mechanism,
        "loss": plan.loss_name,
        "prior": plan.prior_source,
        "carried_from": plan.carried_from,
        "additional_release": additional_release,
    }
    return details | ({"clip_quantiles": list(plan.clip_quantiles)} if plan.clip_quantiles else {})


def given_prior_json(request: ReleaseRequest) -> list[float] | None:
    return None if request.given_prior is None else [float(p) for p in request.given_prior]
