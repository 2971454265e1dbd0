"""Columns that a join adds to features: the meaning of each output of each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.training.correction import Correction
from label_dp.domain import Domain

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelColumns:
    """Meaning of the outputs of several messages, concatenated: float64[Σ outputs]; `starts` int64[messages] is the
    first of each message.

    `names` are the classes of outputs, empty for numbers; more than two classes (`nominal`) have no corrected label.
    """

    releases: tuple[str, ...]
    starts: IntArray
    raw: FloatArray
    corrected: FloatArray
    noise_variance: FloatArray
    names: tuple[str, ...] = ()
    nominal: bool = False

    @classmethod
    def of(cls, releases: Sequence[str], domains: Sequence[Domain], corrections: Sequence[Correction]) -> LabelColumns:
        starts = np.cumsum([0, *(len(c.raw) for c in corrections)])[:-1]
        noise = [np.full(len(c.raw), c.noise_variance) for c in corrections]
        raw, corrected = [c.raw for c in corrections], [c.corrected for c in corrections]
        names = [name for domain, c in zip(domains, corrections, strict=True) for name in _names(domain, c.raw)]
        nominal = any(domain.nominal for domain in domains)
        raw_names = tuple(names) if len(names) == sum(len(c.raw) for c in corrections) else ()
        return cls(
            tuple(releases),
            starts,
            np.concatenate(raw),
            np.concatenate(corrected),
            np.concatenate(noise),
            raw_names,
            nominal,
        )

    def index(self, message: npt.NDArray[Any], bins: npt.NDArray[Any]) -> IntArray:
        """Return int64[N]: the index of the outputs of rows with these message numbers and bins, both [N]."""
        return np.asarray(self.starts[message] + bins, np.int64)

    def message(self, index: IntArray) -> npt.NDArray[np.int32]:
        """Return int32[N]: the number of each output's message."""
        return np.asarray(np.searchsorted(self.starts, index, side="right") - 1, np.int32)

    def columns(self, message: npt.NDArray[Any], index: IntArray) -> dict[str, pa.Array]:
        """Make the columns ADDED, N rows each; without the corrected ones for more than two classes."""
        import pyarrow as pa

        numbers, indices = pa.array(message, pa.int32()), pa.array(index)
        raw = pa.array(self.names, pa.string()).take(indices) if self.names else pa.array(self.raw[index])
        corrected = {
            "corrected_label": pa.array(self.corrected[index]),
            "noise_variance": pa.array(self.noise_variance[index]),
        }
        release = pa.DictionaryArray.from_arrays(numbers, pa.array(self.releases, pa.string()))
        return {"raw_label": raw, **({} if self.nominal else corrected), "release": release}

    def fields(self) -> list[pa.Field]:
        """Return the fields of `columns`."""
        import pyarrow as pa

        columns = self.columns(np.zeros(0, np.int32), np.zeros(0, np.int64))
        return [pa.field(name, column.type) for name, column in columns.items()]


def _names(domain: Domain, outputs: FloatArray) -> list[str]:
    """Return the class of each output; empty for numbers, or if some output is no class."""
    if not domain.names or not np.isin(outputs, domain.values).all():
        return []
    return [domain.names[int(code)] for code in outputs]
