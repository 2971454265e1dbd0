"""Messages as a kind of charged work: privatized files and the signed manifest that describes them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from label_dp.documents.canonical import digest
from label_dp.documents.manifest import FileEntry, Manifest, MechanismChoice, PriorRef
from label_dp.documents.signing import MANIFEST_TYPE, SigningKey
from label_dp.domain import Domain
from label_dp.errors import LabelDPError, Unavailable
from label_dp.schemas.json_types import JsonObject
from label_dp.schemas.release import Release
from labels_party.labels.batches import ID_LIST, Batch
from labels_party.ledger.populations import Population
from labels_party.message.clipping import describe
from labels_party.message.plan import ReleasePlan, ReleaseRequest, make_plan
from labels_party.message.priors import PublishedPriors
from labels_party.message.request import RELEASE, make_request
from labels_party.work.charged import charged_members
from labels_party.work.kind import RELEASES, Job, PlannedWork, SchemaKind, SignedFiles, Work, WorkFile

if TYPE_CHECKING:
    from labels_party.message.engine import Engine, MessageDraw, MessageFile


class MessageKind(SchemaKind[Release, ReleaseRequest]):
    """Kind of work that draws a message."""

    name = RELEASE
    family = RELEASES
    schema = Release
    told = ("mechanism", "loss")
    large = True

    def __init__(self, priors: PublishedPriors, engine: Engine, key: SigningKey, rows_per_file: int) -> None:
        self.priors, self.engine, self.key, self.rows_per_file = priors, engine, key, rows_per_file

    def wish(self, population: Population, body: Release) -> ReleaseRequest:
        return make_request(self.priors, population, body)

    def plan(self, batch: Batch, population: Population, wish: ReleaseRequest) -> PlannedWork:
        assert batch.n is not None
        plan, additional = make_plan(wish, population, batch.n), wish.asked.additional_release
        self.engine.check(plan, population.domain)
        details = charge_details(plan, additional)
        return PlannedWork(RELEASE, plan.split, plan_json(plan, wish), details, additional)

    def draw(self, job: Job) -> SignedFiles:
        # imported here: only a draw needs numba, scipy and opendp
        from labels_party.message.engine import DrawJob

        plan = ReleasePlan.from_json(job.work.plan)
        prior = job.work.plan["given_prior"]
        assert job.batch.id_bytes is not None
        message_draw = self.engine.draw(
            DrawJob(
                population=job.population,
                plan=plan,
                labels=job.labels,
                n=job.n,
                id_bytes=job.batch.id_bytes,
                given_prior=None if prior is None else np.asarray(prior, np.float64),
                folder=job.folder,
                rows_per_file=self.rows_per_file,
                progress=job.progress,
                groups=job.labels.groups,
            )
        )
        entries = [_entry(job.folder, file) for file in message_draw.files]
        population, about = job.population, (job.work.id, job.batch, job.population, job.population.audiences)
        key = self.key.now()
        members = charged_members(key.public.id, *about, job.today, plan.split, *job.spent())
        manifest = build_manifest(plan, message_draw, entries, job.batch, population.domain, members)
        envelope = key.sign(MANIFEST_TYPE, manifest.document())
        files = tuple(WorkFile(e.name, e.role, e.bytes, e.sha256) for e in entries)
        return SignedFiles(envelope, digest(manifest.payload()), files)

    def largest(self, job: Job, files: int) -> int:
        from label_dp.documents.rows import largest_encoding
        from labels_party.message.engine import largest_prior

        n, id_bytes = job.n, job.batch.id_bytes or 0
        rows = largest_encoding(n, id_bytes, n) + files * largest_encoding(0, 0, 1)
        return super().largest(job, files) + rows + largest_prior(job.population.domain.k)

    def described(self, work: Work) -> dict[str, Any]:
        plan = ReleasePlan.from_json(work.plan)
        return {
            "mechanism": plan.mechanism,
            "loss": plan.loss_name,
            "prior": {"source": plan.prior_source, "release": plan.carried_from},
            "clip_quantiles": list(plan.clip_quantiles) or None,
        } | dict(plan.stated)

    def failure(self, error: Exception) -> LabelDPError:
        return error if isinstance(error, LabelDPError) else LabelDPError("The draw failed; see the log.")


def charge_details(plan: ReleasePlan, additional_release: bool) -> JsonObject:
    """Return the details of a charge's (or its request's) audit event besides ε."""
    details = {
        "mechanism": plan.mechanism,
        "loss": plan.loss_name,
        "prior": plan.prior_source,
        "carried_from": plan.carried_from,
        "additional_release": additional_release,
    }
    return details | ({"clip_quantiles": list(plan.clip_quantiles)} if plan.clip_quantiles else {}) | dict(plan.stated)


def plan_json(plan: ReleasePlan, wish: ReleaseRequest) -> JsonObject:
    """Return the plan as stored, with the request's prior."""
    given_prior = wish.given
    return plan.as_json() | {
        "given_prior": None if given_prior is None else [float(p) for p in given_prior.probabilities]
    }


def _entry(folder: Path, written_file: MessageFile) -> FileEntry:
    """Describe a file. Raises Unavailable if it differs from what was written: a shared file system may lose bytes."""
    path = folder / written_file.name
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if written_file.sha256 not in (None, sha256):
        raise Unavailable("A file of the message is not what was written; the release stays charged and is drawn anew.")
    size = path.stat().st_size
    return FileEntry(role=written_file.role, name=written_file.name, bytes=size, rows=written_file.rows, sha256=sha256)  # type: ignore[arg-type]  # engine's roles


def build_manifest(
    plan: ReleasePlan,
    drawn: MessageDraw,
    entries: list[FileEntry],
    batch: Batch,
    public: Domain,
    members: dict[str, Any],
) -> Manifest:
    """Build the unsigned manifest. `public` is the domain that the owner declared; `members` are common to all kinds of
    documents."""
    clipping = describe(plan.clip_quantiles, plan.split.clip, public, drawn.domain)
    return Manifest(
        **members | {"domain": drawn.domain},
        domain_source="declared public by the owner" if clipping is None else "bought with ε_clip",
        presence="id list given before labels counted" if batch.presence == ID_LIST else "declared public by the owner",
        mechanism=MechanismChoice(name=drawn.mechanism, why=drawn.why),
        loss=plan.loss_name,
        channel=drawn.channel.as_json(),
        expected_loss=None if drawn.expected_loss is None else repr(drawn.expected_loss),
        prior=PriorRef(
            source=plan.prior_source,  # type: ignore[arg-type]  # one of the plan's constants
            method=plan.prior_method,
            cells=None if plan.cells is None else min(len(plan.cells) - 1, drawn.domain.k),
            release=plan.carried_from,
        ),
        clipping=clipping,
        files=entries,
        **plan.stated,
    )
