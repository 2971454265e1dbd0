"""A message that we accepted: its manifest, its rows, its prior. Read from our own copy, checked again each time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shared.errors import InvalidTable, LabelDPError, MalformedManifest
from shared.message.bundle import check_bytes
from shared.message.manifest import Manifest
from shared.message.parquet import read_message
from shared.tables import read_table

if TYPE_CHECKING:
    import pyarrow as pa

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AcceptedMessage:
    """`fresh` is False where the release had been accepted before (and no second event was written)."""

    manifest: Manifest
    digest: str
    folder: Path
    fresh: bool

    @property
    def release(self) -> str:
        return self.manifest.release

    def check(self) -> None:
        """The bytes of our copy are still those of the manifest. Raises DigestMismatch or InvalidFile."""
        for entry in self.manifest.message_files:
            check_bytes(self.folder / entry.name, entry)

    def rows(self) -> pa.Table:
        """Columns example_id, bin, label; sorted by id. Raises MalformedManifest."""
        return read_message([self.folder / entry.name for entry in self.manifest.message_files], self.manifest)

    def prior(self) -> FloatArray | None:
        """float64[k], the private prior over the domain; None where the message came without it."""
        entry = self.manifest.prior_file
        if entry is None or not (self.folder / entry.name).exists():
            return None
        check_bytes(self.folder / entry.name, entry)
        return read_prior(self.folder / entry.name, self.manifest)

    def summary(self) -> dict[str, object]:
        """What a person or program wants to know of it; all public."""
        return summary(self.manifest, self.digest)


def summary(manifest: Manifest, digest: str) -> dict[str, object]:
    channel = manifest.read_channel()
    return {
        "release": manifest.release,
        "batch": manifest.batch,
        "population": manifest.population.id,
        "population_name": manifest.population.name,
        "label": manifest.population.label,
        "audiences": list(manifest.audiences),
        "n": manifest.n,
        "domain": str(manifest.read_domain()),
        "mechanism": manifest.mechanism.name,
        "channel": channel.kind,
        "outputs": channel.m,
        "unbiased": channel.unbiased,
        "loss": manifest.loss,
        "epsilon": dict(manifest.epsilon),
        "epsilon_spent": manifest.epsilon_spent,
        "epsilon_lifetime": manifest.epsilon_lifetime,
        "unit": manifest.privacy_unit.as_json(),
        "created": manifest.created,
        "key_id": manifest.key_id,
        "manifest_digest": digest,
    }


def read_prior(path: Path, manifest: Manifest) -> FloatArray:
    """float64[k] from columns label, probability over the domain of `manifest`. Raises MalformedManifest."""
    domain = manifest.read_domain()
    try:
        table = read_table(path, columns=["label", "probability"], name=path.name)
        labels = np.asarray(table["label"].to_numpy(), dtype=np.float64)
        probability = np.asarray(table["probability"].to_numpy(), dtype=np.float64)
    except (InvalidTable, LabelDPError, ValueError, TypeError):
        raise MalformedManifest("The prior of the message is not a table of label and probability.") from None
    index, outside = domain.index(labels)
    fits = not outside.any() and np.array_equal(domain.values[index], labels)
    total = float(probability.sum()) if np.all(np.isfinite(probability)) and np.all(probability >= 0) else 0.0
    if not fits or not np.isclose(total, 1.0, atol=1e-6):
        raise MalformedManifest("The prior of the message is not a distribution over its label domain.")
    prior = np.zeros(domain.k)
    np.add.at(prior, index, probability / total)
    return prior
