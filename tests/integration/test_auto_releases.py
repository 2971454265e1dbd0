"""Releases by `auto`, the default: resolved inside the attempt, told in the manifest and nowhere before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.channels.base import Channel
from label_dp.channels.registry import channel_from_json
from label_dp.documents.bundle import verify
from label_dp.documents.manifest import Manifest
from label_dp.documents.rows import read_message
from label_dp.errors import Unavailable
from label_dp.privacy import Epsilon
from labels_party.mechanisms.catalogue import MECHANISMS
from labels_party.message import engine
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_cli import Run, arguments, refused
from tests.support.pages import signed_in


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home", worker=False) as made:
        yield made


def manifest_of(party: LabelsParty, release: str) -> Manifest:
    return verify(party.bundle(release).path, party.services.key.public, "features-party").manifest


def proved(manifest: Manifest) -> Channel:
    channel = channel_from_json(manifest.channel, manifest.domain)
    assert channel.satisfies(manifest.epsilon.randomize)
    return channel


def test_the_manifest_names_the_chosen_mechanism_and_why(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(4000, k=21), domain="0:20")
    release = party.release(batch, "1.5", mechanism="auto")
    manifest = manifest_of(party, release)
    assert manifest.mechanism.name in MECHANISMS
    assert manifest.mechanism.why.startswith("chosen by auto: ")
    assert "expected model error" in manifest.mechanism.why
    assert "next" in manifest.mechanism.why
    assert proved(manifest).k == 21
    assert manifest.epsilon.total == Epsilon.parse("1.5")
    assert manifest.prior.source == "estimated"
    assert party.spent(batch) == "1.5"
    owner = party.client()
    told = owner.get(f"/v1/releases/{release}").json()
    assert (told["mechanism"], told["drawn_mechanism"]) == ("auto", manifest.mechanism.name)
    page = signed_in(owner).get(f"/releases/{release}").text
    assert f"which took {manifest.mechanism.name}: chosen by auto" in page


def test_it_is_the_default_of_rest_and_of_the_command_line(party: LabelsParty, run: Run, labels: Path) -> None:
    batch = party.sealed_batch(label_table(60))
    answer = party.client().post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"})
    assert answer.status_code == 202, answer.text
    # before publication only what was asked for shows
    assert answer.json()["mechanism"] == "auto"
    shown = run(*arguments(labels, population="other", mechanism=None), "--json")
    assert shown.code == 0, shown.err
    assert shown.json["mechanism"] in MECHANISMS
    refused(
        run(*arguments(labels, "n.parquet", population="other", mechanism=None, clip="0:5")),
        2,
        "chooses options itself",
    )


def test_nothing_of_the_choice_shows_before_publication(party: LabelsParty) -> None:
    batch = party.sealed_batch(label_table(2000, k=21), domain="0:20")
    release = party.charge(batch, "1", mechanism="auto")
    before = party.client().get(f"/v1/releases/{release}").json()
    assert (before["state"], before["mechanism"]) == ("charged", "auto")
    assert "chosen" not in str(before)


def test_a_redrawn_attempt_chooses_anew(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prior belongs to its attempt: an abandoned one, and what was chosen by it, leaves no trace."""
    batch = party.sealed_batch(label_table(3000, k=21), domain="0:20")
    release = party.charge(batch, "1", mechanism="auto")
    priors: list[Any] = []
    plain = engine.resolve

    def noted(plan: Any, domain: Any, prior: Any, n: int) -> Any:
        priors.append(prior)
        chosen = plain(plan, domain, prior, n)
        if len(priors) == 1:
            raise Unavailable("no space is left")
        return chosen

    monkeypatch.setattr(engine, "resolve", noted)
    with pytest.raises(Unavailable):
        party.services.pipeline.run(release)
    assert party.services.pipeline.run(release)
    assert len(priors) == 2
    assert not np.array_equal(priors[0], priors[1])
    assert party.spent(batch) == "1"
    assert manifest_of(party, release).mechanism.why.startswith("chosen by auto")


def test_a_choice_that_finds_no_memory_is_not_drawn_again(party: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much a solve needs may depend on the prior: another one for the same charge would say more than it paid."""

    def exhausted(*_: Any) -> Any:
        raise MemoryError

    batch = party.sealed_batch(label_table(3000, k=21), domain="0:20")
    release = party.charge(batch, "1", mechanism="auto")
    monkeypatch.setattr(engine, "resolve", exhausted)
    with pytest.raises(MemoryError):
        party.services.pipeline.run(release)
    monkeypatch.undo()
    assert not party.services.pipeline.run(release)
    assert (party.state(release).state, party.spent(batch)) == ("failed", "1")


def test_a_carried_prior_costs_nothing_and_is_chosen_by(party: LabelsParty) -> None:
    first = party.release(party.sealed_batch(label_table(2000)), "1", mechanism="auto")
    batch = party.sealed_batch(label_table(2000, prefix="later"))
    answer = party.client().post(f"/v1/batches/{batch}/releases", json={"epsilon": "1", "prior": "latest"})
    assert answer.status_code == 202, answer.text
    later = answer.json()["id"]
    assert party.services.pipeline.run(later) or party.state(later).state == "published"
    manifest = manifest_of(party, later)
    assert (manifest.prior.source, manifest.prior.release) == ("carried over", first)
    assert manifest.epsilon.prior == Epsilon(0)
    assert manifest.mechanism.why.startswith("chosen by auto")


@pytest.mark.parametrize(
    ("domain", "labels", "epsilon"),
    [
        ("0:10", [3.0], "1"),
        ("0:10", [7.0] * 50, "0.05"),
        ("5:5", [5.0] * 4, "1"),
        ("0:1", [0.0, 1.0, 1.0], "8"),
    ],
)
def test_degenerate_labels_give_a_proved_message(
    domain: str, labels: list[float], epsilon: str, party: LabelsParty
) -> None:
    ids = [f"click-{i}" for i in range(len(labels))]
    batch = party.sealed_batch(pa.table({"example_id": ids, "label": labels}), domain=domain)
    release = party.release(batch, epsilon, mechanism="auto")
    verified = verify(party.bundle(release).path, party.services.key.public, "features-party")
    proved(verified.manifest)
    assert read_message(list(verified.paths), verified.manifest).num_rows == len(labels)
    assert party.spent(batch) == epsilon


def test_options_and_unknown_names_are_refused_before_any_charge(party: LabelsParty) -> None:
    batch, owner = party.sealed_batch(label_table(60)), party.client()
    for body, said in (
        ({"mechanism": "auto", "clip": "auto"}, "chooses options itself"),
        ({"clip": ["0", "5"]}, "chooses options itself"),
        ({"mechanism": "magic"}, "auto, rr-on-bins"),
        ({"mechanism": "unbiased", "clip": ["0", "5"]}, "no such option"),
    ):
        answer = owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"} | body)
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["detail"]
    assert party.spent(batch) == "0"
