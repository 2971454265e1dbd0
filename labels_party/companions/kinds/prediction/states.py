"""The learned state of a predictor, at rest: encrypted under the key of its batch, beside the sealed labels it was made
of.

It is derived from raw labels, so it never leaves, lies where they lie, is protected as they are and is deleted with
them. How many bytes it has follows from public numbers alone: every array has a fixed shape and type.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from label_dp.errors import Unavailable
from labels_party.labels.vault import LabelVault

Arrays = Mapping[str, npt.NDArray[Any]]


class StateStore:
    def __init__(self, vault: LabelVault) -> None:
        self.vault = vault

    def put(self, key: str, arrays: Arrays) -> None:
        """Durable when it returns. Raises Unavailable."""
        buffer = io.BytesIO()
        plain: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        np.savez(buffer, **plain)
        self.vault.put_bytes(key, buffer.getvalue())

    def get(self, key: str) -> dict[str, npt.NDArray[Any]]:
        """Raises Unavailable: it is gone, or was damaged."""
        try:
            plain = self.vault.get_bytes(key)
        except (OSError, Unavailable):
            raise Unavailable("What this predictor learned cannot be read; nothing was charged.") from None
        with np.load(io.BytesIO(plain), allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
