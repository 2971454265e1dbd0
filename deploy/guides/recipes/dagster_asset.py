"""Dagster, of a publisher: a lake table of features with privatized labels, one commit a message."""

from __future__ import annotations

import json
import os
import subprocess

import dagster as dg

COMMAND = os.environ.get("FEATURES_PARTY", "features-party")
MESSAGES = os.environ.get("MESSAGES", "messages")
FEATURES = os.environ.get("FEATURES", "delta:s3://lake/features")
LABELLED = os.environ.get("LABELLED", "iceberg:lake/shop.labelled")


def labelled() -> dg.MaterializeResult:
    """Verify, account for and join the messages; the counts and releases are its metadata."""
    words = ["--message", MESSAGES, "--features", FEATURES, "--id-column", "click_id", "--out", LABELLED]
    command = [COMMAND, "join", *words, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - of our own environment
    if result.returncode:
        raise dg.Failure(result.stderr.strip(), allow_retries=False)
    report = json.loads(result.stdout)
    releases = [message["release"] for message in report["messages"]]
    return dg.MaterializeResult(metadata={"releases": releases, **report["counts"]})


defs = dg.Definitions(assets=[dg.asset(labelled)])
