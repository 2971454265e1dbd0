"""Sums by group over REST and on files: exact but for their noise, charged as planned, refused at no charge."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from label_dp.cli.answers import estimates
from label_dp.companions.kinds.sum import LabelLattice, VerifiedSums, open_sums
from label_dp.companions.maps.group_sums import half_width
from label_dp.documents.signing import VerifyingKey
from label_dp.documents.statement_text import number
from label_dp.domain import Domain
from labels_party.companions.kinds import sum as kind
from labels_party.mechanisms.entropy import LaplaceNoise
from tests.support.labels import LabelsParty
from tests.support.own_features import document, sealed
from tests.support.pages import signed_in

N = 600
RNG = np.random.default_rng(3)
COUNTRY = RNG.choice(["DE", "FR", "PL"], N).tolist()
REGION = ["west" if country != "PL" else None for country in COUNTRY]
DAY = RNG.choice([2, 9, 10], N).tolist()
LABEL = RNG.integers(0, 11, N).tolist()
IDS = [f"c-{i:04d}" for i in range(N)]
LABELS = pa.table({"example_id": IDS, "label": [float(label) for label in LABEL]})
TABLE = pa.table({"example_id": [*IDS[::-1], "stranger"], "country": [*COUNTRY[::-1], "DE"], "day": [*DAY[::-1], 1]})
TABLE = TABLE.append_column("region", pa.array([*REGION[::-1], "west"])).append_column("x", pa.array([0.5] * (N + 1)))
ASK: dict[str, Any] = {"epsilon": "1", "by": ["region", "country,day", "day"]}
MORE = {"additional_release": True}


@pytest.fixture
def party(tmp_path: Path) -> Iterator[LabelsParty]:
    with LabelsParty(tmp_path / "home") as party:
        yield party


def answered(party: LabelsParty, batch: str, **changes: Any) -> VerifiedSums:
    asked = party.client().post(f"/v1/batches/{batch}/sums", json=ASK | changes)
    assert asked.status_code == 202, asked.text
    party.services.pipeline.run(asked.json()["id"])
    envelope = document(party.client(), "sums", asked.json()["id"])
    return open_sums(envelope, VerifyingKey.load(party.home / "keys" / "signing.pub"), "features-party")


def without_noise(_noise: LaplaceNoise, n: int) -> Any:
    return np.zeros(n, np.int64)


def silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kind.noisy_groupings, "__defaults__", (without_noise,))


@pytest.mark.parametrize("domain", ["0:10", [-2.5, 0, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
def test_without_noise_every_group_has_its_sum(
    domain: Any, party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch)
    batch = sealed(party, LABELS, TABLE, domain=domain)
    region, both, day = answered(party, batch).tables()
    assert region["by"] == ["region"]
    assert [row["region"] for row in region["rows"]] == ["west", None]
    for table, key in ((region, lambda i: (REGION[i],)), (both, lambda i: (COUNTRY[i], str(DAY[i])))):
        for row in table["rows"]:
            group = [LABEL[i] for i in range(N) if key(i) == tuple(row[name] for name in table["by"])]
            assert (row["n"], row["sum"]) == (len(group), pytest.approx(sum(group)))
            assert row["mean"] == pytest.approx(sum(group) / len(group))
    assert len(both["rows"]) == 9
    assert [row["day"] for row in day["rows"]] == ["2", "9", "10"]
    # the stranger's day 1 is of no example of the batch, and not told
    columns = {column["name"]: column["values"] for column in answered(party, batch, **MORE).answer.result["columns"]}
    assert columns == {"region": ["west", None], "country": ["DE", "FR", "PL"], "day": ["2", "9", "10"]}


def test_estimates_agree_and_say_what_they_do_not_know(party: LabelsParty) -> None:
    batch = sealed(party, LABELS, TABLE)
    tables = answered(party, batch, epsilon="0.3", by=["region", "region,country", "country,day", "day"]).tables()
    totals = [sum(row["sum"] for row in table["rows"]) for table in tables]
    assert totals == pytest.approx([totals[0]] * len(totals))
    region, country, fine, _ = tables
    west = [row["sum"] for row in country["rows"] if row["region"] == "west"]
    assert region["rows"][0]["sum"] == pytest.approx(sum(west), abs=1e-3)
    for row in country["rows"]:
        parts = [part["sum"] for part in fine["rows"] if part["country"] == row["country"]]
        assert row["sum"] == pytest.approx(sum(parts), abs=1e-3)
    assert all(-1e-6 <= row["sum"] <= 10 * row["n"] + 1e-6 for table in tables for row in table["rows"])
    tiny = answered(party, batch, epsilon="0.003", by=["country,day"], additional_release=True).tables()[0]
    assert any(row["says_nothing"] for row in tiny["rows"])  # the noise is of scale 3,333, a cell holds 700 at most
    assert not any(row["says_nothing"] for row in region["rows"])


def test_the_budget_is_charged_once_and_a_plan_costs_nothing(party: LabelsParty) -> None:
    batch = sealed(party, LABELS, TABLE)
    plan = party.client().post(f"/v1/batches/{batch}/sums/plan", json=ASK)
    assert plan.json()["epsilon"]["total"] == "1"
    assert plan.json()["parameters"]["epsilon"] == ["0.333333334", "0.333333333", "0.333333333"]
    assert plan.json()["parameters"]["cells"] == [2, 9, 3]
    assert party.spent(batch) == "0"
    verified = answered(party, batch)
    assert verified.answer.parameters == plan.json()["parameters"]
    assert (party.spent(batch), str(verified.answer.epsilon.total)) == ("1", "1")
    again = party.client().post(f"/v1/batches/{batch}/sums", json=ASK)
    assert again.status_code == 409  # a second one needs additional_release
    assert "additional_release" in again.text
    assert party.spent(batch) == "1"


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"by": ["nobody"]}, 422, "no column 'nobody'"),
        ({"by": ["x"]}, 422, "decimals"),
        ({"by": ["country,,day"]}, 422, "1 to 8 columns"),
        ({"by": ["country,country"]}, 422, "twice"),
        ({"by": ["country,mean"]}, 422, "name of a figure"),
        ({"by": ["country,day", "day,country"]}, 422, "same columns"),
        ({"by": ["example_id"]}, 422, "example_id"),
        ({"epsilon": "0.000000001"}, 422, "too small"),
        ({"epsilon": "11"}, 403, "lifetime"),
    ],
)
def test_what_cannot_be_summed_is_refused_at_no_charge(
    changes: Any, status: int, told: str, party: LabelsParty
) -> None:
    batch = sealed(party, LABELS, TABLE)
    refused = party.client().post(f"/v1/batches/{batch}/sums", json=ASK | changes)
    assert refused.status_code == status, refused.text
    assert told in refused.json()["detail"]
    assert party.spent(batch) == "0"


def test_the_page_of_an_answer_shows_its_groups_to_whom_it_is_for(party: LabelsParty) -> None:
    hostile, ids = "<b>&\n", pa.array(IDS)
    wide = [f"{'x' * 30}-{i % 250:03d}" for i in range(N)]
    table = pa.table({"example_id": ids, "country": COUNTRY, "wide": wide}).append_column(
        "<i>", pa.array([hostile if day == 2 else None for day in DAY])
    )
    verified = answered(party, sealed(party, LABELS, table), epsilon="0.4", by=["country", "wide", "<i>,country"])
    countries, many, _ = verified.tables()
    for role in ("owner", "features"):
        page = signed_in(party.client(role)).get(f"/answers/{verified.answer.id}").text
        for row in countries["rows"]:
            assert re.search(f">{row['country']}</th>.*>{row['n']:,}</td>.*>{number(estimates(row)[1])}</td>", page), (
                role
            )
        assert page.count('class="picture"') == 3
        assert "&lt;i&gt; and country" in page
        assert "<b>&" not in page
        assert "The picture shows the 40 groups with most examples, of 250." in page
        assert f"150 more rows: <code>labels-party answer {verified.answer.id} --out FILE.json --csv FOLDER" in page
    assert page.count("says nothing</span>") >= sum(row["says_nothing"] for row in many["rows"][:100]) > 0
    auditor = signed_in(party.client("auditor"))  # who cannot fetch the document either
    assert party.client("auditor").get(f"/v1/answers/{verified.answer.id}/document").status_code == 404
    assert "Sums and means" not in auditor.get(f"/answers/{verified.answer.id}").text
    stranger = signed_in(party.client("features", "somebody-else"))
    assert stranger.get(f"/answers/{verified.answer.id}").status_code == 404


def test_a_sum_far_beyond_what_is_possible_still_has_an_interval(
    party: LabelsParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far(noise: LaplaceNoise, n: int) -> Any:
        return np.resize([-1, 1], n) * round(1000 * noise.scale)

    monkeypatch.setattr(kind.noisy_groupings, "__defaults__", (far,))
    batch = sealed(party, LABELS, TABLE)
    (table,) = answered(party, batch, by=["region"]).tables()
    reach = half_width(10.0)
    west, none = table["rows"]
    assert (west["sum_from"], west["sum_to"]) == (0, reach)
    assert (none["sum_from"], none["sum_to"]) == (10 * none["n"] - reach, 10 * none["n"])


def test_a_lattice_holds_every_label() -> None:
    for text in ("-3:7:0.25", "5:5", "0:400:0.01"):
        domain = Domain.parse(text)
        lattice = LabelLattice.of(domain)
        assert lattice.low + lattice.unit * lattice.sensitivity == Fraction(domain.value(domain.k - 1))
    listed = Domain.from_values(["-2.5", "0", "1.5", "10"])
    lattice = LabelLattice.of(listed)
    assert (lattice.unit, lattice.sensitivity, lattice.numbers) == (Fraction(1, 2), 25, [0, 5, 8, 25])


@pytest.mark.parametrize("scale", [0.05, 0.4, 1.0, 7.3, 4321.0, 1e12])
def test_an_interval_is_the_smallest_that_holds_19_of_20(scale: float) -> None:
    def beyond(q: int) -> float:
        rest = np.exp(-1 / scale)
        return float(2 * np.exp(-(q + 1) / scale) / (1 + rest))

    q = half_width(scale)
    assert beyond(q) <= 0.05
    assert q == 0 or beyond(q - 1) > 0.05 * (1 - 1e-9)
