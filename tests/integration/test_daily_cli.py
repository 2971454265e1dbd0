"""The daily rhythm on the command line: carried priors, purges, webhooks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from label_dp.documents.bundle import verify
from label_dp.documents.signing import VerifyingKey
from labels_party import cli
from tests.support.endpoint import Endpoint
from tests.support.labels import label_table

pytestmark = pytest.mark.extended

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in [n for n in os.environ if n.upper().startswith("LABELS_PARTY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LABELS_PARTY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["labels-party", *arguments])
        capfd.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return command


def privatize(run: Run, day: str, *more: str) -> dict[str, Any]:
    pq.write_table(label_table(300, prefix=day), f"{day}-labels.parquet")
    code, out, err = run(
        *("privatize", "--labels", f"{day}-labels.parquet", "--id-column", "example_id", "--label-column", "label"),
        *("--domain", "0:10", "--epsilon", "1", "--population", "shop", "--budget", "2", "--json"),
        *("--out", f"{day}.parquet", *more),
    )
    assert code == 0, err
    return dict(json.loads(out))


def test_the_prior_is_carried_over_from_day_to_day(run: Run, tmp_path: Path) -> None:
    days = [privatize(run, day, "--prior", "latest") for day in ("mon", "tue", "wed")]
    assert [d["prior"] for d in days] == ["estimated", "carried over", "carried over"]
    assert [d["epsilon"]["prior"] for d in days[1:]] == ["0", "0"]
    key = VerifyingKey.load(tmp_path / "home" / "keys" / "signing.pub")
    last = verify(tmp_path / "wed.parquet", key, None).manifest
    assert last.prior.release == days[0]["release"]
    # from a message file the chain also leads to the release whose ε paid
    thursday = privatize(run, "thu", "--prior", "wed.parquet")
    assert thursday["prior"] == "carried over"
    assert verify(tmp_path / "thu.parquet", key, None).manifest.prior.release == days[0]["release"]


def test_another_domain_or_population_carries_nothing_over(run: Run) -> None:
    privatize(run, "mon", "--prior", "latest")
    pq.write_table(label_table(300, prefix="other"), "other.parquet")
    code, out, _ = run(
        *("privatize", "--labels", "other.parquet", "--id-column", "example_id", "--label-column", "label"),
        *("--domain", "0:12", "--epsilon", "1", "--population", "other", "--budget", "2", "--json"),
        *("--prior", "latest", "--out", "o.parquet"),
    )
    assert code == 0
    assert json.loads(out)["prior"] == "estimated"


def test_purge(run: Run, tmp_path: Path) -> None:
    rules = ("--retention-days", "0", "--alert-percent", "50")
    monday, tuesday = (privatize(run, day, *rules) for day in ("mon", "tue"))
    code, out, _ = run("purge", monday["batch"])
    assert (code, "purged at" in out) == (0, True)
    assert run("purge", "--due", "--json")[1] == '{\n  "purged": 1\n}\n'
    for day in (monday, tuesday):
        kinds = {p.name.split("-")[0] for p in (tmp_path / "home" / "labels" / day["batch"]).iterdir()}
        assert kinds == {"sealed"}
        assert not list((tmp_path / "home" / "labels" / day["batch"]).glob("*.parquet"))
    assert run("purge", "bat_0")[0] == 1
    assert run("purge")[0] == 2
    assert run("purge", monday["batch"], "--due")[0] == 2
    code, _, err = run(
        *("privatize", "--labels", "mon-labels.parquet", "--id-column", "example_id", "--label-column", "label"),
        *("--domain", "0:10", "--epsilon", "1", "--population", "shop", "--budget", "2", *rules),
        *("--additional-release", "--out", "again.parquet"),
    )
    assert code == 1
    assert "purged" in err
    _, out, _ = run("message", monday["release"], "--out", "copy.parquet", "--json")
    assert Path("copy.parquet").read_bytes() == Path("mon.parquet").read_bytes()
    _, out, _ = run("audit", "show", "--json")
    assert {"batch-purged", "budget-alert"} <= {e["kind"] for e in json.loads(out)}


def test_webhooks(run: Run) -> None:
    with Endpoint(204, 500) as endpoint:
        code, out, _ = run("webhook", "create", endpoint.url, "--event", "release.published", "--json")
        made = json.loads(out)
        assert code == 0
        assert made["secret"].startswith("whsec_")
        assert json.loads(run("webhook", "list", "--json")[1])[0]["url"] == endpoint.url
        assert made["secret"] not in run("webhook", "list")[1]
        assert run("webhook", "test", made["id"])[0] == 0
        code, _, err = run("webhook", "test", made["id"])
        assert (code, "status 500" in err) == (1, True)
        assert len(endpoint.received) == 2
    assert run("webhook", "delete", made["id"])[0] == 0
    assert run("webhook", "delete", made["id"])[0] == 1
    assert run("webhook", "create", "https://169.254.169.254/")[0] == 2
    assert run("webhook", "create", "https://example.org/", "--population", "nobody")[0] == 1


def test_the_wrapping_key_is_rotated_and_the_batch_is_still_drawn(run: Run, tmp_path: Path) -> None:
    made = privatize(run, "mon")
    keys = tmp_path / "home" / "keys"
    code, out, _ = run("keys", "rotate-wrapping", "--prepare", "--json")
    prepared = (keys / "wrapping-2.key").read_bytes()
    told = {"wrapping_key": str(keys / "wrapping-2.key"), "batches": 0, "used": False}
    assert (code, json.loads(out)) == (0, told)
    code, out, _ = run("keys", "rotate-wrapping", "--json")
    assert (code, json.loads(out)) == (0, told | {"batches": 1, "used": True})
    assert [p.name for p in keys.glob("wrapping-*")] == ["wrapping-2.key"]
    assert (keys / "wrapping-2.key").read_bytes() == prepared
    again = privatize(run, "mon", "--additional-release", "--out", "again.parquet")
    assert again["batch"] == made["batch"]
    assert run("keys", "rotate-wrapping")[1].strip().endswith("wraps the keys of 1 batches")
