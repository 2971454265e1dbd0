"""A file of known size, continued where its download broke off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import httpx

from shared.client.conversation import MORE, Conversation, Open, Request, Retried
from shared.errors import Unavailable

Bytes = Callable[[int], None]


def download(where: str, name: str, size: int, target: Path, received: Bytes = lambda _n: None) -> Conversation[None]:
    """Stream `size` bytes into `target`; `received` is called with how many there are. Raises Unavailable."""
    with target.open("wb") as file:
        yield Retried(lambda: _rest(where, name, size, file, received))


def _rest(where: str, name: str, size: int, file: BinaryIO, received: Bytes) -> Conversation[None]:
    """What is missing. Raises TransportError where it breaks off again."""
    have = file.tell()
    request = Request("GET", where, headers={"Range": f"bytes={have}-"} if have else {})
    response: httpx.Response = yield Open(request, stored=True)
    if have and response.status_code == 200:  # the server sends all of it again
        file.seek(0)
        file.truncate()
        have = 0
    # as it arrives: what was read of a piece of fixed size would be lost when the connection breaks
    while (piece := (yield MORE)) is not None:
        have += len(piece)
        if have > size:
            raise Unavailable(f"The labels party sent more bytes of '{name}' than its manifest states.")
        file.write(piece)
        received(have)
    if have < size:
        raise httpx.ReadError(f"'{name}' broke off")
