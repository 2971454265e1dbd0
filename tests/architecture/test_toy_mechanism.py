"""A new mechanism with an option of its own is two files; three where its channel is of a new kind.

`labels_party/mechanisms/MECHANISM.py`: its design, and how its channel is
sampled. `shared/label_dp/schemas/release.py`: its name and its option.
`shared/label_dp/channels/KIND.py`: how its channel is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pyarrow.parquet as pq
import pytest
from pydantic import Field

from label_dp.channels import registry
from label_dp.channels.base import Channel
from label_dp.channels.rr import RRChannel
from label_dp.cli.commands import command
from label_dp.documents.manifest import Manifest
from label_dp.errors import InvalidMechanism
from label_dp.privacy import Epsilon
from label_dp.schemas.release import OPTION, Release
from labels_party.cli import app, privatize
from labels_party.mechanisms import catalogue, sampling
from labels_party.mechanisms.randomized_response import rr_weights
from labels_party.mechanisms.rr_with_prior import rr_channel
from tests.architecture.doors import awaited, blocking, grown, shell
from tests.support import shared_routes
from tests.support.labels import LabelsParty, label_table
from tests.support.receipts import pair

pytestmark = pytest.mark.extended

LABELS = label_table(40)
ASKED = {"epsilon": "1", "mechanism": "shy", "shyness": 4}


class ShyChannel(RRChannel):
    """Randomized response, as a kind of its own."""

    kind = "shy"


def _design(asked: catalogue.DesignRequest) -> Channel:
    """At a part of ε."""
    shyness = asked.options.get("shyness", 1)
    if not isinstance(shyness, int):
        raise InvalidMechanism("The option 'shyness' is a whole number.")
    channel = rr_channel(asked.domain, asked.epsilon)
    assert isinstance(channel, RRChannel)
    a, b = rr_weights(Epsilon(asked.epsilon.nano // shyness), asked.domain.k)
    about = {"domain": asked.domain, "boundaries": channel.boundaries, "outputs": channel.outputs}
    return ShyChannel(**about, A=a, B=b, bin_means=channel.bin_means)


@pytest.fixture(autouse=True)
def shy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The three files, for the length of a test; and what modules make of all files once, when they are imported."""
    module = ModuleType("labels_party.mechanisms.shy")
    options = frozenset({"shyness"})
    module.MECHANISM = catalogue.mechanism("shy", _design, needs_prior=catalogue.never, options=options)  # type: ignore[attr-defined]  # what the module of a mechanism has
    monkeypatch.setitem(sampling.SAMPLERS, ShyChannel, sampling.SAMPLERS[RRChannel])  # a line of that module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.KINDS, "shy", ShyChannel)
    monkeypatch.setitem(catalogue.MECHANISMS, "shy", catalogue.load("shy"))
    told = Field(default=None, ge=1, le=9, description="shy only: how many parts of ε are left unused.")
    with grown(Release, "shyness", Annotated[int | None, OPTION], told):
        monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
        command(app)(privatize.privatize)
        monkeypatch.setattr(shared_routes, "_known", {})
        yield


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as party:
        yield party


def check(party: LabelsParty, release: str) -> None:
    party.services.pipeline.run(release)
    found, _ = Manifest.trusted(party.services.work.envelope(release), party.services.key.public, None)
    channel = found.read_channel()
    assert (found.mechanism.name, channel.kind) == ("shy", "shy")
    assert channel.satisfies(Epsilon.parse("0.25"))
    assert not channel.satisfies(Epsilon.parse("0.24"))


def test_rest_and_both_clients_draw_from_it(party: LabelsParty) -> None:
    owner, batch = party.client(), party.sealed_batch(LABELS)
    path = f"/v1/batches/{batch}/releases"
    for wrong, code in (({"shyness": 0}, 422), ({"mechanism": "rr"}, 422)):
        assert owner.post(path, json=ASKED | wrong).status_code == code
    asked = owner.post(path, json=ASKED)
    assert asked.status_code == 202, asked.text
    check(party, asked.json()["id"])
    charged = [e for e in owner.get("/v1/audit/events").json() if e["kind"] == "release-charged"]
    assert [event["details"]["mechanism"] for event in charged] == ["shy"]
    for number, door in enumerate((blocking, awaited)):
        batch = party.sealed_batch(label_table(40, prefix=f"c{number}"))
        made = door(party, lambda client, batch=batch: client.release(batch, **ASKED))
        check(party, made["id"])
    planned = owner.get("/v1/populations/shop/plan", params={"epsilon": "1", "n": 40}).json()
    assert "shy" in {row["mechanism"] for row in planned["mechanisms"]}


def test_the_command_offers_its_option(party: LabelsParty, tmp_path: Path) -> None:
    pq.write_table(LABELS, tmp_path / "labels.parquet")
    options = {"labels": "labels.parquet", "id-column": "example_id", "label-column": "label", "domain": "0:10"}
    options |= {"population": "shop", "budget": "2", "out": "m.parquet"} | {k: str(v) for k, v in ASKED.items()}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    assert "--shyness" in shell(party, tmp_path, "privatize", "--help")
    told = json.loads(shell(party, tmp_path, "privatize", *words, "--json"))
    check(party, told["release"])
    assert "shy" in shell(party, tmp_path, "inspect", "m.parquet")
    shell(party, tmp_path, "statement", told["release"], "--out", "page.html")
    assert "shy" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_its_receiver_reads_the_channel_and_acknowledges_it(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        batch = both.labels.sealed_batch(LABELS)
        release = both.labels.client().post(f"/v1/batches/{batch}/releases", json=ASKED).json()["id"]
        check(both.labels, release)
        both.clock.move(minutes=1)
        assert both.pull(release).problem is None
        for report in both.compare_both():
            assert (report["agrees"], report["notes"]) == (True, []), report
