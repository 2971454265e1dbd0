"""Fetching a release to a name of ours: the manifest first, verified; then each file, verified while it comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from features_party.receive.fetching import fetch_files
from features_party.receive.labels_service import LabelsService
from features_party.receive.offers import ChooseKey, offered
from features_party.receive.placing import CopyTarget
from label_dp.documents.manifest import Manifest
from label_dp.progress import Progress


@dataclass(frozen=True)
class LocalMessage:
    """A message in its place; `fresh` is False where it was there already, byte for byte."""

    path: Path
    manifest: Manifest
    digest: str
    bytes: int
    fresh: bool

    @staticmethod
    def at(target: CopyTarget, *, fresh: bool) -> LocalMessage:
        offer = target.offer
        return LocalMessage(target.path, offer.manifest, offer.digest, offer.bytes, fresh)


def pull(
    service: LabelsService,
    release: str,
    choose_key: ChooseKey,
    audience: str,
    out: Path,
    progress: Progress,
    *,
    force: bool = False,
) -> LocalMessage:
    """Bring release `release` to `out`: NAME.parquet with its envelope and prior beside it, or a folder of that name
    where the message has several parts. Nothing half-written is left, and nothing unverified gets its final name.

    The same message there already stays, or is fetched again where it is damaged; anything else there is replaced with
    `force` only. It is not accounted for (`Arrivals.pull` does that). Raises VerificationFailed kinds, Conflict (not
    published yet), InvalidInput (`out` is taken), InvalidFile, NotFound, Unavailable.
    """
    target = CopyTarget.of(offered(service, release, choose_key, audience), out)
    if target.intact():
        return LocalMessage.at(target, fresh=False)
    if not force:
        target.refuse_other()
    with target.beside() as temporary:
        fetch_files(service, target.offer.manifest, temporary, progress)
    return LocalMessage.at(target, fresh=True)
