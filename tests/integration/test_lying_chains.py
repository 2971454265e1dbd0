"""The product's checkers and the standalone verifier hold chains to the same numbered rules, over one corpus."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy.verify_standalone.rules import NAMES
from label_dp.audit.events import ERASED
from label_dp.audit.rulebook import MATCHED, RULES, RuleBroken
from label_dp.audit.rules import HANDLED
from label_dp.audit.store import read_export
from label_dp.audit.verification import compare_with
from label_dp.documents.signing import SigningKey
from tests.support import chain_verdicts as verdicts
from tests.support import honest_chains as chains
from tests.support import lying_chains as lies
from tests.support import mutated_chains as mutants

KEY, OTHER = SigningKey.generate(), SigningKey.generate()
FUZZED = 150  # `make soak` goes on for minutes
LABELS = list(lies.lying(chains.labels_chain(), lies.LIES))
FEATURES = list(lies.lying(chains.features_chain(), lies.RECEIVED_LIES))


def judged(chain: chains.Chain, folder: Path) -> tuple[verdicts.Verdict, verdicts.Verdict]:
    envelope = chains.whole(chain, KEY)
    return verdicts.product(envelope, KEY), verdicts.standalone(envelope, KEY, folder)


@cache
def honest_events(party: str) -> Any:
    """What the other side of a comparison has."""
    honest = chains.features_chain() if party == "features" else chains.labels_chain()
    return read_export(chains.whole(chains.chained(honest), OTHER), OTHER.public).events


def test_rules_have_the_same_numbers_and_names_in_both() -> None:
    assert {rule.number: rule.name for rule in RULES if rule != MATCHED} == NAMES
    assert [rule.number for rule in RULES] == list(range(1, len(RULES) + 1))
    told = {rule for _, rule, _ in LABELS + FEATURES}
    assert told == set(NAMES), "a rule that no chain of the corpus breaks"


def test_honest_chains_pass_everywhere(tmp_path: Path) -> None:
    for chain in (chains.labels_chain(), chains.features_chain()):
        assert [found.rule for found in judged(chains.chained(chain), tmp_path)] == [None, None]


@pytest.mark.parametrize(("name", "rule", "chain"), LABELS + FEATURES, ids=[name for name, *_ in LABELS + FEATURES])
def test_a_lying_chain_breaks_one_rule_for_all_checkers(
    name: str, rule: int, chain: chains.Chain, tmp_path: Path
) -> None:
    ours, theirs = judged(chain, tmp_path)
    assert (ours.rule, theirs.rule) == (rule, rule), (ours, theirs)
    # and --against, whichever side it is of
    path = tmp_path / "there.json"
    path.write_bytes(chains.whole(chain, KEY))
    mine: Any = "features" if (name, rule, chain) in LABELS else "labels"
    with pytest.raises(RuleBroken) as broken:
        compare_with(path, honest_events(mine), OTHER.public, mine, lambda _: KEY.public)
    assert broken.value.rule.number == rule


@pytest.mark.parametrize(
    "members",
    [
        *({"made": made} for made in (5, "", None, "zzz", "2026-11-20T08:30:00", "2026-11-20\n")),
        *({"party": party} for party in (7, None)),
        *({"count": count} for count in (True, "1", None)),
        {"more": 1},
        {"head": None},
        {"format": "label-dp-audit-export/2"},
    ],
    ids=str,
)
def test_an_export_has_its_members_and_no_other(members: dict[str, Any], tmp_path: Path) -> None:
    chain = chains.chained(chains.labels_chain()[:1])
    for told, refused in ({}, False), (members, True):
        envelope = chains.whole(chain, KEY, **told)
        found = verdicts.product(envelope, KEY), verdicts.standalone(envelope, KEY, tmp_path)
        assert [one.rule for one in found] == [0 if refused else None] * 2, (told, found)


@pytest.mark.parametrize("told", [{"n": 9}, {"n": 9, "manifest_sha256": None}, {"n": 9, "manifest_sha256": 5}], ids=str)
def test_a_publication_says_what_was_published(told: dict[str, Any], tmp_path: Path) -> None:
    chain = chains.labels_chain()
    next(e for e in chain if e["kind"] == "release-published")["details"] = told
    assert [found.rule for found in judged(chains.chained(chain), tmp_path)] == [0, 0]


@pytest.mark.parametrize("honest", [chains.labels_chain(), chains.features_chain()], ids=["labels", "features"])
def test_both_judge_changed_chains_alike(honest: chains.Chain, tmp_path: Path) -> None:
    rng, refused = random.Random(20261122), 0
    for number in range(FUZZED):
        chain = mutants.mutated(honest, rng)
        ours, theirs = judged(chain, tmp_path)
        assert (ours.rule is None) == (theirs.rule is None), (number, ours, theirs, json.dumps(chain))
        if ours.rule and theirs.rule:
            assert ours.rule == theirs.rule, (number, ours, theirs)
        refused += ours.rule is not None
    assert FUZZED // 2 < refused < FUZZED


def test_a_checker_that_forgot_a_rule_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without rule 15 one side says yes where the other says no."""
    monkeypatch.setitem(HANDLED, ERASED, lambda _rules, _event: None)
    chain = next(chain for name, _, chain in LABELS if name == "an erasure with another effect")
    assert [found.rule for found in judged(chain, tmp_path)] == [None, 15]
