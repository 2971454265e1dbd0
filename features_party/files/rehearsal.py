"""Making a rehearsal: a signed message with made-up labels for the publisher's own ids, at no ε."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from features_party.tables.feature_files import FeatureFile, first_column
from label_dp.channels.base import Channel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel, rr_weights
from label_dp.columnar.parts import TablePath, placed
from label_dp.columnar.tables import refuse_duplicates
from label_dp.documents.bundle import ENVELOPE_SUFFIX
from label_dp.documents.manifest import FileEntry, MechanismChoice, PriorRef
from label_dp.documents.members import PopulationRef
from label_dp.documents.rehearsal import MADE_UP, NOT_USED, Rehearsal
from label_dp.documents.rows import write_message
from label_dp.documents.signing import SigningKey
from label_dp.domain import Domain
from label_dp.errors import InvalidTable
from label_dp.privacy import ZERO, Epsilon, EpsilonSplit
from label_dp.progress import Progress
from label_dp.store.output_files import writable

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17
NAME, WHY = "rehearsal", "a rehearsal has a mechanism that needs no prior"
LARGE_SHARE = 8.0  # size of the domain over the mean of the made-up labels above the first


@dataclass(frozen=True)
class Rehearsing:
    """Parameters of a rehearsal. `out` is the message; its manifest and its key (.pub) lie beside it."""

    features: TablePath
    id_column: str | None
    domain: Domain
    epsilon: Epsilon
    out: Path
    label: str
    audience: str
    force: bool = False

    @property
    def key(self) -> Path:
        return self.out.with_suffix(".pub")

    @property
    def envelope(self) -> Path:
        return self.out.with_name(self.out.name + ENVELOPE_SUFFIX)


def rehearse(rehearsing: Rehearsing, progress: Progress) -> dict[str, Any]:
    """Write a rehearsal and return its facts; the signing key is discarded.

    Labels are made up independently of the features, so nothing can be learned from them. Raises InvalidEpsilon,
    InvalidFile, InvalidInput, InvalidRows, InvalidTable.
    """
    channel = channel_of(rehearsing.domain, rehearsing.epsilon)
    for path in (rehearsing.out, rehearsing.envelope, rehearsing.key):
        writable(path, rehearsing.force)
    progress("reading ids", 0.1)
    id_column = rehearsing.id_column or first_column(rehearsing.features)
    ids = _sorted_ids(rehearsing.features, id_column)
    progress("making labels up", 0.5)
    rng, key, name = np.random.default_rng(), SigningKey.generate(), f"{NAME}-{secrets.token_hex(8)}"
    parts = (ids.slice(start, CHUNK) for start in range(0, len(ids), CHUNK))
    chunks = ((part, _drawn(channel, _made_up(rehearsing.domain, len(part), rng), rng)) for part in parts)
    with tempfile.TemporaryDirectory(prefix=f".{rehearsing.out.name}-", dir=rehearsing.out.parent) as folder:
        draft = Path(folder) / "message.parquet"
        write_message(draft, chunks, channel)
        manifest = _manifest(rehearsing, channel, draft, len(ids), key.public.id, name)
        (Path(folder) / "envelope").write_bytes(manifest.sign(key))
        rehearsing.key.write_bytes(key.public.pem)
        (Path(folder) / "envelope").replace(rehearsing.envelope)
        draft.replace(rehearsing.out)
    return {
        "rehearsal": True,
        "message": str(rehearsing.out),
        "labels_key": str(rehearsing.key),
        "id_column": id_column,
        "rows": len(ids),
        "bytes": rehearsing.out.stat().st_size,
        "domain": str(rehearsing.domain),
        "mechanism": manifest.mechanism.name,
        "epsilon_rehearsed": str(rehearsing.epsilon),
        "epsilon_spent": "0",
    }


def channel_of(domain: Domain, epsilon: Epsilon) -> Channel:
    """Return one bit over the whole domain; randomized response for classes and for two values. Both are unbiased.
    Raises InvalidEpsilon if ε is too small for the classes."""
    if domain.k > 2 and not domain.nominal:
        A, B = rr_weights(epsilon, 2)
        return OneBitChannel(domain=domain, low=domain.value(0), high=domain.value(domain.k - 1), A=A, B=B)
    A, B = rr_weights(epsilon, domain.k)
    values = domain.values
    return RRChannel(domain=domain, boundaries=np.arange(domain.k + 1), outputs=values, A=A, B=B, bin_means=values)


def _made_up(domain: Domain, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return int64[n] positions: uniform classes; of numbers half are the first, like clicks without a sale, and few
    are large."""
    if domain.nominal:
        return rng.integers(0, domain.k, n)
    sale = np.minimum(rng.exponential(domain.k / LARGE_SHARE, n) + 1.0, domain.k - 1).astype(np.int64)
    return np.where(rng.random(n) < 0.5, 0, sale)


def _drawn(channel: Channel, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return int64[n] outputs. No label is protected here, so an ordinary generator suffices."""
    u = rng.random(labels.size)
    if isinstance(channel, OneBitChannel):
        return (u < channel.upper_probability[labels]).astype(np.int64)
    edges = np.cumsum(channel.matrix(), axis=1)[labels]
    outputs: npt.NDArray[np.int64] = np.minimum((u[:, None] >= edges).sum(axis=1), channel.m - 1)
    return outputs


def _sorted_ids(features: TablePath, id_column: str) -> pa.Array:
    """Read the ids in order. Raises InvalidTable for none, InvalidRows for a bad or repeated one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with placed(features):
        parts = [part.cast(pa.large_string()) for part in FeatureFile.open(features, id_column).ids()]
        if not parts:
            raise InvalidTable(f"'{features}' has no rows.")
        ids = pa.concat_arrays(parts)
        refuse_duplicates(ids, id_column)
    return ids.take(pc.sort_indices(ids.cast(pa.large_binary())))


def _manifest(rehearsing: Rehearsing, channel: Channel, file: Path, n: int, key_id: str, name: str) -> Rehearsal:
    with file.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    return Rehearsal(
        id=name,
        batch=name,
        population=PopulationRef(id=NAME, name=NAME, label=rehearsing.label),
        audiences=[rehearsing.audience],
        key_id=key_id,
        created=f"{datetime.now(UTC):%Y-%m-%d}",
        n=n,
        domain=rehearsing.domain,
        out_of_domain="clip",
        missing_label=None,
        presence="declared public by the owner",
        mechanism=MechanismChoice(name=channel.kind, why=WHY),
        loss="log" if rehearsing.domain.nominal else "squared",
        channel=channel.as_json(),
        expected_loss=None,
        prior=PriorRef(source=NOT_USED),
        epsilon=EpsilonSplit(ZERO, ZERO, rehearsing.epsilon),
        epsilon_spent=rehearsing.epsilon,
        epsilon_lifetime=rehearsing.epsilon,
        chain_head=None,
        randomness=MADE_UP,
        files=[FileEntry(role="message", name="message.parquet", bytes=file.stat().st_size, rows=n, sha256=sha256)],
    )
