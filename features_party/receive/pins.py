"""Facts of a pinned key: its owner, when and from where it came, and until when it is trusted.

It lies beside the key, in `keys/pinned/*.json`, because who only verifies a document opens no database.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from label_dp.documents.signing import VerifyingKey
from label_dp.errors import InvalidFile
from label_dp.moments import DAY
from label_dp.store.folders import write_durably

NOTED = ("name", "pinned", "by", "origin", "expires", "revoked", "handed_over", "successor")


@dataclass(frozen=True)
class Pin:
    """Days and seconds are UTC. All but `key` is None where nobody noted it: pins of earlier versions have none of it.

    `expires`: the last day on which something of the key is accepted. `revoked`: since when nothing is.
    `handed_over`: the day on which the key named its `successor`, whose documents are the same labels party's.
    """

    key: VerifyingKey
    name: str | None = None
    pinned: str | None = None
    by: str | None = None
    origin: str | None = None
    expires: str | None = None
    revoked: str | None = None
    handed_over: str | None = None
    successor: str | None = None

    @property
    def until(self) -> str | None:
        """The last day for which the key signs."""
        ends = (self.expires, self.revoked, self.handed_over)
        return min((end[:DAY] for end in ends if end is not None), default=None)

    @property
    def trusted(self) -> VerifyingKey:
        """The key, which knows the last day for which it signs."""
        return replace(self.key, until=self.until)

    def state(self, day: str) -> str:
        """What is true of it on `day`: revoked, expired, handed over or pinned."""
        if self.revoked is not None:
            return "revoked"
        if self.expires is not None and day > self.expires:
            return "expired"
        return "pinned" if self.successor is None else "handed over"

    def as_json(self) -> dict[str, Any]:
        return {"key_id": self.key.id} | {name: getattr(self, name) for name in NOTED}

    def save(self, folder: Path) -> None:
        """What is noted first: a key without its notes would be trusted without an end."""
        named = folder / self.key.id.removeprefix("ed25519:")[:32]
        noted = {name: value for name, value in self.as_json().items() if value is not None}
        write_durably(named.with_suffix(".json"), json.dumps(noted, ensure_ascii=False, indent=1).encode())
        if not named.with_suffix(".pub").exists():
            write_durably(named.with_suffix(".pub"), self.key.pem)

    @classmethod
    def load(cls, public: Path) -> Pin:
        """The pin of the key in the file `public`. Raises InvalidFile."""
        key, notes = VerifyingKey.load(public), public.with_suffix(".json")
        try:
            data = json.loads(notes.read_bytes())
            given = {name: data.get(name) for name in NOTED}
            whole = data["key_id"] == key.id and all(v is None or isinstance(v, str) for v in given.values())
        except FileNotFoundError:
            return cls(key)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            raise InvalidFile(f"'{notes}' does not say what is known of the pinned key; restore it from a backup.")
        return cls(key, **given)
