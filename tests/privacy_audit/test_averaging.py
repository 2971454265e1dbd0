"""Averaging: whoever asks for one label again and again, under other names, gets no more than its ledger charged.

What holds, exactly. Per label name (as people read it: case, width and ligatures do not count) and example id there is
one batch that counts, in one population, whatever becomes of it (purged, erased, cancelled). All messages about the
example, and the refusals in between, change the odds of any two labels by at most e^ε of what the ledger charged to
that batch, and that is at most the lifetime ε of its population. Refusals are the same for every label.

What is the owner's word: that another label name is another column, that another example id is another example, and
that another population's units are other people (the bound per unit is one population's). The ledgers then add up.

The attempts are seeded; a failure names seed and attempt. `tests/soak/soak_averaging.py` makes a thousand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from label_dp.audit.events import RETURNED
from label_dp.audit.judged import JudgedStore
from label_dp.audit.store import AuditStore
from label_dp.errors import AlreadyReleased, BudgetExceeded
from label_dp.privacy import ZERO, EpsilonSplit
from labels_party.labels import batch_uses
from labels_party.labels import batches as batches_module
from labels_party.labels.batch_uses import PUBLISHED
from labels_party.labels.batches import LABELS, RUNS, SEALED, Batches
from labels_party.labels.seal import SealedLabels
from labels_party.labels.units import Units
from labels_party.ledger.rules import Account, Granted, judge
from labels_party.ledger.store import Ledger
from labels_party.mechanisms import prior as prior_module
from labels_party.message.plan import GivenPrior
from labels_party.message.priors import PublishedPriors
from labels_party.storage.tables import segments
from labels_party.work import retention
from labels_party.work.decisions import Decisions
from tests.support.averaging import VICTIM, Leak, World
from tests.support.averaging_moves import run
from tests.support.posterior import exp_below, seen_counts
from tests.support.solved_once import solved_once

ATTEMPTS = 30


@contextmanager
def worlds(folder: Path, seed: int, *pairs: tuple[int, int]) -> Iterator[list[World]]:
    """One world per (label, the other label), each under the same attempts."""
    with ExitStack() as stack:
        stack.enter_context(solved_once())
        counts = stack.enter_context(seen_counts())
        made = [World(folder / f"{y}" / "home", seed, counts, y, other) for y, other in pairs]
        for world in made:
            stack.callback(world.close)
        yield made


def differences(one: World, two: World) -> list[tuple[Any, Any]]:
    """What the answers of two worlds do not have in common: statuses, texts and lengths, field by field."""
    assert len(one.transcript) == len(two.transcript)
    return [(a, b) for a, b in zip(one.transcript, two.transcript, strict=True) if a != b]


def test_no_attempt_gets_more_than_its_charge_and_refusals_ignore_labels(tmp_path: Path) -> None:
    with worlds(tmp_path, 1, (9, 1), (1, 9)) as (one, two):
        for world in (one, two):
            run(world, ATTEMPTS)
            assert world.refused > ATTEMPTS
            assert world.charged > 10
            assert world.share > 0.05  # the drawn messages do tell something, or nothing was attacked
        assert differences(one, two) == []


# --- planted controls ----------------------------------------------------------------------------------------


def forgets_additional_releases(patch: pytest.MonkeyPatch) -> None:
    charge = Ledger.charge

    def forgetful(self: Ledger, *args: Any) -> Any:
        return (
            self.check(*args[:3], args[4], args[-1], True)[1] if args[-1]["additional_release"] else charge(self, *args)
        )

    patch.setattr(Ledger, "charge", forgetful)
    patch.setattr(JudgedStore, "append", AuditStore.append)  # its rules would refuse the publication


def starts_every_account_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JudgedStore, "append", AuditStore.append)  # its rules would refuse the charge

    def forgetful(account: Account, split: EpsilonSplit) -> Granted | BudgetExceeded:
        return judge(dataclasses.replace(account, spent=ZERO), split)

    patch.setattr("labels_party.ledger.store.judge", forgetful)


def takes_a_renamed_population_for_a_fresh_one(patch: pytest.MonkeyPatch) -> None:
    draft = Batches.draft

    def fresh(self: Batches, population: Any, *more: Any) -> Any:
        batch = draft(self, population, *more)
        return dataclasses.replace(batch, label=f"{batch.label}/{population.id}")

    patch.setattr(Batches, "draft", fresh)


def takes_another_spelling_for_another_label(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches_module, "label_scope", lambda label: label)


def purges_digests_with_the_labels(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "OF_LABELS", segments.c.kind.in_((LABELS, SEALED, RUNS)))
    patch.setattr(retention.Retention, "due", lambda _self, _connection: [])


def returns_the_charge_of_a_drawn_release(patch: pytest.MonkeyPatch) -> None:
    cancel = Decisions.cancel

    def generous(self: Decisions, release_id: str, actor: str, *about: Any) -> Any:
        work = self.database.read("planted", lambda c: self.works.get(c, release_id))
        if work.state != PUBLISHED:
            return cancel(self, release_id, actor, *about)

        def store(connection: sa.Connection) -> Any:
            batch, population = self.works.about(connection, work)
            # the ledger and the rules of its chain would refuse it
            event = Ledger._event(RETURNED, population, batch.id, release_id, work.split, actor, {})
            AuditStore.append(self.ledger.audit, connection, event)
            return 200, self.works.describe(connection, work, population)

        return self.database.write("generous", store)

    patch.setattr(Decisions, "cancel", generous)


def halves_the_noise_of_priors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prior_module, "SENSITIVITY", 1)


def carries_priors_from_nowhere(patch: pytest.MonkeyPatch) -> None:
    raw = GivenPrior(np.eye(11)[9], "rel_" + "0" * 24)
    patch.setattr(PublishedPriors, "latest", lambda *_: raw)
    patch.setattr(PublishedPriors, "of", lambda *_: raw)


@pytest.mark.parametrize(
    ("plant", "moves"),
    [
        (forgets_additional_releases, ["ask_again", "ask_for_more"]),
        (starts_every_account_anew, ["ask_for_more"]),
        (takes_a_renamed_population_for_a_fresh_one, ["ask_again", "rename_population"]),
        (takes_another_spelling_for_another_label, ["ask_again", "rename_population"]),
        (purges_digests_with_the_labels, ["ask_again", "purge"]),
        (returns_the_charge_of_a_drawn_release, ["cancel"]),
        (halves_the_noise_of_priors, ["ask_for_more"]),
        (carries_priors_from_nowhere, ["ask_for_more"]),
    ],
)
def test_control_a_planted_bug_of_the_ledger_is_caught(
    plant: Any, moves: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with worlds(tmp_path, 5, (9, 1)) as (world,):
        world.planted = True
        with pytest.raises(Leak, match="seed 5, attempt"):
            run(world, 100, moves)


def test_control_a_refusal_that_tells_of_labels_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse, current = batch_uses.refuse_second, list[World]()

    def telling(connection: sa.Connection, batch_id: str, **asked: Any) -> None:
        services = current[-1].party.services
        found = services.batches.segments(connection, batch_id, SEALED)
        labels = [SealedLabels(services.vault, s.key).chunks() for s in found]
        try:
            refuse(connection, batch_id, **asked)
        except AlreadyReleased as error:
            total = sum(int(index.sum()) for chunks in labels for _, index in chunks)
            raise AlreadyReleased(f"{error.detail} The labels sum to {total}.") from None

    monkeypatch.setattr("labels_party.work.store.refuse_second", telling)
    with worlds(tmp_path, 6, (9, 1), (1, 9)) as (one, two):
        for world in (one, two):
            current.append(world)
            run(world, 6, ["ask_again", "ask_for_more"])
        assert differences(one, two) != []


# --- what the owner's word decides ---------------------------------------------------------------------------


def sealed(world: World, name: str, ids: list[str], **rules: Any) -> tuple[int, str]:
    """A population of that name and a batch of these ids; (the status of its seal, its id)."""
    body = {"name": name, "label": "revenue", "domain": "0:10", "missing_label": 0, "lifetime_epsilon": "1"} | rules
    world.call("POST", "/populations", json=body | {"audiences": ["publisher"]})
    batch = world.call("POST", f"/populations/{name}/batches", json={"presence": "public"}).json()["id"]
    rows: dict[str, Any] = {"example_id": ids, "label": [world.y] * len(ids)}
    if "unit_column" in rules:
        rows["unit"] = ["user-1"] * len(ids)
    world.call("POST", f"/batches/{batch}/labels", json=rows)
    return world.call("POST", f"/batches/{batch}/seal").status_code, batch


def released(world: World, batch: str, **options: Any) -> int:
    body = {"epsilon": "1", "mechanism": "one-bit"} | options
    status = world.call("POST", f"/batches/{batch}/releases", json=body).status_code
    world.drain()
    world.check()
    return status


def test_a_label_declared_another_column_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    """`check` compares each with its own ledger, and both together with the sum of the two."""
    with worlds(tmp_path, 0, (9, 1)) as (world,):
        for name, label, status in (("a", "revenue", 200), ("b", "margin", 200), ("c", "REVENUE", 409)):
            found, batch = sealed(world, name, [VICTIM, "x"], label=label)
            assert found == status
            if status == 200:
                assert released(world, batch) == 202
        assert sorted(m.manifest.population.label for m in world.told.values()) == ["margin", "revenue"]


def test_an_example_is_its_id_as_it_is_written(tmp_path: Path) -> None:
    """Another id is another example, whoever stands behind it: that one person has one id is the owner's word."""
    with worlds(tmp_path, 0, (9, 1)) as (world,):
        assert sealed(world, "a", [VICTIM, "x"])[0] == 200
        assert sealed(world, "b", [f"{VICTIM}-again", "X"])[0] == 200
        for same in ([VICTIM], ["x", "y"], ["X", VICTIM]):
            assert sealed(world, f"of-{same[0]}-{len(same)}", same)[0] == 409


def test_no_population_is_named_as_another_ones_id(tmp_path: Path) -> None:
    """Both find a population: with the name it would lend its own lifetime ε and audiences to the other's batches."""
    with worlds(tmp_path, 0, (9, 1)) as (world,):
        body = {"name": "a", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "1"}
        first = world.call("POST", "/populations", json=body).json()["id"]
        again = world.call("POST", "/populations", json=body | {"name": first, "label": "x", "lifetime_epsilon": "9"})
        assert (again.status_code, again.json()["code"]) == (409, "conflict")


# --- units ---------------------------------------------------------------------------------------------------


def unit_bound_holds(world: World, population: str, batches: list[str]) -> bool:
    """Whether all messages on one unit's examples stay within the ε per unit of the budget, were all their labels to
    change at once. Examples in excess have the missing-label value whatever their label was."""
    services, worst, exponent = world.party.services, Fraction(1), Fraction(0)
    for message in world.told.values():
        if message.manifest.batch not in batches:
            continue
        found = services.database.read("t", lambda c, b=message.manifest.batch: services.batches.segments(c, b, SEALED))
        sealed_labels = SealedLabels(services.vault, found[0].key)
        kept = sum(int((index == world.y).sum()) for _, index in sealed_labels.chunks())
        worst *= message.worst**kept
        counts = world.counts.get(message.manifest.id)
        exponent += kept * counts.worst(world.y, world.other) if counts else 0
    report = world.owner.get(f"/v1/populations/{population}/budget").json()
    allowed = Fraction(report["epsilon_per_unit_at_most"])
    return exponent <= allowed and worst <= exp_below(allowed - exponent)


def unit_attempts(world: World) -> list[str]:
    """Batch after batch of one user's examples, each released several ways; [ids of the batches]."""
    batches = []
    for number in range(4):
        ids = [VICTIM] if number == 0 else [f"e-{number}-{i}" for i in range(world.rng.randrange(1, 4))]
        _, batch = sealed(world, "units", ids, unit_column="user", max_examples_per_unit=2, lifetime_epsilon="3")
        batches.append(batch)
        for _ in range(2):
            prior = world.rng.choice(({}, {"mechanism": "rr", "prior": "estimate", "prior_epsilon": "0.4"}))
            released(world, batch, additional_release=True, **prior)
    return batches


def test_all_examples_of_a_unit_together_stay_within_the_bound_per_unit(tmp_path: Path) -> None:
    with worlds(tmp_path, 11, (9, 1)) as (world,):
        batches = unit_attempts(world)
        assert unit_bound_holds(world, "units", batches)
        # the bound is of one population: in another one, by the owner's word, the units are other people
        assert sealed(world, "more", ["e-9"], unit_column="user", max_examples_per_unit=2)[0] == 200


def test_control_units_that_are_not_counted_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Units, "_used", lambda _self, _earlier, units: np.zeros(len(units[0]), np.int64))
    with worlds(tmp_path, 11, (9, 1)) as (world,):
        assert not unit_bound_holds(world, "units", unit_attempts(world))
