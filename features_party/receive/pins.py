"""Facts of a pinned key: its owner, origin, day of pinning and end of trust. They lie beside the key, in
`keys/pinned/*.json`, because verifying a document opens no database."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile
from label_dp.moments import DAY
from label_dp.schemas.json_types import JsonObject
from label_dp.store.folders import write_durably

NOTED = ("name", "url", "pinned", "by", "origin", "expires", "revoked", "handed_over", "successor")


@dataclass(frozen=True)
class Pin:
    """Pinned key. Days and seconds are UTC. Every fact is None if unknown; pins of earlier versions have none.

    `url`: the labels party's service, by its invitation. `expires`: the last day of trust. `revoked`: the moment when
    trust ended. `handed_over`: the day on which the key named its `successor`, which belongs to the same labels party.
    """

    key: VerifyingKey
    name: str | None = None
    url: str | None = None
    pinned: str | None = None
    by: str | None = None
    origin: str | None = None
    expires: str | None = None
    revoked: str | None = None
    handed_over: str | None = None
    successor: str | None = None

    @property
    def until(self) -> str | None:
        """Last day for which the key signs."""
        ends = (self.expires, self.revoked, self.handed_over)
        return min((end[:DAY] for end in ends if end is not None), default=None)

    @property
    def trusted(self) -> VerifyingKey:
        """Key with the last day for which it signs."""
        return replace(self.key, until=self.until)

    def state(self, day: str) -> str:
        """Return the state on `day`: revoked, expired, handed over or pinned."""
        if self.revoked is not None:
            return "revoked"
        if self.expires is not None and day > self.expires:
            return "expired"
        return "pinned" if self.successor is None else "handed over"

    def as_json(self) -> JsonObject:
        return {"key_id": self.key.id} | {name: getattr(self, name) for name in NOTED}

    def save(self, folder: Path) -> None:
        """Write the facts before the key: a key without them would be trusted without an end."""
        named = folder / self.key.id.removeprefix("ed25519:")[:32]
        facts = {name: value for name, value in self.as_json().items() if value is not None}
        write_durably(named.with_suffix(".json"), json.dumps(facts, ensure_ascii=False, indent=1).encode())
        if not named.with_suffix(".pub").exists():
            write_durably(named.with_suffix(".pub"), self.key.pem)

    @classmethod
    def load(cls, public: Path) -> Pin:
        """Load the pin of the key in the file `public`. Raises InvalidFile."""
        key, notes = VerifyingKey.load(public), public.with_suffix(".json")
        try:
            data = json.loads(notes.read_bytes())
            facts = {name: data.get(name) for name in NOTED}
            whole = data["key_id"] == key.id and all(v is None or isinstance(v, str) for v in facts.values())
        except FileNotFoundError:
            return cls(key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            raise InvalidFile(f"'{notes}' does not say what is known of the pinned key; restore it from a backup.")
        return cls(key, **facts)
