"""Home folder of a party: its signing key in `keys/`, and the rooms that the party declares."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from label_dp.documents.signing import SigningKey
from label_dp.store.folders import fsync_folder, make_private


class Room:
    """Folder of a home, by its path below it."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get__(self, home: PartyHome, _: Any = None) -> Path:
        return home.path.joinpath(*self.names)


@dataclass(frozen=True)
class PartyHome:
    """Home folder of a party. `setting` names the setting of its path."""

    path: Path
    setting: ClassVar[str] = ""
    keys = Room("keys")

    @property
    def private_key(self) -> Path:
        return self.keys / "signing.key"

    @property
    def public_key(self) -> Path:
        return self.keys / "signing.pub"

    def prepare(self) -> None:
        """Create the rooms, readable by their owner only. Raises Unavailable."""
        rooms = [room for of in type(self).__mro__ for room in vars(of).values() if isinstance(room, Room)]
        make_private(self.path, sorted(room.__get__(self) for room in rooms), self.setting)

    def own_key(self) -> SigningKey:
        """Load our signing key, made on first use; its public half lies beside it for the other party."""
        private, public = self.private_key, self.public_key
        if not private.exists():
            # a second process may be quicker; then its key is used
            with contextlib.suppress(FileExistsError):
                SigningKey.generate().save(private, public)
            fsync_folder(private.parent)
        key = SigningKey.load(private)
        if not public.exists():
            public.write_bytes(key.public.pem)
        return key
