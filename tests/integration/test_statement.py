"""The release statement: right figures, from the manifest alone, safe against what a stranger wrote into it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from features_party.cli import app as features_app
from label_dp.channels.base import Channel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.documents import statement
from label_dp.documents.manifest import Manifest, PriorRef
from label_dp.documents.members import PopulationRef, Unit
from label_dp.documents.statement import Later, render_statement
from label_dp.documents.statement_pictures import picture
from label_dp.documents.statement_text import odds_factor, percent, surest
from label_dp.domain import Domain
from label_dp.errors import LabelDPError
from label_dp.pages.verifier import verifier
from label_dp.privacy import Delta, Epsilon
from labels_party.cli import app as labels_app
from labels_party.mechanisms.catalogue import MECHANISMS
from tests.support.labels import LabelsParty, label_table
from tests.support.messages import Sender, laplace, odds, one_bit, rr

pytestmark = pytest.mark.extended

VOID = {"meta", "rect", "path", "use"}
ALLOWED = VOID | {
    *(
        "html",
        "head",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "footer",
        "div",
        "span",
        "p",
        "b",
        "strong",
    ),
    *(
        "h1",
        "h2",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "pre",
        "sup",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "bdi",
    ),
    *("figure", "figcaption", "progress", "svg", "text", "g", "defs", "desc", "clippath"),
}


class Strict(HTMLParser):
    """Every element closed, only known ones, no attribute that runs or fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("href", "src", "style"), name
            assert name != "xlink:href" or (value or "").startswith("#"), value  # a part of the same picture
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(page: str) -> str:
    """The page's text, after its structure was checked."""
    reader = Strict()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert {"h1", "h2", "svg", "title"} <= reader.seen
    return re.sub(r"\s+", " ", "".join(reader.words))


def manifest_of(tmp_path: Path, channel: Channel, epsilon: str = "2", **members: Any) -> Manifest:
    labels = np.asarray(channel.labels[: min(channel.k, 40)], np.float64)
    ids = [f"c{i}" for i in range(len(labels))]
    path = tmp_path / "m.parquet"
    return Sender().write(path, ids, labels, channel, epsilon=epsilon, **members)


def noise(name: str, domain: str, unclipped: bool = False, epsilon: str = "2") -> Channel:
    options = {"unclipped": True} if unclipped else {}
    return MECHANISMS[name].design(Domain.parse(domain), None, Epsilon.parse(epsilon), "squared", options)


NOISE = ("laplace", "discrete-staircase")

CHANNELS: dict[str, tuple[Channel, str]] = {
    "two bins": (rr("0:400", 1.0, (77,)), "1"),
    "ten bins": (rr("0:400", 4.0, tuple(range(40, 400, 40))), "4"),
    "forty bins": (rr("0:60", 12.0, tuple(range(1, 60))), "12"),
    "one bin": (rr("0:10", 1.0, ()), "1"),
    "one label": (laplace("5:5", 1.0), "1"),
    "two labels": (rr("0:1", 0.1, (1,)), "0.1"),
    "one bit": (one_bit("0:400", 0.5, (0, 200)), "0.5"),
    "one bit of two labels": (one_bit("0:1", 0.5), "0.5"),
    "noise": (laplace("0:400", 2.0), "2"),
    **{f"{name}{' unclipped' * wide}": (noise(name, "0:60", wide), "2") for name in NOISE for wide in (False, True)},
    "exponential": (noise("exponential", "0:60"), "2"),
    "exponential on many labels": (noise("exponential", "0:100000"), "2"),
    "labels between the points of a lattice": (noise("laplace", "0:400", True, "0.05"), "0.05"),
    "noise of two labels": (laplace("0:1", 2.0), "2"),
    "negative labels": (laplace("-3:3:0.25", 0.3), "0.3"),
    "tiny": (rr("0:10", 0.001, (5,)), "0.001"),
    "huge": (laplace("0:10", 5.0), "5000"),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_every_kind_of_channel_has_a_well_formed_page_with_its_figures(name: str, tmp_path: Path) -> None:
    channel, epsilon = CHANNELS[name]
    members = {"epsilon_lifetime": "10000"}
    manifest = manifest_of(tmp_path, channel, epsilon, **members)
    prior = np.linspace(2, 1, channel.k) / np.linspace(2, 1, channel.k).sum()
    for given in (None, prior):
        words = parsed(render_statement(manifest, "ab" * 32, given))
        assert f"ε = {epsilon}" in words
        assert f"{odds_factor(Epsilon.parse(epsilon))} times" in words
        assert percent(channel.flip_probability(given)) in words
        assert manifest.files[0].sha256 in words
        assert manifest.key_id in words
        assert "nan" not in words.lower()


def test_odds_are_never_rounded_down() -> None:
    assert odds_factor(Epsilon.parse("1")) == "2.72"
    assert odds_factor(Epsilon.parse("0.000000001")) == "1.01"
    assert odds_factor(Epsilon.parse("13")) == "4.5 × 10⁵"
    assert surest(Epsilon.parse("1"), Fraction(1)) == "73.2 %"  # 73.105…
    assert surest(Epsilon.parse("0.01"), Fraction(1)) == "50.25 %"
    assert surest(Epsilon.parse("40"), Fraction(1)) == "close to 100 %"


def test_what_a_stranger_wrote_is_text_and_nothing_else(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp'
    manifest = manifest_of(tmp_path, rr(), audiences=["features-party", evil], mechanism=evil[:60], loss=evil[:60])
    manifest = manifest.model_copy(update={"population": PopulationRef(id="p", name=evil, label=evil)})
    later = Later(evil, [(evil, evil)])
    page = render_statement(manifest, evil, None, later)
    words = parsed(page)
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "[U+202E]" in words


def texts(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts in a manifest."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from texts(getattr(value, name), (*place, name))
    elif isinstance(value, dict | list | tuple):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from texts(value[key], (*place, key))


def with_text(value: Any, place: tuple[Any, ...], text: str) -> Any:
    """`value` with `text` at `place`, checked by nobody."""
    if not place:
        return text
    first, rest = place[0], place[1:]
    if isinstance(value, BaseModel):
        return value.model_copy(update={first: with_text(getattr(value, first), rest, text)})
    if isinstance(value, dict):
        return value | {first: with_text(value[first], rest, text)}
    return type(value)([*value[:first], with_text(value[first], rest, text), *value[first + 1 :]])


def test_a_narrow_screen_breaks_between_words() -> None:
    css = (Path(statement.__file__).parent / "statement.css").read_text("utf-8")
    narrow = css.partition("@media screen and (max-width: 600px) {")[2].partition("@media print")[0]
    assert ".key { flex-wrap: wrap; }" in narrow  # five cards beside each other have room for a syllable each
    assert "table.facts tr, table.facts th, table.facts td { display: block" in narrow


def test_every_text_of_a_manifest_is_escaped_wherever_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = picture(rr(), np.full(11, 1 / 11))
    monkeypatch.setattr(statement, "picture", lambda *_: drawn)  # it shows numbers only, and takes the longest
    evil, shown = "<script>\"'&\u202e</script>", set()
    manifest = manifest_of(tmp_path, rr(), prior=np.full(11, 1 / 11))
    unit = Unit(kind="unit", column="user", max_examples=2, epsilon_per_unit="4", examples_beyond=0)
    carried = PriorRef(source="carried over", release="rel_0")
    more = {"missing_label": "3", "expected_loss": "1", "unit": unit, "prior": carried}
    manifest = manifest.model_copy(update=more | {"delta_lifetime": Delta.parse("0.000001")})
    for place in texts(manifest):
        changed = with_text(manifest, place, evil)
        try:
            page = render_statement(changed, "ab" * 32, np.full(11, 1 / 11))
        except (LabelDPError, ValueError, ArithmeticError):  # a number, or a word of a list
            continue
        words = parsed(page)
        assert "<script" not in page, place
        assert "\u202e" not in page, place
        shown |= {place[0]} if "[U+202E]" in words else set()
    assert shown >= {
        *("id", "batch", "created", "population", "audiences", "mechanism", "loss", "domain_source", "presence"),
        *("missing_label", "files", "key_id", "randomness", "unit", "prior"),
    }


def test_the_page_may_run_and_fetch_nothing(tmp_path: Path) -> None:
    page = render_statement(manifest_of(tmp_path, rr()), "ab" * 32)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert policy is not None
    assert style is not None
    hashed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{hashed}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "http" not in page.replace("http-equiv", "")
    assert "@page { size: A4" in style[1]
    assert '<html lang="en">' in page


@pytest.mark.parametrize(("labels", "left_out"), [(6, 0), (20, 0), (21, 1), (40, 20)])
def test_the_page_lists_the_bins_first_and_last(labels: int, left_out: int, tmp_path: Path) -> None:
    """Randomized response on so many labels has a bin for each of them."""
    channel = MECHANISMS["rr"].design(Domain.parse(f"0:{labels - 1}"), None, Epsilon.parse("2"), "squared", {})
    page = render_statement(manifest_of(tmp_path, channel), "ab" * 32)
    rows = re.findall(r'<tr><td class="n">(\d+)</td><td>(\d+)</td><td class="n">(\d+)</td>', page)
    numbers = [bin for bin in range(1, labels + 1) if not left_out or bin <= 10 or bin > labels - 10]
    assert [tuple(int(text) for text in row) for row in rows] == [(bin, bin - 1, bin - 1) for bin in numbers]
    assert (f"… {left_out} more bins" in page) == bool(left_out)


def test_the_same_manifest_gives_the_same_page(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, rr())
    assert render_statement(manifest, "ab" * 32) == render_statement(manifest, "ab" * 32)


def test_both_parties_make_one_page_and_only_the_owner_sees_later_events(
    party: LabelsParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = party.sealed_batch(label_table(300))
    release = party.release(batch, "1")
    party.services.retention.purge(batch, "test")
    for_them = party.client("features").get(f"/v1/releases/{release}/statement")
    assert for_them.status_code == 200
    assert for_them.headers["content-type"].startswith("text/html")
    assert "style-src 'sha256-" in for_them.headers["content-security-policy"]
    assert "what happened since" not in for_them.text
    for role in ("owner", "auditor"):
        page = party.client(role).get(f"/v1/releases/{release}/statement").text
        assert "labels of this batch were deleted" in parsed(page)
    assert party.client("features", "somebody-else").get(f"/v1/releases/{release}/statement").status_code == 404
    assert party.client("ingest").get(f"/v1/releases/{release}/statement").status_code == 404

    monkeypatch.setenv("LABELS_PARTY_HOME", str(party.home))
    monkeypatch.setenv("FEATURES_PARTY_HOME", str(tmp_path / "features"))
    run, out = CliRunner().invoke, tmp_path / "statement.html"
    message = tmp_path / "message.parquet"
    assert run(labels_app, ["message", release, "--out", str(message)]).exit_code == 0
    words = ["statement", str(message), "--labels-key", str(party.home / "keys" / "signing.pub"), "--out", str(out)]
    made = run(features_app, words)
    assert made.exit_code == 0, made.output
    assert out.read_text("utf-8") == for_them.text
    assert isinstance(run(features_app, words).exception, LabelDPError)  # no file is replaced unasked
    assert out.with_name("verify.html").read_bytes() == verifier()
    mine = run(labels_app, ["statement", release, "--out", str(tmp_path / "mine.html")])
    assert mine.exit_code == 0, mine.output
    assert "what happened since" in (tmp_path / "mine.html").read_text("utf-8")


def test_no_statement_of_what_is_not_published(party: LabelsParty) -> None:
    release = party.charge(party.sealed_batch(label_table(60)))
    with pytest.raises(LabelDPError, match="published"):
        party.services.statements.page(release, since=True)


def test_a_changed_prior_makes_no_statement(party: LabelsParty) -> None:
    release = party.release(party.sealed_batch(label_table(300)))
    path = party.bundle(release).path / "prior.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(LabelDPError, match="changed"):
        party.services.statements.page(release, since=False)


def test_clipping_ends_and_decimals_are_shown_as_they_are(tmp_path: Path) -> None:
    a, b = odds(1.0)
    channel = OneBitChannel(domain=Domain.parse("0:10"), low=Decimal("2.5"), high=Decimal("7.5"), A=a, B=b)
    words = parsed(render_statement(manifest_of(tmp_path, channel, "1"), "ab" * 32))
    assert "clipped to 2.5 … 7.5" in words
