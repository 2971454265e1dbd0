"""A domain of ten million values goes the whole way in bounded time, or is refused in a sentence before it costs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.rows import read_message
from tests.support.desk import Desk

pytestmark = pytest.mark.extended

SECONDS = 60.0  # of the processor; ten on a free machine


def test_ten_million_values_go_the_whole_way(desk: Desk) -> None:
    started = time.process_time()
    answer = desk.client.post(
        "/v1/populations",
        json={"name": "cents", "label": "cents", "domain": "0:10000000", "lifetime_epsilon": "2"},
    )
    assert answer.status_code == 201, answer.text
    assert len(answer.content) < 2000  # the domain is told by its ends
    batch = desk.open("cents")
    rng = np.random.default_rng(5)
    labels = np.minimum(rng.lognormal(9, 2, 2000), 1e9)
    assert desk.send([f"c{i}" for i in range(2000)], [float(v) for v in labels], batch).status_code == 200
    assert desk.client.post(f"/v1/batches/{batch}/seal").status_code == 200
    asked = desk.client.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
    assert asked.status_code == 202, asked.text
    release = asked.json()["id"]
    desk.party.services.worker.drain()
    while desk.party.state(release).state not in ("published", "failed"):  # by the service's worker or the line above
        assert time.process_time() - started < SECONDS
        time.sleep(0.05)
    assert desk.party.state(release).state == "published"
    assert time.process_time() - started < SECONDS
    verified = verify(desk.party.bundle(release).path, desk.party.services.key.public, "features-party")
    values = np.array(read_message(list(verified.paths), verified.manifest)["label"].to_pylist(), float)
    assert len(values) == 2000
    # the bound of one bit: half a range to either side of its middle, times coth(1/2)
    assert np.all(np.abs(values - 5_000_000) <= 5_000_000 * 2.2)


def test_domains_beyond_what_is_solved_are_refused(desk: Desk) -> None:
    before = desk.state()
    for domain in ("0:16777216", "0:1e15", "0:10000000:0.0000001"):
        answer = desk.client.post(
            "/v1/populations", json={"name": "more", "label": "more", "domain": domain, "lifetime_epsilon": "2"}
        )
        desk.refused(answer, "invalid-domain")
    assert desk.state() == before
