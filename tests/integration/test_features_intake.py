"""Accepting messages: what is checked, what is accounted for, what a crash or a second copy changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features_party.bootstrap import Services, bootstrap, reader
from features_party.receive.acceptances import MESSAGE
from features_party.settings import Settings
from label_dp import errors
from label_dp.audit.events import ACCEPTED
from label_dp.audit.store import read_export
from label_dp.documents.bundle import ENVELOPE_SUFFIX, FOLDER_ENVELOPE
from label_dp.documents.bundle import verify as verify_bundle
from label_dp.documents.signing import SigningKey, VerifyingKey
from label_dp.schemas.training import Learning, Training
from tests.support.messages import Sender, features_party, one_bit, rr, world

IDS = [f"c{i:03d}" for i in range(40)]
LABELS = np.arange(40, dtype=np.float64) % 11


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def key(sender: Sender) -> VerifyingKey:
    return sender.key.public


@pytest.fixture
def services(tmp_path: Path, database_url: str) -> Iterator[Services]:
    started = features_party(tmp_path / "home", database_url=database_url)
    yield started
    started.close()


def events(services: Services, kind: str = ACCEPTED) -> list[Any]:
    return services.database.read("test", lambda c: services.audit.events(c, kind=kind))


def write(sender: Sender, folder: Path, **options: Any) -> Path:
    path = folder / "sent" / "message.parquet"
    path.parent.mkdir(exist_ok=True)
    sender.write(path, IDS, LABELS, **options)
    return path


def test_the_split_is_written_exactly_and_once(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    path = write(sender, tmp_path, epsilon="0.123456789", audiences=["other", "features-party"])
    first = services.messages.accept(path, key)
    second = services.messages.accept(path, key)
    assert (first.fresh, second.fresh) == (True, False)
    (event,) = events(services)
    assert event.split.randomize.nano == 123_456_789
    assert event.split.total.nano == 123_456_789
    assert event.subject.as_json() == {
        "population": "pop_1",
        "population_name": "shop",
        "label": "revenue",
        "batch": "bat_1",
        "work": "rel_1",
        "attempt": None,
    }
    assert event.audiences == ("other", "features-party")
    assert event.party == "features-party"
    assert event.details["n"] == 40
    assert event.details["manifest_digest"] == first.digest
    assert event.details["key_id"] == key.id
    assert services.database.read("test", services.audit.verify)[0] == 2
    (row,) = services.acceptances.list(MESSAGE)
    assert row["digest"] == first.digest
    assert row["epsilon"]["total"] == "0.123456789"


def test_our_copy_is_what_is_parsed(services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    prior = np.arange(1.0, 12.0) / 66.0
    path = write(sender, tmp_path, prior=prior)
    accepted = services.messages.accept(path, key)
    shutil.rmtree(path.parent)  # the sender's files are gone, ours remain
    again = services.messages.open("rel_1")
    assert again.rows().num_rows == 40
    assert again.prior() == pytest.approx(prior)
    assert accepted.folder.parent == services.home.messages
    (accepted.folder / "message.parquet").write_bytes(b"changed")
    with pytest.raises(errors.DigestMismatch):
        services.messages.open("rel_1")


def test_a_damaged_copy_is_replaced_by_accepting_again(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    path = write(sender, tmp_path)
    accepted = services.messages.accept(path, key)
    (accepted.folder / FOLDER_ENVELOPE).write_bytes(b"{}")
    with pytest.raises(errors.LabelDPError):
        services.messages.open("rel_1")
    services.messages.accept(path, key)
    assert services.messages.open("rel_1").rows().num_rows == 40
    assert len(events(services)) == 1


def test_a_message_in_parts(services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    sender.write(tmp_path / "folder", IDS, LABELS, rr(), parts=3)
    accepted = services.messages.accept(tmp_path / "folder", key)
    assert accepted.rows()["example_id"].to_pylist() == IDS


def test_another_manifest_under_a_known_release_is_refused(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    services.messages.accept(write(sender, tmp_path), key)
    other = write(sender, tmp_path, seed=7)
    with pytest.raises(errors.ReplayConflict):
        services.messages.accept(other, key)
    assert len(events(services)) == 1
    assert len(list(services.home.messages.iterdir())) == 1


def test_another_labels_party_cannot_occupy_a_release_id(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    squatter = Sender()
    first = services.messages.accept(write(squatter, tmp_path, seed=7), squatter.key.public)
    assert services.messages.open("rel_1").digest == first.digest
    second = services.messages.accept(write(sender, tmp_path), key)
    assert (first.fresh, second.fresh) == (True, True)
    assert services.messages.accept(write(sender, tmp_path), key).fresh is False
    with pytest.raises(errors.ReplayConflict):
        services.messages.accept(write(sender, tmp_path, seed=9), key)
    assert [e.details["key_id"] for e in events(services)] == [squatter.key.public.id, key.id]
    assert {row["digest"] for row in services.acceptances.list(MESSAGE)} == {first.digest, second.digest}
    with pytest.raises(errors.Conflict, match="digest"):
        services.messages.open("rel_1")
    for message in (first, second):
        assert services.messages.open(message.digest).manifest.key_id == message.manifest.key_id
    third = services.messages.accept(write(squatter, tmp_path, release=second.digest), squatter.key.public)
    assert (
        services.messages.open(second.digest).digest == second.digest
    )  # an id that looks like a digest takes no place
    assert services.messages.open(third.digest).release == second.digest


def test_a_training_keeps_the_messages_that_it_was_asked_for(sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    import pyarrow as pa

    from features_party.models.trainer import check_one_label
    from features_party.tables.join import join
    from features_party.tables.output import write_table

    services, squatter = features_party(tmp_path / "home"), Sender()
    first = services.messages.accept(write(sender, tmp_path), key)
    table = pa.table({"click_id": IDS, "age": LABELS})
    row = services.feature_tables.upload(lambda path: write_table(table, path), "click_id", "t")
    training = services.trainings.request(Training(feature_table=row["id"], messages=["rel_1"], model="linear"))
    second = services.messages.accept(write(squatter, tmp_path, seed=7), squatter.key.public)
    assert services.trainings.run_next()
    ended = services.trainings.get(training["id"])
    assert ended["state"] == "succeeded", ended["problem"]
    card = services.models.open(ended["model"]).card
    assert [m["manifest_digest"] for m in card["messages"]] == [first.digest]
    with pytest.raises(errors.Conflict, match="digest"):
        services.trainings.request(Training(feature_table=row["id"], messages=["rel_1"]))
    services.trainings.request(Training(feature_table=row["id"], messages=[second.digest]))
    check_one_label([first, second])
    table = services.feature_tables.open(row["id"])
    joined = join([first, second], table).labelled(table.whole)
    names = {f"rel_1-{m.digest}" for m in (first, second)}
    assert set(joined["release"].to_pylist()) == names


# --- every wrong message -----------------------------------------------------------------------------------


def flip(path: Path, at: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def envelope(path: Path) -> Path:
    return path.with_name(path.name + ENVELOPE_SUFFIX)


def forge(path: Path, change: Any) -> None:
    """Change the payload without signing it again."""
    import base64

    data = json.loads(envelope(path).read_bytes())
    payload = json.loads(base64.b64decode(data["payload"]))
    change(payload)
    from label_dp.documents.canonical import canonical_bytes

    data["payload"] = base64.b64encode(canonical_bytes(payload)).decode()
    envelope(path).write_bytes(canonical_bytes(data))


def newer(document: dict[str, Any]) -> None:
    document["format"] = "label-dp-message/2"


def more_epsilon(document: dict[str, Any]) -> None:
    document["epsilon"] |= {"randomize": "1", "total": "1"}


def long_release(document: dict[str, Any]) -> None:
    document["id"] = "r" * 65


WRONG: dict[str, tuple[dict[str, Any], Any, type[Exception]]] = {
    "audience": ({"audiences": ["somebody-else"]}, None, errors.AudienceMismatch),
    "version": ({"edit": newer}, None, errors.UnsupportedVersion),
    "epsilon below what the channel takes": ({"edit": more_epsilon}, None, errors.MalformedManifest),
    "id too long for the audit store": ({"edit": long_release}, None, errors.MalformedManifest),
    "changed payload": ({}, lambda p: forge(p, lambda d: d.update(n=41)), errors.SignatureInvalid),
    "a flipped bit of the file": ({}, flip, errors.DigestMismatch),
    "a truncated file": ({}, lambda p: p.write_bytes(p.read_bytes()[:-1]), errors.DigestMismatch),
    "an appended byte": ({}, lambda p: p.write_bytes(p.read_bytes() + b"0"), errors.DigestMismatch),
    "an empty file": ({}, lambda p: p.write_bytes(b""), errors.DigestMismatch),
    "no file": ({}, lambda p: p.unlink(), errors.InvalidFile),
    "no envelope": ({}, lambda p: envelope(p).unlink(), errors.InvalidFile),
    "an empty envelope": ({}, lambda p: envelope(p).write_bytes(b""), errors.MalformedManifest),
    "no JSON": ({}, lambda p: envelope(p).write_bytes(b"\x00"), errors.MalformedManifest),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_message_is_refused_and_leaves_nothing(
    what: str, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    options, damage, kind = WRONG[what]
    services = features_party(tmp_path / "home")
    path = write(sender, tmp_path, **options)
    if damage is not None:
        damage(path)
    with pytest.raises(kind) as refusal:
        services.messages.accept(path, key)
    assert str(refusal.value).strip()
    assert events(services) == []
    assert services.acceptances.list(MESSAGE) == []
    assert list(services.home.messages.iterdir()) == []


def test_another_key_is_refused(services: Services, sender: Sender, tmp_path: Path) -> None:
    with pytest.raises(errors.SignatureInvalid):
        services.messages.accept(write(sender, tmp_path), SigningKey.generate().public)


def test_pinned_keys(services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    path = write(sender, tmp_path)
    with pytest.raises(errors.InvalidInput, match="pin-key"):
        services.messages.accept(path)
    other = tmp_path / "other.pub"
    other.write_bytes(SigningKey.generate().public.pem)
    services.pinned.pin(other)
    with pytest.raises(errors.SignatureInvalid, match="not pinned"):
        services.messages.accept(path)
    services.pinned.pin(sender.public_key(tmp_path))
    services.pinned.pin(sender.public_key(tmp_path))
    assert {k.id for k in services.pinned.list()} == {key.id, VerifyingKey.load(other).id}
    assert services.messages.accept(path).fresh
    assert services.pinned.pin_of(key.id).trusted.id == key.id
    (tmp_path / "bad.pub").write_text("no key")
    with pytest.raises(errors.InvalidFile):
        services.pinned.pin(tmp_path / "bad.pub")


def climbing_release(document: dict[str, Any]) -> None:
    document["id"] = "../../etc"


def test_a_release_whose_name_climbs_folders_is_refused(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    before = sorted(services.home.path.rglob("*"))
    with pytest.raises(errors.MalformedManifest, match=r"malformed \(id: "):
        services.messages.accept(write(sender, tmp_path, edit=climbing_release), key)
    assert sorted(services.home.path.rglob("*")) == before


def test_verify_writes_nothing(sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    path = write(sender, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    settings, pinned = reader(Settings(home=tmp_path / "never"))
    assert pinned.list() == []
    assert verify_bundle(path, key, settings.name).manifest.n == 40
    assert sorted(tmp_path.rglob("*")) == before


# --- crashes -----------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Stands for the end of the process: no handler of ours may swallow it."""


@pytest.mark.parametrize(
    "point", ["message.accept:begin", "message.accept:before-commit", "message.accept:after-commit"]
)
def test_after_a_crash_at_any_point_accepting_again_gives_one_event(
    point: str, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    path = write(sender, tmp_path)

    def stop(name: str) -> None:
        if name == point:
            raise Crash

    settings = Settings(home=tmp_path / "home")
    crashing = bootstrap(settings, faults=stop)
    with pytest.raises(Crash):
        crashing.messages.accept(path, key)
    services = bootstrap(settings)
    accepted = services.messages.accept(path, key)
    assert accepted.fresh is (point != "message.accept:after-commit")
    assert len(events(services)) == 1
    assert services.messages.open("rel_1").rows().num_rows == 40
    assert len(list(services.home.messages.iterdir())) == 1


def test_leftovers_of_a_killed_process_are_ignored_and_later_removed(
    sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    import os

    services = features_party(tmp_path / "home")
    old, young = services.home.messages / ".incoming-old", services.home.messages / ".incoming-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "message.parquet").write_bytes(b"half")
    os.utime(old, (0, 0))
    services.messages.accept(write(sender, tmp_path), key)
    assert not old.exists()
    assert young.exists()  # another process may be at it
    assert len(services.acceptances.list(MESSAGE)) == 1


def test_two_accept_at_the_same_time(services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = write(sender, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        accepted = list(pool.map(lambda _: services.messages.accept(path, key), range(8)))
    assert sum(a.fresh for a in accepted) == 1
    assert len(events(services)) == 1
    assert services.messages.open("rel_1").rows().num_rows == 40


def test_the_export_verifies_with_our_public_key(
    services: Services, sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    services.messages.accept(write(sender, tmp_path), key)
    own = services.home.own_key()
    data = services.database.read("test", lambda c: services.audit.export(c, own))
    found = read_export(data, VerifyingKey.load(services.home.public_key)).events
    assert [e.kind for e in found] == ["store-created", ACCEPTED]
    with pytest.raises(errors.SignatureInvalid):
        read_export(data, key)


# --- training on what was accepted -------------------------------------------------------------------------


def test_training_accounts_before_it_trains_and_may_be_repeated(
    sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    from features_party.models.folder import load_model
    from features_party.tables.feature_tables import read_features
    from features_party.tables.output import write_table

    services, w = features_party(tmp_path / "home"), world(2000)
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, one_bit(epsilon=2.0))
    write_table(w.table(), tmp_path / "features.parquet")
    message = services.messages.accept(tmp_path / "m.parquet", key)
    table = read_features(tmp_path / "features.parquet", "click_id")
    card = services.trainer.train([message], table, Learning(), tmp_path / "model")
    (cost,) = card["epsilon"]
    assert (cost["population"], cost["name"], cost["epsilon_per_example"]) == ("pop_1", "shop", "2")
    assert card["messages"][0]["manifest_digest"] == message.digest
    assert card["messages"][0]["correction"]["unbiased"] is True
    estimate = card["report"]["error_estimate"]
    assert estimate["low"] < estimate["mse_below_constant"] < estimate["high"]
    truth = load_model(tmp_path / "model", None).model.predict(w.features)
    assert np.mean((truth - w.labels) ** 2) < 0.6 * np.var(w.labels)
    services.trainer.train([message], table, Learning(model="linear"), tmp_path / "model-2")
    kinds = [e.kind for e in services.database.read("test", lambda c: services.audit.events(c))]
    assert kinds == ["store-created", "message-accepted", "model-trained", "model-trained"]


def test_two_messages_of_the_same_examples_make_one_look_at_each(
    sender: Sender, key: VerifyingKey, tmp_path: Path
) -> None:
    """Rows of an example count as one, and two bits tell the squared error, which one does not."""
    from features_party.tables.feature_tables import read_features
    from features_party.tables.output import write_table

    services, w = features_party(tmp_path / "home"), world(1500)
    for name, epsilon in (("1", 2.0), ("2", 1.0)):
        channel, told = one_bit(epsilon=epsilon), {"release": f"rel_{name}", "batch": f"bat_{name}"}
        sender.write(tmp_path / f"{name}.parquet", w.ids, w.labels, channel, **told)
    write_table(w.table(), tmp_path / "features.parquet")
    messages = [services.messages.accept(tmp_path / f"{name}.parquet", key) for name in "12"]
    table = read_features(tmp_path / "features.parquet", "click_id")
    alone = services.trainer.train(messages[:1], table, Learning(model="linear"), tmp_path / "alone")["report"]
    card = services.trainer.train(messages, table, Learning(model="linear"), tmp_path / "both")
    report, estimate = card["report"], card["report"]["error_estimate"]
    assert (report["rows"], report["ids_in_several_messages"]) == (3000, 1500)
    assert "the 3,000 outputs of 1,500 examples were taken together" in " ".join(card["notes"])
    assert report["noise_variance"] < alone["noise_variance"]
    assert alone["error_estimate"]["mse"] is None
    assert estimate["mse"]["low"] >= 0.0
    assert "the product of two outputs of one example" in estimate["mse_why"]
    # a fifth of the examples was held out
    assert 0.1 * 1500 < estimate["rows"] < 0.3 * 1500


def test_messages_of_different_labels_do_not_make_one_model(sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    from features_party.models.trainer import check_one_label, default_loss

    services = features_party(tmp_path / "home")
    first = services.messages.accept(write(sender, tmp_path, loss="poisson"), key)
    second = services.messages.accept(
        write(sender, tmp_path, channel=one_bit("0:20"), release="rel_2", batch="b2"), key
    )
    with pytest.raises(errors.InvalidInput, match="different labels"):
        check_one_label([first, second])
    with pytest.raises(errors.InvalidInput, match="twice"):
        check_one_label([first, first])
    assert default_loss([first]) == "poisson"
    assert default_loss([first, second]) == "squared"
    binary = services.messages.accept(write(sender, tmp_path, channel=one_bit("0:1"), release="rel_3", batch="b3"), key)
    assert default_loss([binary]) == "log"


def test_a_biased_channel_gets_no_error_estimate(sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    from features_party.tables.feature_tables import read_features
    from features_party.tables.output import write_table

    services, w = features_party(tmp_path / "home"), world(1200)
    sender.write(tmp_path / "m.parquet", w.ids, w.labels, rr())
    write_table(w.table(), tmp_path / "features.csv")
    message = services.messages.accept(tmp_path / "m.parquet", key)
    table = read_features(tmp_path / "features.csv", "click_id")
    card = services.trainer.train([message], table, Learning(), tmp_path / "model")
    assert card["report"]["error_estimate"] is None
    assert "differs from the label" in card["report"]["error_estimate_why"]


@pytest.mark.parametrize("epsilon", ["0.5", "30"])
@pytest.mark.parametrize("n", [1, 3])
def test_the_smallest_messages_train(n: int, epsilon: str, sender: Sender, key: VerifyingKey, tmp_path: Path) -> None:
    from features_party.tables.feature_tables import read_features
    from features_party.tables.output import write_table

    services, w = features_party(tmp_path / "home"), world(n)
    channels = {"one-bit": one_bit(epsilon=float(epsilon)), "rr": rr(epsilon=float(epsilon)), "one-bin": rr(cuts=())}
    write_table(w.table(), tmp_path / "features.parquet")
    table = read_features(tmp_path / "features.parquet", "click_id")
    for name, channel in channels.items():
        path = tmp_path / f"{name}.parquet"
        sender.write(path, w.ids, w.labels, channel, epsilon=epsilon, epsilon_lifetime="40", release=name, batch=name)
        message = services.messages.accept(path, key)
        for model in ("ensemble", "linear"):
            for loss in ("squared", "poisson", "absolute"):
                out = tmp_path / f"{name}-{model}-{loss}"
                card = services.trainer.train([message], table, Learning(model=model, loss=loss), out)
                assert 0.0 <= card["report"]["corrected_mean"] <= 10.0
