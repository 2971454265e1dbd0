"""The space reserved for a file is enough for the most outputs a channel may have, whatever is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from label_dp.channels.noise_weights import MAX_LATTICE_OUTPUTS
from label_dp.documents.rows import ROW_GROUP, largest_encoding, write_message
from label_dp.domain import Domain
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS

TWO_GROUPS = ROW_GROUP + 70_000


@dataclass(frozen=True)
class Outputs:
    """All that writing asks of a channel."""

    outputs: npt.NDArray[np.float64]


def irregular() -> Outputs:
    """As many outputs as a lattice may have, of random digits that no compression shortens."""
    return Outputs(np.sort(np.random.default_rng(1).normal(size=MAX_LATTICE_OUTPUTS)))


def lattice() -> Any:
    return MECHANISMS["laplace"].design(Domain.parse("0:400"), None, Epsilon.parse("1"), "squared", {"unclipped": True})


@pytest.mark.parametrize("rows", [1, 3_000, 60_000, ROW_GROUP, TWO_GROUPS])
@pytest.mark.parametrize("made", [irregular, lattice])
def test_a_message_of_many_outputs_fits(tmp_path: Path, made: Any, rows: int) -> None:
    channel, generator = made(), np.random.default_rng(rows)
    m = len(channel.outputs)
    assert m > 100_000
    bins = np.concatenate([generator.permutation(m) for _ in range(-(-rows // m))])[:rows]  # hardly any value twice
    ids = pa.array([f"{i:07d}" for i in range(rows)])
    path = tmp_path / "message.parquet"
    write_message(
        path, ((ids.slice(i, ROW_GROUP), bins[i : i + ROW_GROUP]) for i in range(0, rows, ROW_GROUP)), channel
    )
    groups = [pq.read_metadata(path).row_group(g) for g in range(pq.read_metadata(path).num_row_groups)]
    assert len(groups) == -(-rows // ROW_GROUP)
    id_bytes, stored_ids = ids.nbytes, sum(group.column(0).total_compressed_size for group in groups)
    # counted at their plain size, since these ids compress well and others may not
    assert path.stat().st_size - stored_ids + id_bytes <= largest_encoding(rows, id_bytes, rows)
    if made is irregular and rows >= 60_000:  # a control: such a message would not fit in half of 16 bytes a row
        assert path.stat().st_size - stored_ids > 8 * rows
