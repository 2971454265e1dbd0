"""Port of backups and restores to a party: its home, its tables, and the files that the tables name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy.engine import Connection

from label_dp.audit.events import Event
from label_dp.audit.store import AuditStore
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import NotFound
from label_dp.store.database import Database
from label_dp.store.faults import FaultHook, no_faults
from label_dp.store.home import PartyHome
from label_dp.store.migrations import DatabaseSchema

if TYPE_CHECKING:
    from label_dp.http.settings import ServiceSettings

Side = Literal["labels", "features"]
Signer = Callable[[bytes, Sequence[Event], Path], VerifyingKey]


@dataclass(frozen=True)
class BackupPart:
    """File or folder that a row names, by its path below the home; in a store a key, or a prefix of keys. A backup
    without a `needed` one is incomplete. `most`: only the first bytes count."""

    path: str
    needed: bool = True
    most: int | None = None


@dataclass
class Evidence:
    """Facts after a backup: later `events` of this party's own chain, documents `accepted` by other parties that even
    this chain lacks, and a sentence for each."""

    events: list[Event] = field(default_factory=list)
    accepted: list[Event] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Party:
    """Party in a backup. `parts` are the files named in a connection's snapshot, `private` the files of `keys/` with
    them, `stored` the names of all objects in a store.

    `signer` returns the key of the other party's export, by the events and the home of a backup. `settle` makes a
    restored database safe to continue and lists its changes; with `charges_lost` also one older than `Evidence`.
    `without`: tables left out.
    """

    side: Side
    settings: ServiceSettings
    home: PartyHome
    schema: DatabaseSchema
    audit: AuditStore
    parts: Callable[[Connection], list[BackupPart]]
    private: Callable[[Connection], list[str]]
    signer: Signer
    settle: Callable[[Connection, Path, Evidence], list[str]]
    charges_lost: bool = False
    stored: Callable[[], set[str]] | None = None
    rooms_stored: tuple[str, ...] = ()
    without: frozenset[str] = frozenset({"sessions", "leases"})

    @property
    def command(self) -> str:
        return f"{self.side}-party"

    @property
    def setting(self) -> str:
        """Prefix of its settings."""
        return f"{self.side.upper()}_PARTY_"

    def in_store(self, path: str) -> bool:
        return self.stored is not None and path.partition("/")[0] in self.rooms_stored

    def existing(self, faults: FaultHook = no_faults) -> Database:
        """Open the database without migrating it. Raises NotFound if there is none."""
        if self.settings.database_url is None and not (self.home.path / f"{self.command}.sqlite").exists():
            raise NotFound(
                f"There is no {self.side} party in '{self.home.path}' yet. Set {self.setting}HOME to its folder, or "
                "make one with keygen."
            )
        return Database(self.settings.url, faults=faults)


def key_files(home: PartyHome) -> dict[str, dict[str, Path]]:
    """Map paths below `keys/` to files: public ones with their facts, and private ones."""
    paths = sorted(path for path in home.keys.rglob("*") if path.is_file() and not path.name.startswith("."))
    names = {path.relative_to(home.keys).as_posix(): path for path in paths}
    return {
        "public": {name: path for name, path in names.items() if path.suffix in (".pub", ".json")},
        "private": {name: path for name, path in names.items() if path.suffix == ".key"},
    }
