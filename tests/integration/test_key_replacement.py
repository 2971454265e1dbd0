"""An API key is replaced without a gap: two of one name are valid at once; and what alerts say of keys that fail."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.labels import LabelsParty


def test_two_keys_of_one_name_and_the_first_is_revoked(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        keys, client = party.services.apikeys, party.client()

        def status(secret: str) -> int:
            return client.get("/v1/populations", headers={"Authorization": f"Bearer {secret}"}).status_code

        first, old = keys.create("owner", name="warehouse", expires="30")
        second, new = keys.create("owner", name="warehouse", expires="365")
        assert [status(secret) for secret in (old, new)] == [200, 200]
        keys.wait()
        assert status(new) == 200
        keys.wait()
        rows = {row["id"]: row for row in keys.list()}
        assert {rows[key]["name"] for key in (first, second)} == {"warehouse"}
        assert rows[second]["last_used"]  # before the first is revoked, its owner sees that the second is in use
        keys.revoke(first)
        assert [status(secret) for secret in (old, new)] == [401, 200]
        for _ in range(3):
            status(old)
        metrics = client.get("/metrics").text
        assert 'label_dp_refused_keys_total{reason="revoked key"} 4.0' in metrics
        assert not re.search(f"{first}|{second}|warehouse", metrics)  # why, and never which
