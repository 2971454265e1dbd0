"""Where a person may have several examples, what all of them together have spent comes first: on every surface."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from label_dp.documents.statement_text import in_all_words
from tests.integration.test_unit_erasures import POPULATION, opened, seal
from tests.support.features_cli import Shell
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_cli import Run


@pytest.fixture
def released(home: Path) -> dict[str, Any]:
    """A population whose persons have at most 4 examples, of which one batch has spent ε 0.5 and another nothing."""
    with LabelsParty(home, worker=False) as party:
        owner = party.client()
        batch = seal(owner, opened(owner, "a"))
        seal(owner, opened(owner, "b"))
        release = party.release(batch, "0.5", mechanism="one-bit")
        page = owner.get(f"/v1/releases/{release}/statement").text
        budget = owner.get("/v1/populations/shop/budget").json()
        return {"release": release, "page": page, "budget": budget}


def test_the_budget(run: Run, released: dict[str, Any]) -> None:
    assert (released["budget"]["epsilon_per_unit_at_most"], released["budget"]["epsilon_per_unit_lifetime"]) == (
        "2",
        "36",
    )
    told = " ".join(run("budget").out.split())
    assert told.startswith("shop: all labels of one person together have spent ε 2 at most, of 36 (4 examples each).")


def test_the_statement_and_its_rule_of_thumb(released: dict[str, Any]) -> None:
    page = released["page"]
    assert page.index("<b>ε ≤ 2</b>") < page.index("<b>ε = 0.5</b>")
    assert "so far (ε at most 2): Moderate protection" in page  # ε 0.5 of one example alone would be strong
    assert "Strong protection" not in page


def test_both_parties_say_it_when_they_verify(run: Run, released: dict[str, Any], tmp_path: Path, home: Path) -> None:
    out = tmp_path / "m.parquet"
    assert run("message", released["release"], "--out", str(out)).code == 0
    told = "all labels of one person together have spent ε 2 at most"
    inspected = run("inspect", str(out))
    assert told in inspected.out.splitlines()[0]
    assert run("inspect", str(out), "--json").json["unit"]["epsilon_per_unit"] == "2"
    shell = Shell(tmp_path)
    verified = shell.run("verify", out, "--labels-key", home / "keys" / "signing.pub").stdout
    assert told in verified.splitlines()[0]
    audited = run("audit", "verify")
    assert "shop: ε 2 per person, all its examples together (ε 0.5 of 9 per example)" in " ".join(audited.out.split())


def test_where_an_example_is_the_unit_nothing_is_said_of_persons(run: Run, home: Path, tmp_path: Path) -> None:
    with LabelsParty(home, worker=False) as party:
        release = party.release(party.sealed_batch(label_table(50)), "2")
    assert "together" not in run("budget").out
    assert run("message", release, "--out", str(tmp_path / "m.parquet")).code == 0
    assert "together" not in run("inspect", str(tmp_path / "m.parquet")).out
    assert "shop: ε 2 of 10 per example" in run("audit", "verify").out
    assert POPULATION["unit_column"] not in run("audit", "verify").out


@pytest.mark.parametrize(("epsilon", "said"), [("0.5", "Strong"), ("1", "Solid"), ("3", "Moderate"), ("3.1", "Weak")])
def test_words_for_all_that_was_published(epsilon: str, said: str) -> None:
    assert in_all_words(Decimal(epsilon), "the labels of one person").startswith(f"{said} protection: ")
    assert "the labels of one person" in in_all_words(Decimal(epsilon), "the labels of one person")
