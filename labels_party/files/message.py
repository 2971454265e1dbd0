"""Message on files: labels in, one signed, privatized message out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from label_dp.documents.bundle import ENVELOPE_SUFFIX
from label_dp.documents.manifest import Manifest
from label_dp.documents.signing import MANIFEST_TYPE, open_envelope
from label_dp.errors import Conflict, InvalidFile, InvalidInput
from label_dp.progress import Progress
from label_dp.store.output_files import paid_for
from labels_party.bootstrap import Services
from labels_party.contents import of_message
from labels_party.files.jobs import ACTOR, again, charged, finish, refuse_early, still_unfinished, waits
from labels_party.labels.batch_uses import ACCEPTED
from labels_party.labels.batches import Batch
from labels_party.ledger.populations import Population
from labels_party.message.clipping import far_out
from labels_party.message.kind import charge_details
from labels_party.message.plan import ReleaseRequest, make_plan
from labels_party.message.priors import read_prior
from labels_party.message.request import RELEASE
from labels_party.work.kind import RELEASES


@dataclass(frozen=True)
class Message:
    """Errand that releases a message. `warned` gets warnings before the charge."""

    request: ReleaseRequest
    out: Path
    actor: str = ACTOR
    warned: Callable[[str], None] = lambda _: None
    elsewhere: str = "name it, and ask for an additional release (--population, --additional-release)"

    def ready(self, _services: Services, _population: Population) -> None:
        check_target(self.out)

    def check(self, services: Services, population: Population, n: int) -> None:
        plan = make_plan(self.request, population, max(n, 1))
        refuse_early(services, population, plan.split, charge_details(plan, False), self.actor, "the release")

    def start(self, services: Services, batch: Batch, population: Population) -> str:
        bought, epsilon = self.request.clipping
        if bought and (useless := far_out(bought, epsilon, batch.n or 1, population.domain)) is not None:
            self.warned(f"ε {epsilon} may be too little for clipping at {':'.join(bought)}: {useless}.")
        unfinished = still_unfinished(services, batch.id, RELEASE)
        plan = services.message.plan(batch, population, self.request).plan if unfinished else {}
        for waiting in unfinished:
            # finish what an interrupted run left charged instead of charging again, also an additional release
            if waiting.plan == plan:
                return waiting.id
            if not self.request.asked.additional_release and waiting.state != ACCEPTED:
                raise Conflict(
                    f"An interrupted run left release '{waiting.id}' of these examples charged with other settings. "
                    f"Finish it with: labels-party message {waiting.id} --out FILE; or add a charge on top with "
                    "--additional-release."
                )
        ask = services.work.ask
        return charged(services, batch.id, RELEASES, lambda: ask(services.message, batch.id, self.request, self.actor))

    def deliver(self, services: Services, name: str, progress: Progress) -> dict[str, Any]:
        work = services.database.read("release.look", lambda c: services.work.get(c, name, RELEASES))
        if work.state == ACCEPTED:
            return {"release": name} | waits(services, work, self.out)
        finish(services, name, RELEASES, lambda what, share: progress(what, 0.4 + 0.55 * share))
        progress("writing the message", 0.97)
        with paid_for(again(RELEASES, name)):
            return write_out(services, name, self.out)


def check_target(out: Path) -> None:
    """Refuse an output that exists, or whose folder does not. Raises InvalidInput."""
    for role in ("message", "envelope", "prior"):
        if _beside(out, role).exists():
            raise InvalidInput(
                f"'{_beside(out, role)}' exists already; a message is never overwritten. Choose another name."
            )
    if not out.parent.is_dir():
        raise InvalidInput(f"The folder '{out.parent}' for the message does not exist.")


def write_out(services: Services, release_id: str, out: Path) -> dict[str, Any]:
    """Copy a published message and its manifest; complete files appear under their names, the message last."""
    check_target(out)
    files = services.database.read("release.files", lambda c: services.work.files(c, release_id))
    parts = [f for f in files if f.role == "message"]
    sources = {file.name: services.work.shelf.local(file) for file in files}
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True) as folder:
            temporary = Path(folder, out.name)
            temporary.mkdir()
            for name, source in sources.items():
                shutil.copyfile(source, temporary / name)
            envelope = (temporary / files[0].name).read_bytes()
            if len(parts) > 1:
                temporary.rename(out)
            else:
                for file in reversed(files):
                    (temporary / file.name).replace(_beside(out, file.role))
    except OSError as error:
        raise InvalidFile(f"'{out}' cannot be written ({error.strerror or 'its disk refused'}).") from None
    key = services.own_keys.of(envelope)
    payload = open_envelope(envelope, key, MANIFEST_TYPE, max_bytes=1 << 22)
    manifest, prior = Manifest.from_payload(payload), next((f for f in files if f.role == "prior"), None)
    probabilities = None if prior is None else read_prior(services.work.shelf.local(prior), manifest.domain)
    names = [out / f.name for f in files] if len(parts) > 1 else [_beside(out, f.role) for f in files]
    return of_message(manifest, probabilities) | {
        "message": str(out),
        "files": [str(name) for name in names],
        "labels_key": str(services.own_keys.public_file(key)),
    }


def _beside(out: Path, role: str) -> Path:
    if role == "envelope":
        return out.with_name(out.name + ENVELOPE_SUFFIX)
    return out if role == "message" else out.with_name(out.stem + ".prior.parquet")
