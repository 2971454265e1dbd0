"""Daily pull: wait for releases published for us, fetch the missing ones."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from features_party.receive.labels_service import LabelsService, ReleaseEntry
from features_party.receive.offers import ENDED, ChooseKey
from features_party.receive.pull import LocalMessage
from label_dp.documents.bundle import Bundle, verify
from label_dp.errors import Conflict, InvalidInput, LabelDPError, Unavailable
from label_dp.progress import Progress

Bring = Callable[[str, Path, Progress], LocalMessage]
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class Patience:
    """Time to wait, in seconds; 0 does not wait. The labels party may be unreachable meanwhile."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until(self, look: Callable[[], bool], progress: Progress, what: Callable[[], str]) -> bool:
        """Call `look` with growing pauses until it returns True; return False when the time is up. Raises as `look`,
        except for Unavailable while time remains."""
        began, pause = self.clock(), FIRST_PAUSE
        while True:
            remaining = began + self.seconds - self.clock()
            try:
                if look():
                    return True
            except Unavailable:
                if remaining <= 0:
                    raise
            if remaining <= 0:
                return False
            progress(f"waiting, {what()}, {self.seconds - remaining:.0f} s of {self.seconds:.0f} s", 0.0)
            self.sleep(min(pause, remaining))
            pause = min(pause * 1.5, LONGEST_PAUSE)


def await_published(
    service: LabelsService, name: str, patience: Patience, progress: Progress, *, noun: str = "release"
) -> None:
    """Wait until a release or an answer is published. Raises NotFound, Conflict if it never will be, Unavailable when
    the time is up."""
    state = "unknown"

    def look() -> bool:
        nonlocal state
        word = (service.release_state if noun == "release" else service.answer)(name).get("state")
        state = word if isinstance(word, str) and len(word) < 40 and word.isprintable() else "unknown"
        if state in ENDED:
            raise Conflict(
                f"{noun.capitalize()} '{name}' is {state} and will not be published; ask the labels party why."
            )
        return state == "published"

    if not patience.until(look, progress, lambda: f"{noun} {state}"):
        raise Unavailable(
            f"{noun.capitalize()} '{name}' was not published within {patience.seconds:g} seconds; its state is {state}."
        )


def first_day(service: LabelsService, since: str) -> str:
    """Return the day `since`, or the publication day of the release `since`. Raises InvalidInput, Conflict,
    NotFound."""
    if _DAY.fullmatch(since):
        return since
    if not since.startswith("rel_"):
        raise InvalidInput("Give --since a day such as 2026-11-01, or the id of a release (rel_…).")
    published = service.release_state(since).get("published")
    if not isinstance(published, str) or not _DAY.fullmatch(published[:10]):
        raise Conflict(f"Release '{since}' is not published yet, so nothing has been since.")
    return published[:10]


def pull_since(
    service: LabelsService,
    since: str,
    population: str | None,
    choose_key: ChooseKey,
    audience: str,
    folder: Path,
    patience: Patience,
    progress: Progress,
    *,
    bring: Bring,
    arrived: Callable[[LocalMessage], object] = lambda _message: None,
) -> list[dict[str, Any]]:
    """Have `bring` fetch every release published on the day of `since` or later to `folder`/REL.parquet, oldest first.

    Intact files are skipped, so that a call may be repeated; `arrived` is called with each of them. With patience it
    first waits for a new release. Returns every release listed, with its message. Raises as `bring`; messages pulled so
    far stay.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"The folder '{folder}' cannot be made ({error.strerror}); choose another --out.") from None
    day = first_day(service, since)
    listed_releases: list[ReleaseEntry] = []
    here: dict[str, LocalMessage] = {}

    def look() -> bool:
        listed_releases[:] = service.published(day, population)
        for entry in listed_releases:
            if entry.id not in here and (message := _there(folder, entry, choose_key, audience)) is not None:
                here[entry.id] = message
        return any(entry.id not in here for entry in listed_releases)

    if patience.seconds > 0:
        if not patience.until(look, progress, lambda: "nothing new"):
            raise Unavailable(f"Nothing new was published for us within {patience.seconds:g} seconds.")
    else:
        look()
    for local_message in here.values():
        arrived(local_message)
    missing = [entry.id for entry in listed_releases if entry.id not in here]
    for number, release in enumerate(missing):
        part = _part(progress, f"{number + 1} of {len(missing)}", number, len(missing))
        target = folder / f"{release}.parquet"
        here[release] = bring(release, target, part)
    return [_result(entry, here[entry.id]) for entry in listed_releases]


def _part(progress: Progress, label: str, number: int, total: int) -> Progress:
    return lambda what, share: progress(f"{label}, {what}", (number + share) / total)


def _there(folder: Path, entry: ReleaseEntry, choose_key: ChooseKey, audience: str) -> LocalMessage | None:
    path = folder / f"{entry.id}.parquet"
    try:
        verified_message = verify(path, choose_key(Bundle(path).envelope()), audience)
    except LabelDPError:
        return None
    if verified_message.digest != entry.manifest_sha256 or verified_message.manifest.id != entry.id:
        return None
    return LocalMessage(
        path,
        verified_message.manifest,
        verified_message.digest,
        sum(f.bytes for f in verified_message.manifest.files),
        fresh=False,
    )


def _result(entry: ReleaseEntry, message: LocalMessage) -> dict[str, Any]:
    return {
        "release": entry.id,
        "published": entry.published,
        "population": message.manifest.population.name,
        "rows": message.manifest.n,
        "bytes": message.bytes,
        "epsilon": str(message.manifest.epsilon.total),
        "message": str(message.path),
        "fresh": message.fresh,
    }
