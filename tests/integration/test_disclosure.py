"""The officer's pack: figures of the ledger for a registry, for SP 800-226 and for an impact assessment, signed."""

from __future__ import annotations

import copy
import html
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from deploy.verify_standalone.refusal import RefusedError
from deploy.verify_standalone.report import verify_report
from label_dp.documents.signing import VerifyingKey
from labels_party.pages.deployment_entry import as_yaml, problems, slug
from labels_party.pages.disclosure import disclose
from labels_party.pages.disclosure_rows import QUESTIONS
from tests.integration.test_medians import published, sealed
from tests.support.commands import command
from tests.support.events import SECOND, EventShop, event
from tests.support.labels import LabelsParty, label_table
from tests.support.labels_api import published as finished
from tests.support.labels_cli import Run, arguments, refused
from tests.support.pages import Looker

pytestmark = pytest.mark.extended

GUIDE = Path(__file__).resolve().parents[2] / "deploy/guides/when-to-use.md"
FILES = ("deployment.yaml", "sp800-226.html", "dpia-annex.html")


@pytest.fixture
def pack(run: Run, labels: Path, tmp_path: Path) -> Path:
    """Of a population with two releases, the second without a prior of its own."""
    assert run(*arguments(labels, str(tmp_path / "a.parquet"), epsilon="0.5")).code == 0
    second = arguments(labels, str(tmp_path / "b.parquet"), epsilon="0.25", mechanism="rr", prior="uniform")
    assert run(*second, "--additional-release").code == 0
    out = tmp_path / "pack"
    result = run("disclose", "--population", "shop", "--out", out, "--curator", "Shop Ltd", "--region", "EU", "--json")
    assert result.code == 0, result.err
    assert result.json["files"] == list(FILES)
    (budget,) = run("budget", "--json").json
    assert result.json["epsilon"]["spent"] == budget["epsilon_spent_at_most"] == "0.75"
    return out


def text_of(page: Path) -> str:
    """The words of a page, without its marks."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf-8"))))


def entry_of(pack: Path) -> Any:
    return yaml.safe_load((pack / "deployment.yaml").read_text("utf-8"))


def test_the_entry_is_valid_and_has_the_ledgers_figures(pack: Path) -> None:
    entry = entry_of(pack)
    assert list(problems(entry)) == []
    deployment = entry["deployment"]
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.75}
    assert "ε 0.75 of a lifetime ε 2 was spent" in deployment["privacy_loss"]["privacy_parameters_details"]
    assert deployment["dp_variant"]["variant_name"] == "Pure DP"
    assert deployment["basic"]["data_curators"] == ["Shop Ltd"]
    assert deployment["deployment_model"]["release_type"] == "Many releases"
    mechanisms = deployment["implementation"]["mechanisms"]
    assert "1 release by rr-on-bins at ε 0.5" in mechanisms
    assert re.search(r"1 release by rr at ε 0\.25: .* at most e\^0\.2[0-9]*", mechanisms)
    published = deployment["basic"]["publication_date"]
    assert entry["url_slug"] == slug("shop", "Shop Ltd", published) == f"shop-shop-ltd-{published[:4]}"
    assert (pack / "deployment.yaml").read_text("utf-8").startswith(f"url_slug: {entry['url_slug']}\n")


def test_a_wrong_entry_is_told(pack: Path) -> None:
    """Each leaf of another type, each missing required member and one that there is none of."""
    entry = entry_of(pack)
    entry["deployment"]["privacy_loss"]["privacy_parameters"]["delta"] = "1e-10"
    assert list(problems(entry)) == []

    def altered(path: tuple[str, ...], value: object) -> list[str]:
        wrong = copy.deepcopy(entry)
        node = wrong
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value
        return list(problems(wrong))

    loose = {"privacy_parameters_details", "data_source_type_details"}
    leaves = list(leaves_of(entry))
    assert len(leaves) > 25
    for path in leaves:
        assert path[-1] in loose or altered(path, [1]), path
    assert altered(("deployment", "basic", "publication_date"), "1/1/2026")
    assert altered(("tier",), 0)
    assert altered(("tier",), True)
    assert altered(("surprise",), "x")
    for name in ("url_slug", "status", "tier", "deployment"):
        assert list(problems({n: v for n, v in entry.items() if n != name})), name


def leaves_of(node: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    leaves: list[tuple[str, ...]] = []
    for name, value in node.items():
        leaves += leaves_of(value, (*path, name)) if isinstance(value, dict) else [(*path, name)]
    return leaves


def test_texts_survive_yaml() -> None:
    hostile = {"url_slug": "a-b", "deployment": {"name": "# 'x': \"y\" \u2028\n- ε \\", "list": ["- a", "{b}"]}}
    read = yaml.safe_load(as_yaml(hostile))
    assert read["deployment"]["list"] == ["- a", "{b}"]
    assert read["deployment"]["name"] == "# 'x': \"y\" [U+2028][U+000A]- ε \\"


def test_the_pages_answer_with_the_populations_figures(pack: Path, run: Run) -> None:
    table, annex = text_of(pack / "sp800-226.html"), text_of(pack / "dpia-annex.html")
    head = run("audit", "verify", pack / "sp800-226.html", "--json").json["head"]
    for block, question in QUESTIONS.items():
        assert f"{block}: {question}" in table
    for words in ("ε 0.75 of a lifetime ε 2", "rr-on-bins at ε 0.5", "features-party", head, "no ceiling"):
        assert words in table
    for letter in ("(a) ", "(b) ", "(c) ", "(d) "):
        assert letter in annex
    assert "a factor of 2.12 at most" in annex  # e^0.75 = 2.117
    releases = run("releases", "--json").json
    assert all(row["id"] in annex for row in releases)
    for page in (pack / "sp800-226.html", pack / "dpia-annex.html"):
        assert "<script" not in page.read_text("utf-8")


def test_other_label_names_are_told(run: Run, labels: Path, pack: Path, home: Path) -> None:
    words = "What the same examples spend under them is not added up here."
    assert words not in text_of(pack / "dpia-annex.html")
    sales = pack.parent / "sales.parquet"
    pq.write_table(pq.read_table(labels).rename_columns(["example_id", "sale"]), sales)
    assert run(*arguments(sales, str(pack.parent / "c.parquet"), label_column="sale", population="sales")).code == 0
    out = pack.parent / "second"
    assert run("disclose", "--population", "shop", "--out", out, "--curator", "C", "--region", "EU").code == 0
    assert f'"sale": other label names of this party. {words}' in text_of(out / "dpia-annex.html")
    with LabelsParty(home) as party:
        person = Looker(party.client("auditor"))
        person.sign_in()
        shown = html.unescape(person.get("/overview").text)
    assert "Label names: label (shop); sale (sales). What the same examples spend under different" in shown


def test_the_questions_are_the_guides() -> None:
    section = GUIDE.read_text("utf-8").split("## What NIST asks")[1]
    assert dict(re.findall(r"^\| \*\*([^*]+)\*\*: ([^|]+?) \|", section, re.MULTILINE)) == QUESTIONS


def test_every_verifier_takes_the_signatures_and_no_changed_byte(
    pack: Path, run: Run, home: Path, tmp_path: Path
) -> None:
    key_file = home / "keys" / "signing.pub"
    key = VerifyingKey.load(key_file)
    for name in FILES:
        page = pack / name
        assert run("audit", "verify", page, "--key", key_file).code == 0
        assert "\n party   labels-party\n" in run("audit", "verify", f"{page}.dsse.json", "--key", key_file).out
        assert run("audit", "verify", page).code == 0
        theirs = command("features-party", "audit", "verify", page, "--key", key_file, folder=tmp_path, environment={})
        assert theirs.returncode == 0, theirs.stderr
        assert verify_report(page, Ed25519PublicKey.from_public_bytes(key.raw), key.id)
        data = page.read_bytes()
        page.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        refused(run("audit", "verify", page, "--key", key_file), 1, "not the page that was signed")
        with pytest.raises(RefusedError):
            verify_report(page, Ed25519PublicKey.from_public_bytes(key.raw), key.id)


def test_nothing_is_written_where_nothing_was_published(run: Run, tmp_path: Path) -> None:
    created = (
        "population",
        "create",
        "--population",
        "empty",
        "--label-column",
        "r",
        "--domain",
        "0:10",
        "--budget",
        "1",
    )
    assert run(*created).code == 0
    out = tmp_path / "pack"
    refused(run("disclose", "--population", "empty", "--out", out), 1, "Nothing of population 'empty' was published")
    refused(run("disclose", "--population", "nobody", "--out", out), 1, "There is no population 'nobody'")
    assert list(tmp_path.glob("*pack*")) == []


def test_force_replaces_a_pack_and_nothing_else(pack: Path, run: Run) -> None:
    ask = ("disclose", "--population", "shop", "--out", pack)
    before = {path.name: path.read_bytes() for path in pack.iterdir()}
    assert sorted(before) == sorted([*FILES, *(f"{name}.dsse.json" for name in FILES)])
    refused(run(*ask), 2, "exists already")
    assert run(*ask, "--force").out.split() == [str(pack / name) for name in sorted(before)]
    assert b"name not stated" in (pack / "deployment.yaml").read_bytes() != before["deployment.yaml"]
    (pack / "notes.txt").write_text("mine")
    refused(run(*ask, "--force"), 2, "notes.txt", "would be lost")
    assert (pack / "notes.txt").read_text() == "mine"


def test_a_changed_manifest_leaves_no_pack(pack: Path, run: Run, home: Path) -> None:
    for file in (home / "work").rglob("manifest.dsse.json"):
        envelope = json.loads(file.read_bytes())
        envelope["signatures"][0]["sig"] = envelope["signatures"][0]["sig"][::-1]
        file.chmod(0o600)
        file.write_text(json.dumps(envelope))
    shutil.rmtree(pack)
    result = run("disclose", "--population", "shop", "--out", pack)
    assert result.code != 0
    assert not pack.exists()
    assert [path for path in pack.parent.iterdir() if path.name.startswith(".")] == []


def test_a_person_its_body_and_the_policy_have_their_figures(run: Run, tmp_path: Path) -> None:
    table = label_table(60).append_column("who", pa.array([f"p{i // 2}" for i in range(60)]))
    pq.write_table(table, file := tmp_path / "people.parquet")
    policy = tmp_path / "policy.toml"
    policy.write_text('[ceilings]\nepsilon_per_release = "1"\nfour_eyes_above = "0.9"\n')
    assert run("apply", policy).code == 0
    body = ("--name", "customers", "--budget", "7", "--unit-column", "who")
    assert run("people", "declare", *body).code == 0
    rules = {"unit_column": "who", "max_examples_per_unit": "2", "missing_label": "0", "people": "customers"}
    asked = arguments(file, str(tmp_path / "m.parquet"), epsilon="0.5", retention_days="30", **rules)
    assert (result := run(*asked)).code == 0, result.err
    out = tmp_path / "pack"
    assert run("disclose", "--population", "shop", "--out", out).code == 0
    loss = entry_of(out)["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 1}
    assert loss["privacy_unit"] == "all labels of one who in the population"
    assert "at most 2 examples keep their label" in loss["privacy_unit_details"]
    details = loss["privacy_parameters_details"]
    assert "one who has spent at most ε 1 of its lifetime 7" in details
    words = text_of(out / "sp800-226.html")
    assert "ε of one charge 1; a second person approves above ε 0.9" in words
    assert "purged 30 days after publication" in words
    assert "missing-label value 0" in words


def test_a_spent_delta_and_the_rule_of_events_are_stated(tmp_path: Path) -> None:
    with LabelsParty(tmp_path / "home") as party:
        shop = EventShop(party)
        batch = shop.open(shop.population("orders", window_days=7), ["a", "b"], {"a": SECOND, "b": SECOND})
        shop.send(event("a", 30, id="1"))
        shop.sealed(batch)
        finished(shop.owner, shop.owner.post(f"/v1/batches/{batch}/releases", json={"epsilon": "1"}).json()["id"])
        of_median = sealed(party, name="visits")
        asked = {"epsilon": "1", "delta": "0.0000001", "method": "slices"}
        published(shop.owner, shop.owner.post(f"/v1/batches/{of_median}/medians", json=asked).json()["id"])
        for population in ("orders", "visits"):
            folder = tmp_path / population
            disclose(party.services, population, folder, curator="Shop Ltd", region="EU")
            assert list(problems(entry_of(folder))) == []
    orders, visits = (entry_of(tmp_path / name)["deployment"] for name in ("orders", "visits"))
    assert orders["dp_variant"]["variant_name"] == "Pure DP"
    words = text_of(tmp_path / "orders/dpia-annex.html")
    assert "Labels come from events: sum of the values of the events purchase (+)" in words
    assert "7 days" in words
    assert visits["dp_variant"]["variant_name"] == "Approximate DP"
    parameters = visits["privacy_loss"]["privacy_parameters"]
    assert (parameters["epsilon"], float(parameters["delta"])) == (1, 1e-7)
    assert "δ 0.0000001 of a lifetime δ 0.000001 was spent." in text_of(tmp_path / "visits/sp800-226.html")
