"""Download of a release to a name of ours: verify the manifest first, then each file as it arrives."""

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
    """Message in its place; `fresh` is False if it lay there already, byte for byte."""

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
    """Bring release `release` to `out`: NAME.parquet with envelope and prior beside it, or a folder if it has several
    parts.

    No partial file is left, and nothing unverified gets its final name. The same message there stays, or is fetched
    again if it is damaged; `force` replaces anything else. It is not accounted for (`Arrivals.pull` does that). Raises
    VerificationFailed kinds, Conflict (not published yet), InvalidInput (`out` is taken), InvalidFile, NotFound,
    Unavailable.
    """
    target = CopyTarget.of(offered(service, release, choose_key, audience), out)
    if target.intact():
        return LocalMessage.at(target, fresh=False)
    if not force:
        target.refuse_other()
    with target.beside() as temporary:
        fetch_files(service, target.offer.manifest, temporary, progress)
    return LocalMessage.at(target, fresh=True)
