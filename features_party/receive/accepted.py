"""Accepted messages: manifest, rows and prior, read from our own copy and checked at every opening."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from label_dp.columnar.parquet_pages import Width, check_sizes
from label_dp.columnar.thrift import LyingFile
from label_dp.documents.bundle import check_bytes
from label_dp.documents.manifest import Manifest
from label_dp.documents.rehearsal import Rehearsal
from label_dp.documents.rows import iter_message, read_message
from label_dp.errors import MalformedManifest
from label_dp.schemas.json_types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

    from label_dp.documents.answer import Answer
    from label_dp.documents.manifest import Manifest

FloatArray = npt.NDArray[np.float64]

PRIOR_ROW_BYTES = 32  # two 64-bit floats, each perhaps in a dictionary and once more as its index
PRIOR_SLACK = 1 << 16  # page headers, statistics, the footer
PRIOR_BATCH = 1 << 16
PRIOR_WIDTHS = (Width(9), Width(9))  # either may have definition levels, for missing values


@dataclass(frozen=True)
class AcceptedMessage:
    """Accepted message. `fresh` is False if the release was accepted before (no second event is written)."""

    manifest: Manifest
    digest: str
    folder: Path
    fresh: bool

    @property
    def release(self) -> str:
        return self.manifest.id

    @property
    def rehearsed(self) -> bool:
        """Whether the message is a rehearsal: its labels are made up, so nothing was accounted for."""
        return isinstance(self.manifest, Rehearsal)

    def check(self, *, prior: bool = False) -> None:
        """Compare our copy with the manifest; `prior` requires and checks the message's prior as well. Raises
        DigestMismatch or InvalidFile."""
        for entry in self.manifest.files if prior else self.manifest.message_files:
            check_bytes(self.folder / entry.name, entry)

    def has_prior(self, of: Path) -> bool:
        """Return whether our copy has the prior if the copy in the folder `of` has it."""
        entry = self.manifest.prior_file
        return entry is None or (self.folder / entry.name).exists() or not (of / entry.name).exists()

    def rows(self) -> pa.Table:
        """Read columns example_id, bin, label, sorted by id. Raises MalformedManifest."""
        return read_message([self.folder / entry.name for entry in self.manifest.message_files], self.manifest)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows as in `rows`, some 10⁵ at a time. Raises MalformedManifest."""
        return iter_message([self.folder / entry.name for entry in self.manifest.message_files], self.manifest)

    def prior(self) -> FloatArray | None:
        """Read the private prior over the domain, float64[k]; None if the message came without it."""
        entry = self.manifest.prior_file
        if entry is None or not (self.folder / entry.name).exists():
            return None
        check_bytes(self.folder / entry.name, entry)
        return read_prior(self.folder / entry.name, self.manifest)

    def summary(self) -> JsonObject:
        """Summarise the message; every member is public."""
        return message_summary(self.manifest, self.digest)


def message_summary(manifest: Manifest, digest: str) -> JsonObject:
    """Summarise a message from its manifest and the manifest's digest."""
    channel, names = manifest.read_channel(), manifest.domain.names
    return (
        summary(manifest)
        | ({"names": list(names)} if names else {})
        | ({"rehearsal": True} if isinstance(manifest, Rehearsal) else {})
        | {
            "release": manifest.id,
            "clipping": None if manifest.clipping is None else manifest.clipping.summary(),
            "channel": channel.kind,
            "outputs": channel.m,
            "unbiased": channel.unbiased,
            "loss": manifest.loss,
            "manifest_digest": digest,
        }
    )


def read_prior(path: Path, manifest: Manifest) -> FloatArray:
    """Read float64[k] from columns label, probability over the domain of `manifest`. Raises MalformedManifest.

    A signed file may still decode to any size. Rows, columns and sizes are compared with those of a prior over k labels
    before decoding, which goes a few rows at a time.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    domain, entry = manifest.domain, manifest.prior_file
    if entry is None or entry.rows > domain.k or entry.bytes > PRIOR_ROW_BYTES * entry.rows + PRIOR_SLACK:
        raise MalformedManifest("The prior of the message has more rows or bytes than its label domain calls for.")
    labels, probability, at = np.empty(entry.rows), np.empty(entry.rows), 0
    try:
        check_sizes(path, PRIOR_WIDTHS, entry.rows)
        with pq.ParquetFile(path, pre_buffer=False) as file:
            _refuse_other_columns(file.schema_arrow)
            for batch in file.iter_batches(batch_size=PRIOR_BATCH):
                stop = at + batch.num_rows
                if stop > entry.rows:
                    raise MalformedManifest("The prior of the message has more rows than its manifest states.")
                labels[at:stop] = batch.column("label").to_numpy(zero_copy_only=False)  # null becomes NaN
                probability[at:stop] = batch.column("probability").to_numpy(zero_copy_only=False)
                at = stop
    except LyingFile as error:
        raise MalformedManifest(f"The prior of the message cannot be read: {error}.") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError):
        raise MalformedManifest("The prior of the message is not a table of label and probability.") from None
    index, outside = domain.index(labels)
    fits = at == entry.rows and not outside.any() and np.array_equal(domain.values[index], labels)
    total = float(probability.sum()) if np.all(np.isfinite(probability)) and np.all(probability >= 0) else 0.0
    if not fits or np.unique(index).size != index.size or not np.isclose(total, 1.0, atol=1e-6):
        raise MalformedManifest("The prior of the message is not a distribution over its label domain.")
    prior = np.zeros(domain.k)
    prior[index] = probability / total
    return prior


def _refuse_other_columns(schema: pa.Schema) -> None:
    import pyarrow as pa

    if schema.names != ["label", "probability"] or any(kind != pa.float64() for kind in schema.types):
        raise MalformedManifest("The prior of the message has not the columns label, probability (64-bit floats).")


def described(body: Manifest | Answer) -> JsonObject:
    """Return the public members that messages and answers share."""
    return {
        "batch": body.batch,
        "population": body.population.id,
        "population_name": body.population.name,
        "label": body.population.label,
        "key_id": body.key_id,
        "created": body.created,
        "n": body.n,
        "epsilon": body.epsilon.as_signed(),
        # by the labels party's ledger when it signed this; later work adds to it
        "epsilon_spent": str(body.epsilon_spent),
        "epsilon_lifetime": str(body.epsilon_lifetime),
    }


def summary(body: Manifest | Answer) -> JsonObject:
    """Return the same members with audiences, domain, mechanism and unit."""
    return described(body) | {
        "audiences": list(body.audiences),
        "domain": str(body.domain),
        "mechanism": body.mechanism.name,
        "unit": body.unit_said,
    }
