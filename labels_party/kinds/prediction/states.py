"""What a predictor has learned, at rest: encrypted under a key of its own, beside the sealed labels it was made of.

It is derived from raw labels, so it never leaves, lies where they lie, is protected as they are and is deleted with
them. How many bytes it has follows from public numbers alone: every array has a fixed shape and type.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from labels_party.labels.vault import LabelVault
from labels_party.storage.secrets import Secrets
from shared.errors import Unavailable

Arrays = Mapping[str, npt.NDArray[Any]]
NONCE, LENGTH = 12, 8


class StateStore:
    def __init__(self, vault: LabelVault, secrets_: Secrets) -> None:
        self.vault, self.secrets = vault, secrets_

    def put(self, key: str, arrays: Arrays) -> None:
        """Durable when it returns. Raises Unavailable."""
        buffer = io.BytesIO()
        plain: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        np.savez(buffer, **plain)
        nonce = secrets.token_bytes(NONCE)
        sealed = nonce + self._cipher(key).encrypt(nonce, buffer.getvalue(), key.encode())
        framed = len(sealed).to_bytes(LENGTH, "little") + sealed
        words = np.frombuffer(framed + bytes(-len(framed) % 16), "<u8").astype(np.uint64)
        half = len(words) // 2
        self.vault.put_run(key, words[:half], words[half:])  # raw words: not even compression sees what they say

    def get(self, key: str) -> dict[str, npt.NDArray[Any]]:
        """Raises Unavailable: it is gone, or was damaged."""
        try:
            framed = b"".join(np.asarray(part, "<u8").tobytes() for part in self.vault.run(key))
            sealed = framed[LENGTH : LENGTH + int.from_bytes(framed[:LENGTH], "little")]
            plain = self._cipher(key).decrypt(sealed[:NONCE], sealed[NONCE:], key.encode())
        except (OSError, ValueError, InvalidTag):
            raise Unavailable("What this predictor learned cannot be read; nothing was charged.") from None
        with np.load(io.BytesIO(plain), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}

    def _cipher(self, key: str) -> AESGCM:
        return AESGCM(self.secrets.derive("predictor:" + key, 32))
