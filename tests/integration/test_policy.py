"""An organisation's policy: applied from one file, held to by every charge, loosened by two people alone."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deploy.verify_standalone.refusal import RuleError
from deploy.verify_standalone.rules import Rules
from label_dp.audit.ceilings import CeilingRules
from label_dp.audit.events import POLICY_APPLIED, POLICY_PROPOSED, Event
from label_dp.audit.policies import policy_rules
from label_dp.audit.rulebook import RuleBroken
from label_dp.audit.rules import ChainRules
from label_dp.audit.verification import verify_store
from label_dp.documents.canonical import canonical_bytes
from label_dp.errors import BudgetExceeded, Conflict, InvalidInput, LabelDPError
from label_dp.schemas.policy import Policy
from label_dp.schemas.validation import as_model
from labels_party.files.policy import PolicyStep, apply, in_force
from tests.support.commands import command
from tests.support.honest_chains import DECLARATION, TOLD, ceilings, chained, charge, event, policy, sealed
from tests.support.labels import FakeClock, LabelsParty, label_table
from tests.support.pages import signed_in
from tests.support.people import columns
from tests.support.people import sealed as sealed_column

pytestmark = pytest.mark.extended

ADA, BOB = "command line: Ada", "command line: Bob"


def applied(party: LabelsParty, actor: str = ADA, **members: Any) -> list[PolicyStep]:
    return apply(party.services, as_model(members, Policy), actor)


def refusal(party: LabelsParty, batch: str, epsilon: str, **options: Any) -> str:
    with pytest.raises(BudgetExceeded) as error:
        party.charge(batch, epsilon, additional_release=True, **options)
    assert "No owner can lift it" in error.value.detail
    return error.value.detail


def checked(party: LabelsParty) -> None:
    s = party.services
    s.database.read("verify", lambda c: verify_store(c, s.audit, s.key.public))


def test_every_charge_is_held_to_the_ceilings(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(20))
    party_on.charge(batch, "3")  # before any policy
    limits = {"epsilon_per_release": "1", "epsilon_per_example": "5", "mechanisms": ["rr-on-bins", "calibration"]}
    (step,) = applied(party_on, ceilings=limits)
    assert step.state == "change"
    assert "ε 1.000000001 of one charge is beyond the policy's ceiling of 1" in refusal(party_on, batch, "1.000000001")
    assert "does not allow 'exponential'" in refusal(party_on, batch, "1", mechanism="exponential")
    party_on.charge(batch, "1", additional_release=True)
    party_on.charge(batch, "1", additional_release=True)
    assert "of one example is beyond the policy's ceiling of 5" in refusal(party_on, batch, "0.000000001")
    assert party_on.spent(batch) == "5"
    other = party_on.sealed_batch(label_table(20, prefix="other"))
    party_on.charge(other, "1")
    checked(party_on)


def test_a_person_has_so_much_a_year_over_all_columns_of_the_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with LabelsParty(tmp_path / "home", clock=clock, worker=False) as party:
        clicks, carts = columns(party, "clicks", "carts", epsilon="9")
        applied(party, ceilings={"epsilon_per_person_and_year": "2"})
        party.charge(clicks, "1.5")
        assert "ε 2.000000001 of one person in a year" in refusal(party, carts, "0.500000001")
        cancelled = party.charge(carts, "0.5")
        party.services.decisions.cancel(cancelled, "test")
        refusal(party, carts, "0.000000001")  # what is cancelled gives nothing of the year back
        more = sealed_column(party, "clicks", prefix="more")
        party.charge(more, "1.5")  # other examples, no more than the largest batch
        checked(party)
        clock.move(days=366)
        party.charge(carts, "2")
        assert "of one person in a year" in refusal(party, clicks, "0.000000001")
        checked(party)


def test_above_an_epsilon_a_second_person_approves_in_any_population(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(20))
    applied(party_on, ceilings={"four_eyes_above": "0.5", "epsilon_per_release": "2"})
    quick = party_on.charge(batch, "0.5")
    assert party_on.state(quick).state == "charged"
    waiting = party_on.charge(batch, "0.6", additional_release=True)
    assert (party_on.state(waiting).state, party_on.spent(batch)) == ("accepted", "0.5")
    with pytest.raises(LabelDPError, match="somebody else"):
        party_on.services.decisions.approve(waiting, "test")
    party_on.services.decisions.approve(waiting, "another")
    assert party_on.spent(batch) == "1.1"
    refusal(party_on, batch, "2.1")  # before anybody is asked
    checked(party_on)


@pytest.mark.parametrize(
    ("epsilon", "words", "code", "why"),
    [("0.6", (), 2, "say who asks for the release: --as NAME"), ("2.1", ("--as", "Ada"), 1, "No owner can lift it")],
)
def test_a_file_is_refused_before_its_seal(
    tmp_path: Path, epsilon: str, words: tuple[str, ...], code: int, why: str
) -> None:
    pq.write_table(label_table(20), tmp_path / "labels.parquet")
    with LabelsParty(tmp_path / "home", worker=False) as party:
        applied(party, ceilings={"four_eyes_above": "0.5", "epsilon_per_release": "2"})
        columns = ("--labels", "labels.parquet", "--id-column", "example_id", "--label-column", "label")
        release = (
            "--population",
            "shop",
            "--domain",
            "0:10",
            "--budget",
            "5",
            "--epsilon",
            epsilon,
            "--out",
            "m.parquet",
            *words,
        )
        home = {"LABELS_PARTY_HOME": str(tmp_path / "home")}
        done = command("labels-party", "privatize", *columns, *release, folder=tmp_path, environment=home)
        assert (done.returncode, why in done.stderr) == (code, True), done.stderr
        kinds = [e.kind for e in party.services.database.read("e", party.services.audit.events)]
        assert kinds == ["store-created", "policy-applied"]


def test_a_waiting_charge_is_held_to_the_policy_of_the_day_of_its_approval(party_on: LabelsParty) -> None:
    batch = party_on.sealed_batch(label_table(20))
    applied(party_on, ceilings={"four_eyes_above": "0.5"})
    waiting = party_on.charge(batch, "1")
    applied(party_on, ceilings={"four_eyes_above": "0.5", "epsilon_per_release": "0.9"})
    with pytest.raises(BudgetExceeded, match="of one charge is beyond"):
        party_on.services.decisions.approve(waiting, "another")
    assert party_on.state(waiting).state == "accepted"
    checked(party_on)


def test_loosening_takes_two_people_and_stays_visible(party_on: LabelsParty) -> None:
    strict, loose = {"epsilon_per_release": "1"}, {"epsilon_per_release": "2"}
    applied(party_on, ceilings=strict)
    with pytest.raises(InvalidInput, match="--as NAME"):
        applied(party_on, "command line", ceilings=loose)
    assert [step.state for step in applied(party_on, ADA, ceilings=loose)] == ["waits"]
    assert [
        step.state for step in applied(party_on, ADA.upper().replace("COMMAND LINE", "command line"), ceilings=loose)
    ] == ["waits"]
    batch = party_on.sealed_batch(label_table(20))
    refusal(party_on, batch, "2")
    assert [step.state for step in applied(party_on, BOB, ceilings={"epsilon_per_release": "3"})] == ["waits"]
    refusal(party_on, batch, "2")  # he proposed something else
    assert [step.state for step in applied(party_on, BOB, ceilings=loose)] == ["change"]
    party_on.charge(batch, "2")
    assert [step.state for step in applied(party_on, ADA, ceilings={})] == ["waits"]  # no ceiling is looser than any
    s = party_on.services
    kinds = (POLICY_PROPOSED, POLICY_APPLIED)
    events = [e for kind in kinds for e in s.database.read("e", lambda c, k=kind: s.audit.events(c, kind=k))]
    assert [(e.kind, e.actor) for e in events] == [
        (POLICY_PROPOSED, ADA),
        (POLICY_PROPOSED, BOB),
        (POLICY_PROPOSED, ADA),
        (POLICY_APPLIED, ADA),
        (POLICY_APPLIED, BOB),
    ]
    assert events[-1].details["proposed_by"] == ADA
    checked(party_on)


def test_a_policy_declares_once_and_changes_nothing_that_was_declared(tmp_path: Path) -> None:
    home = {"LABELS_PARTY_HOME": str(tmp_path / "home")}
    text = """
        [ceilings]
        epsilon_per_release = 1.5
        [[people]]
        name = "shoppers"
        lifetime_epsilon = "6"
        [[populations]]
        name = "shop"
        label = "revenue"
        domain = "0:400"
        lifetime_epsilon = "5"
        people = "shoppers"
        retention_days = 30
        audiences = ["magazine"]
    """
    (tmp_path / "policy.toml").write_text(text)

    def run(*words: str, code: int = 0) -> str:
        done = command("labels-party", "apply", "policy.toml", *words, folder=tmp_path, environment=home)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    dry = run("--dry-run")
    assert dry.count("would be: ") == 3
    assert "population 'shop' is declared, lifetime ε 5 per example, for magazine" in dry
    assert run() == dry.replace("would be: ", "done: ")
    assert run().count("as it is: ") == 3
    (tmp_path / "policy.toml").write_text(text.replace('"0:400"', '"0:500"'))
    assert "has other rules (domain)" in run(code=1)
    (tmp_path / "policy.toml").write_text(text.replace("1.5", '"1.5e"'))
    assert "error: ceilings.epsilon_per_release must be a decimal number" in run(code=2)
    (tmp_path / "policy.toml").write_text(text.replace("epsilon_per_release", "epsilon_per_relase"))
    assert "epsilon_per_release" in run(code=2)
    (tmp_path / "policy.toml").write_text(text.replace("[ceilings]", '[ceilings]\nmechanisms = ["laplaze"]'))
    assert "There is no mechanism or answer 'laplaze'" in run(code=2)


def test_pages_and_command_show_what_is_in_force_and_what_waits(party_on: LabelsParty) -> None:
    owner = signed_in(party_on.client())
    assert "Policy of the organisation" not in owner.get("/overview").text
    applied(party_on, ceilings={"epsilon_per_release": "1"})
    applied(party_on, ADA, ceilings={"epsilon_per_release": "2"})
    for path in ("/overview", "/approvals"):
        assert f"was proposed by {ADA}" in owner.get(path).text
    assert "which no owner lifts: ε of one charge 1." in owner.get("/overview").text
    party_on.sealed_batch(label_table(20))
    asked, refused = (
        "/plan?population=shop&epsilon=",
        "the most that the organisation&#39;s policy allows of one charge",
    )
    assert [refused in owner.get(f"{asked}{epsilon}").text for epsilon in ("1", "1.1")] == [False, True]
    shown = in_force(party_on.services)
    assert shown["ceilings"]["epsilon_per_release"] == "1"
    assert [one["proposed_by"] for one in shown["waiting"]] == [ADA]
    assert [s.state for s in apply(party_on.services, as_model({}, Policy), "command line", dry_run=True)] == ["waits"]
    assert in_force(party_on.services) == shown


def test_a_second_person_applies_a_policy_on_the_page(party_on: LabelsParty) -> None:
    """Not who proposed it, and once: the digest names what waits."""
    party, owner, officer = party_on, signed_in(party_on.client()), signed_in(party_on.client("approver"))
    own = party.services.apikeys.authenticate(owner.key).actor
    applied(party, ceilings={"epsilon_per_release": "1"})
    applied(party, own, ceilings={"epsilon_per_release": "2"})
    (waiting,) = in_force(party.services)["waiting"]
    path = f"/approvals/policies/{waiting['policy']}"
    assert "You proposed it yourself" in owner.get("/approvals").text
    assert path not in owner.get("/approvals").text
    assert owner.post(path, owner.token("/overview")).status_code == 403
    assert officer.post(path, None).status_code == 422  # without the token of the form
    assert "ε of one charge 2. Today: ε of one charge 1." in officer.get("/approvals").text
    token = officer.token("/approvals")
    assert officer.post(path, token).headers["location"].endswith("approvals?done=applied")
    assert officer.post(path, token).status_code == 404
    assert in_force(party.services)["ceilings"]["epsilon_per_release"] == "2"
    checked(party)


def test_what_fails_in_the_middle_leaves_nothing(party_on: LabelsParty) -> None:
    shop = {"name": "shop", "label": "revenue", "domain": "0:10", "lifetime_epsilon": "3"}
    with pytest.raises(LabelDPError):
        applied(party_on, populations=[shop, shop | {"name": "other", "people": "nobody"}], ceilings={})
    s = party_on.services
    assert s.database.read("p", s.populations.list) == []
    applied(party_on, populations=[shop])
    with pytest.raises(Conflict):
        applied(party_on, populations=[shop | {"lifetime_epsilon": "4"}], ceilings={"epsilon_per_release": "1"})
    assert s.database.read("c", lambda c: policy_rules(s.audit, c)).policy != ""
    assert str(s.database.read("c", lambda c: policy_rules(s.audit, c)).ceilings) == "no ceiling"


def test_allowances_are_set_for_the_batches_that_are_sealed(party_on: LabelsParty) -> None:
    first = party_on.sealed_batch(label_table(20))
    allow = [{"population": "shop", "answer": "calibration", "epsilon": "0.5"}]
    assert "1 of 1 batches change" in applied(party_on, allowances=allow)[1].what
    second = party_on.sealed_batch(label_table(20, prefix="more"))
    assert applied(party_on, allowances=allow)[1].state == "change"
    assert applied(party_on, allowances=allow)[1].state == "same"
    s = party_on.services
    for batch in (first, second):
        left = s.database.read("a", lambda c, b=batch: s.allowances.of(c, b, "calibration"))
        assert str(left) == "0.5"


def test_a_store_without_the_rule_is_found_out(party_on: LabelsParty, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same charge by a product that forgot the ceilings breaks the chain for every checker."""
    batch = party_on.sealed_batch(label_table(20))
    applied(party_on, ceilings={"epsilon_per_release": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(CeilingRules, "charge", lambda *_, **__: None)
        party_on.charge(batch, "2")
    with pytest.raises(RuleBroken, match=r"rule 22 \(ceilings\)"):
        checked(party_on)


@pytest.mark.parametrize("seed", range(12))
def test_both_checkers_and_plain_sums_agree_over_random_years(seed: int) -> None:
    """Charges of random days and batches against a ceiling a year: both checkers refuse exactly what plain Python does,
    which adds up every batch of a population that stands alone."""
    rng = random.Random(seed)
    about = {"population": "pop_1", "population_name": "shop", "label": "revenue"}
    chain = [
        event("store-created", actor=""),
        event("population-created", **about, **TOLD, details=DECLARATION | {"lifetime_epsilon": "100"}),
        *(sealed(about, f"bat_{number}") for number in range(3)),
        policy("applied", "a", "ada", ceilings(epsilon_per_person_and_year="3"), proposed_by=None),
    ]
    day, sums, refused = 0, dict[tuple[int, str], int](), 0
    product, standalone = ChainRules(), Rules()
    for number, one in enumerate(chained(chain), start=1):
        product.add(Event.from_body(canonical_bytes(one)))
        standalone.add(number, one)
    for number in range(60):
        day += rng.randint(0, 40)
        year, batch, epsilon = 2026 + day // 365, f"bat_{rng.randrange(3)}", rng.randint(1, 2)
        time = f"{year}-{1 + day % 365 // 31:02}-01"
        chain = chained([*chain, charge(f"rel_{number}", epsilon, batch, **about, time=time)])
        allowed = sums.get((year, batch), 0) + epsilon <= 3
        for add, kind in ((_product, RuleBroken), (_standalone, RuleError)):
            rules = product if add is _product else standalone
            if allowed:
                add(rules, chain)
            else:
                with pytest.raises(kind, match="22"):
                    add(copy.deepcopy(rules), chain)
        if allowed:
            sums[year, batch] = sums.get((year, batch), 0) + epsilon
        else:
            refused += 1
            chain = chain[:-1]
    assert refused > 5
    assert len(sums) > 5


def _product(rules: Any, chain: list[dict[str, Any]]) -> None:
    rules.add(Event.from_body(canonical_bytes(chain[-1])))


def _standalone(rules: Any, chain: list[dict[str, Any]]) -> None:
    rules.add(len(chain), chain[-1])
