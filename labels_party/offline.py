"""The whole job on files, for the command line: the same services that the API calls, in one go."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labels_party.bootstrap import Services
from labels_party.budget.ledger import Account, judge
from labels_party.budget.populations import Population
from labels_party.labels.batches import Batch
from labels_party.labels.from_files import FileBatches, file_columns
from labels_party.labels.label_file import LabelFile
from labels_party.labels.parsing import ID
from labels_party.labels.seal import SameExamples
from labels_party.labels.standing import PUBLISHED
from labels_party.release.clipping import far_out
from labels_party.release.plan import ReleaseRequest, make_plan
from labels_party.release.releases import ACCEPTED, WORKING, Release, given_prior_json
from shared.channel_lattice import LatticeChannel
from shared.errors import AlreadyReleased, BudgetExceeded, Conflict, InvalidInput
from shared.message.bundle import ENVELOPE_SUFFIX
from shared.message.manifest import Manifest
from shared.message.signing import MANIFEST_TYPE, open_envelope
from shared.privacy import ZERO
from shared.service.cli import Progress

ACTOR = "command line"


@dataclass(frozen=True)
class PrivatizeJob:
    labels: Path
    id_column: str
    label_column: str
    population: Population
    request: ReleaseRequest
    out: Path
    examples: Path | None = None
    actor: str = ACTOR


def privatize(
    services: Services, job: PrivatizeJob, progress: Progress, warned: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Labels file in, signed message out. `warned` is told, before the charge, what is allowed and not advisable.

    Raises typed errors; a refusal leaves no batch, charge or file behind.
    """
    _check_target(job.out)
    progress("reading", 0.02)
    wanted = file_columns(job.population, job.id_column, job.label_column, listed=job.examples is not None)
    labels = LabelFile.open(job.labels, wanted["labels"])
    examples = None
    if job.examples is not None:
        examples = LabelFile.open(job.examples, wanted["examples"], names_are_public=True)
    _check_request(job, (labels if examples is None else examples).rows or 1)
    batch, population, note = _sealed_batch(services, job, labels, examples, progress)
    bought, epsilon = job.request.clip_quantiles, job.request.clip_epsilon
    if bought and (useless := far_out(bought, epsilon, batch.n or 1, population.domain)) is not None:
        warned(f"ε {epsilon} may be too little for clipping at {':'.join(bought)}: {useless}.")
    release = _release(services, batch, population, job.request, job.actor)
    if release.state == ACCEPTED:
        return waiting_for_approval(release, population, job.out)
    finish(services, release.id, lambda what, share: progress(what, 0.4 + 0.55 * share))
    progress("writing the message", 0.97)
    return write_out(services, release.id, job.out) | ({"note": note} if note else {})


def _check_request(job: PrivatizeJob, n: int) -> None:
    """Whatever can be refused without labels is refused before a batch is sealed, which cannot be undone."""
    if job.population.four_eyes and job.actor == ACTOR:
        raise InvalidInput("In a four-eyes population say who asks for the release: --as NAME.")
    plan = make_plan(job.request, job.population, max(n, 1))
    verdict = judge(Account(job.population.lifetime, ZERO), plan.split)
    if isinstance(verdict, BudgetExceeded):
        raise verdict


def _check_target(out: Path) -> None:
    for role in ("message", "envelope", "prior"):
        if _beside(out, role).exists():
            raise InvalidInput(
                f"'{_beside(out, role)}' exists already; a message is never overwritten. Choose another name for --out."
            )
    if not out.parent.is_dir():
        raise InvalidInput(f"The folder '{out.parent}' for --out does not exist.")


def _sealed_batch(
    services: Services, job: PrivatizeJob, labels: LabelFile, examples: LabelFile | None, progress: Progress
) -> tuple[Batch, Population, str]:
    """The batch, its population, and what its owner should know of it."""
    files = FileBatches(services.populations, services.batches, services.sealer)
    population = services.database.read("population.look", lambda c: files.declared(c, job.population))
    try:
        batch = files.seal(population, labels, examples, ACTOR, lambda n: _check_request(job, n), progress)
    except SameExamples as same:
        sealed, owner = _look(services, same.batch)
        if owner.id != population.id:
            raise Conflict(
                f"{same.detail} It belongs to population '{owner.name}': say --population and --additional-release."
            ) from None
        note = f"these examples were sealed at {sealed.sealed}; the labels of then were used, not this file's"
        return sealed, owner, note
    return (*_look(services, batch.id), "")


def _look(services: Services, batch_id: str) -> tuple[Batch, Population]:
    return services.database.read("batch.look", lambda c: services.batches.get(c, batch_id))


def waiting_for_approval(release: Release, population: Population, out: Path) -> dict[str, Any]:
    """What is said of a release that a second person has yet to approve."""
    next_step = (
        f"nothing is charged yet: a second person runs  labels-party approve {release.id} --as NAME ; "
        f"then  labels-party message {release.id} --out {out}  writes the message"
    )
    told = {"release": release.id, "batch": release.batch, "population": population.name, "state": release.state}
    return told | {"epsilon": release.plan["epsilon"], "requested_by": release.requested_by, "next": next_step}


def _release(services: Services, batch: Batch, population: Population, request: ReleaseRequest, actor: str) -> Release:
    """A new charged release, or the one that an interrupted run left charged."""
    standing = services.database.read("release.standing", lambda c: services.releases.of_batch(c, batch.id))
    for waiting in (r for r in standing if r.state in (ACCEPTED, *WORKING)):
        # what an interrupted run left charged is finished, not charged again, also when it was an additional release
        if _is_same(waiting, batch, population, request):
            return waiting
        if not request.additional_release and waiting.state != ACCEPTED:
            raise Conflict(
                f"An interrupted run left release '{waiting.id}' of these examples charged with other settings. "
                f"Finish it with: labels-party message {waiting.id} --out FILE; or add a charge on top with "
                "--additional-release."
            )
    try:
        _, answer = services.releases.request(batch.id, request, actor)
    except AlreadyReleased as error:
        published = [r for r in standing if r.state == PUBLISHED]
        again = (
            f" To write its message once more, free of charge: labels-party message {published[-1].id} --out FILE."
            if published
            else ""
        )
        raise AlreadyReleased(error.detail + again) from None
    return services.database.read("release.look", lambda c: services.releases.get(c, answer["id"]))


def _is_same(waiting: Release, batch: Batch, population: Population, request: ReleaseRequest) -> bool:
    assert batch.n is not None
    asked = make_plan(request, population, batch.n).as_json() | {"given_prior": given_prior_json(request)}
    return all(waiting.plan.get(member) == value for member, value in asked.items())


def finish(services: Services, release_id: str, progress: Progress) -> Release:
    """Run the release here, or wait for the worker of a running service that took it."""
    while True:
        services.pipeline.run(release_id, progress)
        release = services.database.read("release.look", lambda c: services.releases.get(c, release_id))
        if release.state not in WORKING:
            break
        time.sleep(0.2)
    if release.state == ACCEPTED:
        raise Conflict(f"Release '{release_id}' waits for a second person: labels-party approve {release_id} --as NAME")
    if release.state != PUBLISHED:
        detail = (release.problem or {}).get("detail", "see the service's log")
        raise Conflict(f"Release '{release_id}' failed: {detail}")
    return release


def write_out(services: Services, release_id: str, out: Path) -> dict[str, Any]:
    """Copy a published message beside its manifest; all files appear under their names, the message last."""
    _check_target(out)
    files = services.database.read("release.files", lambda c: services.releases.files(c, release_id))
    parts = [f for f in files if f.role == "message"]
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        for file in files:
            shutil.copyfile(services.home.releases / file.path, temporary / file.name)
        envelope = (temporary / files[0].name).read_bytes()
        if len(parts) > 1:
            temporary.rename(out)
        else:
            for file in reversed(files):
                (temporary / file.name).replace(_beside(out, file.role))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    payload = open_envelope(envelope, services.key.public, MANIFEST_TYPE, max_bytes=1 << 22)
    names = [out / f.name for f in files] if len(parts) > 1 else [_beside(out, f.role) for f in files]
    return summary(Manifest.from_payload(payload)) | {
        "message": str(out),
        "files": [str(name) for name in names],
        "labels_key": str(services.home.public_key_path),
    }


def _beside(out: Path, role: str) -> Path:
    if role == "envelope":
        return out.with_name(out.name + ENVELOPE_SUFFIX)
    return out if role == "message" else out.with_name(out.stem + ".prior.parquet")


def summary(manifest: Manifest) -> dict[str, Any]:
    """What a person wants to know of a message; everything from the manifest, nothing from labels."""
    channel = manifest.read_channel()
    domain = manifest.read_domain()
    data: dict[str, Any] = {
        "release": manifest.release,
        "batch": manifest.batch,
        "population": manifest.population.name,
        "label": manifest.population.label,
        "audiences": list(manifest.audiences),
        "created": manifest.created,
        "examples": manifest.n,
        "domain": manifest.domain.get("range", f"{domain.k} listed values"),
        "clipping": None if manifest.clipping is None else manifest.clipping.summary(),
        "mechanism": manifest.mechanism.name,
        "loss": manifest.loss,
        "epsilon": manifest.epsilon,
        "epsilon_spent": manifest.epsilon_spent,
        "epsilon_lifetime": manifest.epsilon_lifetime,
        "channel_epsilon": str(channel.epsilon),
        "prior": manifest.prior.source,
        "expected_label_loss": None if manifest.expected_loss is None else float(manifest.expected_loss),
        "outputs": [float(v) for v in channel.outputs[:64]],
        "key_id": manifest.key_id,
    }
    if isinstance(channel, LatticeChannel):
        data["lattice"] = {
            "from": float(channel.outputs[0]),
            "to": float(channel.outputs[-1]),
            "step": channel.lattice_step,
            "outputs": channel.m,
        }
    if channel.m == 1:
        data["note"] = "there is one output only, so this message says nothing about single labels; n or ε is too small"
    boundaries = getattr(channel, "boundaries", None)
    if boundaries is not None:
        values = domain.values
        ends = [int(b) for b in boundaries]
        data["bins"] = [
            {"from": float(values[a]), "to": float(values[b - 1]), "output": float(v)}
            for a, b, v in zip(ends[:-1], ends[1:], channel.outputs, strict=True)
        ]
    return data


__all__ = ["ID", "PrivatizeJob", "finish", "privatize", "summary", "write_out"]
