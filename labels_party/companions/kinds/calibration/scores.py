"""Intake of scores from the owner of a model: ids as keyed digests, scores as numbers of a public grid each.

Scores are public numbers; they carry no information on labels. They are stored as the inputs of one answer and deleted
with its end. Every refusal here depends on the upload alone, except that the owner also learns which ids are unknown.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from label_dp.companions.maps.scores import ScoreGrid
from label_dp.errors import DuplicateId, InvalidFile, InvalidInput, InvalidRows, TooLarge, Unavailable
from label_dp.store.folders import fsync_folder
from labels_party.labels.at_rest import digest_key
from labels_party.labels.chunks import TWICE, Chunks, Findings, sliced
from labels_party.labels.digests import U64, siphash128
from labels_party.labels.parsing import ID, canonical_column, floats_of
from labels_party.labels.runs import Run, contains, locate, repeated, run_parts, sort_run
from labels_party.labels.seal import SealedLabels
from labels_party.storage.files import INPUTS
from labels_party.storage.secrets import Secrets

MOST_SCORES = 1 << 24
NO_EXAMPLE = "is not among the examples of the batch"
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """Numbers int64[s, m] of the s scores of m ids, in the order of the ids' digests; `rows` int64[m] are those of the
    upload."""

    run: Run
    numbers: IntArray
    rows: IntArray
    id_field: str = ID

    @classmethod
    def read(
        cls, chunks: Chunks, label: str, secrets_: Secrets, grids: Sequence[ScoreGrid], fields: Sequence[str]
    ) -> Scores:
        """Read all rows or none; `fields`: that of ids, and one for each of the grids.

        Raises InvalidRows (no finite number, a bad id), DuplicateId, InvalidFile (no row), TooLarge, InvalidInput (most
        lie outside the expected range).
        """
        key, findings = digest_key(secrets_, label), Findings()
        outside = [0] * len(grids)
        parts: list[tuple[U64, U64, IntArray]] = []
        rows = 0
        for chunk in sliced(chunks):
            start, rows = rows, rows + chunk.rows
            if rows > MOST_SCORES:
                raise TooLarge(f"At most {MOST_SCORES:,} scores are taken at once.")
            try:
                if chunk.faults is not None:
                    raise chunk.faults
                assert chunk.table is not None
                ids = canonical_column(chunk.table[fields[0]], fields[0])
                columns = [floats_of(chunk.table[name], name) for name in fields[1:]]
                numbers = np.stack([grid.index(of) for grid, of in zip(grids, columns, strict=True)])
            except InvalidRows as faults:
                findings.add(faults, start, chunk)
                if findings.enough:
                    break
                continue
            outside = [n + int(g.outside(of).sum()) for n, g, of in zip(outside, grids, columns, strict=True)]
            if not findings:
                parts.append((*siphash128(ids, key), numbers))
        if findings:
            raise findings.error()
        if not rows:
            raise InvalidFile("There is no row in the upload; send at least one score.")
        low, high, numbers = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
        run, order = sort_run(low, high)
        again = repeated(run)
        if again.any():
            findings.add_rows(order[again], fields[0], TWICE)
            first = findings.problems[0]
            raise DuplicateId(
                f"Row {first.number}, field '{first.field}': {TWICE}. Nothing was charged.", findings.problems
            )
        for grid, name, count in zip(grids, fields[1:], outside, strict=True):
            if 2 * count > rows:
                raise InvalidInput(
                    f"More than half of the {rows:,} scores in '{name}' lie outside of {grid.low}:{grid.high} and "
                    "would count as its ends, alike to every map. Number scores by an LO:HI:STEPS that holds them, or "
                    "by float32; if the ends are what you mean, clip the scores and send those. Nothing was charged."
                )
        return cls(run, np.ascontiguousarray(numbers[:, order], np.int64), order.astype(np.int64), fields[0])

    @property
    def sent(self) -> int:
        return int(self.numbers.shape[1])

    @property
    def distinct(self) -> int:
        """Count the distinct first scores."""
        return int(np.unique(self.numbers[0]).size)

    def refuse_unknown(self, known: npt.NDArray[np.bool_]) -> None:
        """Raise InvalidRows, for the owner alone, if an id of the upload is no example of the batch."""
        if not known.all():
            findings = Findings()
            findings.add_rows(self.rows[~known], self.id_field, NO_EXAMPLE)
            raise findings.error()

    def places(self, labels: SealedLabels, key: bytes) -> tuple[IntArray, IntArray]:
        """Find the rows int64[m] of the upload that are examples of the batch, and the label position int64[m] of each,
        in the order of the examples' ids; `key` is that of the digests. Raises Unavailable."""
        places, positions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for ids, index in labels.chunks():
            low, high = siphash128(ids, key)
            rows = np.flatnonzero(contains(self.run, low, high))
            if len(rows):
                uploaded, order = sort_run(low[rows], high[rows])
                at = np.empty(len(rows), np.int64)
                at[order] = locate(self.run, uploaded)
                places.append(at)
                positions.append(index[rows])
        return np.concatenate(places), np.concatenate(positions)

    def mac(self, secrets_: Secrets) -> str:
        """Compute a keyed digest that shows whether two uploads are the same, comparable by this party only."""
        numbers = np.ascontiguousarray(self.numbers, "<i8").view(np.uint8).data
        return secrets_.mac("scores", *run_parts(self.run), numbers)

    def save(self, within: Path) -> str:
        """Store them durably as a new folder of inputs; returns its name. Raises Unavailable."""
        folder = within / f"{INPUTS}{secrets.token_hex(12)}"
        try:
            folder.mkdir(mode=0o700)
            for name, array in (("low", self.run[0]), ("high", self.run[1]), ("numbers", self.numbers)):
                with (folder / f"{name}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())
            fsync_folder(folder)
            fsync_folder(within)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise Unavailable(f"The scores cannot be kept ({error.strerror}); nothing was charged.") from None
        return folder.name

    @classmethod
    def load(cls, folder: Path) -> Scores:
        """Load the output of `save`, without the rows of the upload. Raises OSError."""
        low, high, numbers = (np.load(folder / f"{n}.npy", allow_pickle=False) for n in ("low", "high", "numbers"))
        return cls((low, high), numbers.reshape(-1, len(low)), np.arange(len(low)))
