"""What a plain install offers, run in its environment: read, verify and correct a message, and call both services."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from features_party.client import FeaturesPartyClient
from features_party.receive.accepted import read_prior
from features_party.training.correction import correct
from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from label_dp.documents.signing import VerifyingKey
from label_dp.errors import DigestMismatch
from labels_party.client import LabelsPartyClient


def main(path: Path, key: Path, joined: Path, *services: str) -> None:
    """`joined`: what the features party made of the message. `services`: URL and API key of the labels party, then of
    the features party."""
    message = verify(path, VerifyingKey.load(key), "features-party")
    rows = read_message(list(message.paths), message.manifest)
    assert rows.num_rows == message.manifest.n
    channel = message.manifest.read_channel()
    shares = np.bincount(rows["bin"].to_numpy(), minlength=len(channel.outputs)) / rows.num_rows
    prior = None if message.prior_path is None else read_prior(message.prior_path, message.manifest)
    correction = correct(channel, "auto", prior, shares, rows.num_rows)
    corrected = dict(zip(rows["example_id"].to_pylist(), correction.corrected[rows["bin"].to_numpy()], strict=True))
    table = pq.read_table(joined)
    assert dict(zip(table["click"].to_pylist(), table["corrected_label"].to_pylist(), strict=True)) == corrected
    damaged = path.with_name("damaged.parquet")
    damaged.write_bytes(path.read_bytes()[:-1] + b"?")
    damaged.with_name("damaged.parquet.dsse.json").write_bytes(path.with_name(f"{path.name}.dsse.json").read_bytes())
    try:
        verify(damaged, VerifyingKey.load(key), "features-party")
    except DigestMismatch:
        pass
    else:
        raise AssertionError("a damaged message verified")
    with LabelsPartyClient(*services[:2]) as labels_party, FeaturesPartyClient(*services[2:]) as features_party:
        assert labels_party.population("shop")["lifetime_epsilon"] == "3"
        assert message.manifest.id in [each["release"] for each in features_party.messages()]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
