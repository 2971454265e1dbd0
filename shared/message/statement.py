"""The release statement: one self-contained, printable HTML page made from a release's signed manifest.

Both parties can make it. It holds no label and nothing that the manifest and the private prior beside it do not say;
what happened later comes in a section of its own, from the audit store of whoever makes the page. It works without a
network and runs nothing: no script, no outside file, all text escaped.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from shared.channel import AdditiveChannel, OneBitChannel, RRChannel
from shared.domain import Domain
from shared.message.manifest import Clipping, Manifest
from shared.message.statement_pictures import picture, split_bar
from shared.message.statement_text import (
    PRIOR_ODDS,
    flip_words,
    in_words,
    mechanism_words,
    number,
    odds_factor,
    percent,
    surest,
    text,
)
from shared.privacy import Epsilon

LISTED = 20  # audiences and bins that are written out
GLOSSARY = (
    ("label", "the sensitive value of an example, which stays with the labels party"),
    ("example", "one row that both parties know by the same id; the id is not secret"),
    ("ε (epsilon)", "the bound on what a release can reveal of one label; smaller is safer; releases add up"),
    ("randomizer, channel", "the published chances with which a label becomes an output value"),
    ("private prior", "a deliberately noisy estimate of how labels are distributed, paid for with its own part of ε"),
    ("manifest", "the signed description inside the release, from which this page is made"),
    ("neighbouring data", "two data sets that differ in the label of one example; what ε compares"),
)


@dataclass(frozen=True)
class Later:
    """What happened after publication, from the audit store of whoever makes the page: (day, sentence) in order."""

    source: str
    facts: Sequence[tuple[str, str]]


def render_statement(
    manifest: Manifest,
    digest: str,
    prior: npt.NDArray[np.float64] | None = None,
    later: Later | None = None,
) -> str:
    """The page for a *verified* manifest with payload digest `digest`. `prior`: float64[k], of its prior file."""
    sections = [
        _header(manifest),
        _key_figures(manifest, prior),
        _what_left(manifest),
        _privacy(manifest),
        _odds(manifest),
        _mechanism(manifest, prior),
        _inference(manifest),
        _checking(manifest, digest),
        "" if later is None else _later(later),
        _glossary(),
        f"<footer>Made from the signed manifest with SHA-256 <code>{text(digest)}</code>. "
        "Format label-dp-statement/1.</footer>",
    ]
    title = f"Release statement {text_only(manifest.release)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
        '<meta name="referrer" content="no-referrer"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_css()}</style></head>\n<body>\n<main>\n"
        + "\n".join(s for s in sections if s)
        + "\n</main>\n</body></html>\n"
    )


@cache
def _css() -> str:
    return resources.files("shared.message").joinpath("statement.css").read_text("utf-8")


def _policy() -> str:
    style = base64.b64encode(hashlib.sha256(_css().encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


CONTENT_SECURITY_POLICY = _policy()


def text_only(value: str) -> str:
    """Escaped text for places that take no markup."""
    return text(value).removeprefix("<bdi>").removesuffix("</bdi>")


# --- sections -----------------------------------------------------------------------------------------------


def _header(m: Manifest) -> str:
    return (
        "<header><h1>Release statement</h1>"
        f"<p>What the labels of population <strong>{text(m.population.name)}</strong> gave away in release "
        f"<code>{text(m.release)}</code>, published {text(m.created)}.</p></header>"
    )


def _key_figures(m: Manifest, prior: npt.NDArray[np.float64] | None) -> str:
    share, _ = _flip(m, prior)
    boxes = [
        (f"ε = {m.split.total}", "privacy loss of this release per example, at most"),
        (f"× {odds_factor(m.split.total)}", "worst case by which anybody's odds about one label can change"),
        (percent(share), "expected share of flipped values"),
        (f"{m.n:,}", "privatized values, one for each example"),
    ]
    return (
        '<div class="key">' + "".join(f"<div><b>{big}</b><span>{small}</span></div>" for big, small in boxes) + "</div>"
    )


def _what_left(m: Manifest) -> str:
    shown = [text(a) for a in m.audiences[:LISTED]]
    audiences = ", ".join(shown) + (f" and {len(m.audiences) - LISTED} more" if len(m.audiences) > LISTED else "")
    parts = m.message_files
    size = sum(f.bytes for f in m.files)
    left = f"For each of {m.n:,} examples its id and one randomized value, in {_count(len(parts), 'file')}"
    left += "; beside them the private prior" if m.prior_file is not None else ""
    domain = m.read_domain()
    missing = "" if m.missing_label is None else f"; an example without a label counts as {text(m.missing_label)}"
    outside = "clipped to its ends" if m.out_of_domain == "clip" else "refused"
    bought = "" if m.clipping is None else _clipping_words(m.clipping)
    rows = [
        ("What left", f"{left}; {size:,} bytes in all. Every value went through the randomizer."),
        ("To whom", audiences),
        ("When", f"{text(m.created)} (UTC)"),
        ("Which label", f"{text(m.population.label)} of population {text(m.population.name)}"),
        (
            "Possible labels",
            f"{_domain_words(domain)}, {text(m.domain_source)}{bought}; labels outside are {outside}{missing}",
        ),
        ("Which examples", f"batch <code>{text(m.batch)}</code>; which ids it has: {text(m.presence)}"),
    ]
    return f'<section><h2>What left, to whom, when</h2><table class="facts">{_facts(rows)}</table></section>'


def _clipping_words(clipping: Clipping) -> str:
    public, many = clipping.read_public_domain(), "quantile" if len(clipping.quantiles) == 1 else "quantiles"
    return (
        f": labels were clipped at {text(' and '.join(clipping.bounds))}, the private {many} "
        f"{text(' and '.join(clipping.quantiles))} of the labels, in the declared {_domain_words(public)}"
    )


def _domain_words(domain: Domain) -> str:
    if domain.listed:
        return f"{_count(domain.k, 'listed value')}, {domain.listed[0]:f} to {domain.listed[-1]:f}"
    return f"{domain.low:f} to {domain.high:f} in steps of {domain.step:f} ({_count(domain.k, 'value')})"


def _count(many: int, what: str) -> str:
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def _privacy(m: Manifest) -> str:
    split, spent, life = m.split, Epsilon.parse(m.epsilon_spent), Epsilon.parse(m.epsilon_lifetime)
    rows = []
    for name, part, what in (
        ("ε_clip", split.clip, "to choose the range of labels"),
        ("ε_prior", split.prior, "to estimate the private prior"),
        ("ε_randomize", split.randomize, "to randomize every label"),
    ):
        share = percent(part.nano / split.total.nano) if split.total else "0 %"
        rows.append(f'<tr><th>{name}</th><td>{what}</td><td class="n">{part}</td><td class="n">{share}</td></tr>')
    rows.append(
        f'<tr class="sum"><th>ε</th><td>this release, per example (δ = {text(m.epsilon["delta"])})</td>'
        f'<td class="n">{split.total}</td><td class="n">100 %</td></tr>'
    )
    of_life = spent.nano / life.nano
    bar = split_bar([("spent so far", of_life), ("left", 1.0 - of_life)] if of_life < 1 else [("spent so far", 1.0)])
    left = Epsilon(life.nano - spent.nano)
    return (
        "<section><h2>Privacy loss</h2><table><thead><tr><th>Part</th><th>Paid for</th>"
        f'<th class="n">ε</th><th class="n">share</th></tr></thead><tbody>{"".join(rows)}</tbody></table>'
        f"<p>Each example of this batch has spent <strong>{spent} of its lifetime ε {life}</strong>, this release "
        f"included; {left if left else 'nothing'} is left.{_delta(m)}</p>{bar}"
        f"<p>{_unit(m)}</p><p>As a rule of thumb: {in_words(split.total)}</p></section>"
    )


def _delta(m: Manifest) -> str:
    if m.delta is None:
        return ""
    return (
        f" Other answers about it may fail to keep their ε with a probability δ: <strong>{text(m.delta.spent)} of its "
        f"lifetime δ {text(m.delta.lifetime)}</strong> is spent; this release takes {text(m.epsilon['delta'])}."
    )


def _unit(m: Manifest) -> str:
    if m.unit.kind == "example":
        return "ε protects the label of one example. Somebody with several examples in the data adds their ε up."
    column = text(m.unit.column or "the unit column")
    most = "" if m.unit.max_examples is None else f" with at most {m.unit.max_examples:,} examples each"
    total = (
        ""
        if m.unit.epsilon_per_unit is None
        else f" All labels of one unit together have spent ε at most {text(m.unit.epsilon_per_unit)} so far."
    )
    return f"Examples with the same {column} belong to one unit{most}.{total}"


def _odds(m: Manifest) -> str:
    total = m.split.total
    rows = "".join(
        f"<tr><td>{told} ({percent(float(odds / (1 + odds)))})</td>"
        f"<td>at most <strong>{surest(total, odds)}</strong></td></tr>"
        for odds, told in PRIOR_ODDS
    )
    return (
        "<section><h2>The worst case, in odds</h2>"
        f"<p>Whoever sees this release can be at most e<sup>ε</sup> = <strong>{odds_factor(total)} times</strong> "
        "surer of any one label against any other than before, whatever else they know or compute.</p>"
        "<table><thead><tr><th>Somebody's odds for a label before</th><th>Probability after, in the worst case</th>"
        f"</tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _flip(m: Manifest, prior: npt.NDArray[np.float64] | None) -> tuple[float, str]:
    """(expected share of flipped values, under which distribution of labels)."""
    under = "under the private prior" if prior is not None else "if all labels were equally frequent"
    return m.read_channel().flip_probability(prior), under


def _mechanism(m: Manifest, prior: npt.NDArray[np.float64] | None) -> str:
    channel = m.read_channel()
    source = {"not used": "no prior was used", "uniform": "a uniform prior, which costs nothing"}.get(
        m.prior.source, f"the prior was {m.prior.source}"
    )
    if m.prior.source == "carried over" and m.prior.release is not None:
        source += f" from release {text(m.prior.release)}, at no further cost"
    caption = "Everything in this picture is public or was paid for with ε."
    if isinstance(channel, AdditiveChannel):
        caption = f"Chance of each output value for three labels; the ends take what is clipped. {caption}"
    if isinstance(channel, RRChannel):
        drawn = "Blue: private prior. " if prior is not None else ""
        caption = f"{drawn}Dashed: bin boundaries. Red triangles: output values. {caption}"
    loss = (
        ""
        if m.expected_loss is None
        else f" Expected {text(m.loss)} loss of a value: {number(float(m.expected_loss))}."
    )
    return (
        f"<section><h2>How the values were made</h2><p>Mechanism <strong>{text(m.mechanism.name)}</strong>; {source}. "
        f"{mechanism_words(channel)}</p><p>{flip_words(channel, *_flip(m, prior))}{loss}</p></section>"
        f"<figure>{picture(channel, prior)}<figcaption>{caption}</figcaption></figure>"
        + (_bins_table(channel, prior) if isinstance(channel, RRChannel) else "")
        + (_outputs_line(channel) if isinstance(channel, OneBitChannel) else "")
    )


def _outputs_line(channel: OneBitChannel) -> str:
    low, high = (number(float(v)) for v in channel.outputs)
    return f"<p>The two output values are {low} and {high}: so far apart that averages over many come out right.</p>"


def _bins_table(channel: RRChannel, prior: npt.NDArray[np.float64] | None) -> str:
    labels, ends = channel.labels, channel.boundaries.tolist()
    share = "" if prior is None else '<th class="n">Share under the private prior</th>'
    rows = []
    for j, (a, b) in enumerate(itertools.pairwise(ends)):
        if channel.d > LISTED and LISTED // 2 <= j < channel.d - LISTED // 2:
            if j == LISTED // 2:
                rows.append(
                    f'<tr><td colspan="4">… {channel.d - 2 * (LISTED // 2)} more bins, in the manifest …</td></tr>'
                )
            continue
        span = number(float(labels[a])) + (f" … {number(float(labels[b - 1]))}" if b - a > 1 else "")
        mass = "" if prior is None else f'<td class="n">{percent(float(prior[a:b].sum()))}</td>'
        rows.append(
            f'<tr><td class="n">{j + 1}</td><td>{span}</td><td class="n">{number(float(channel.outputs[j]))}</td>'
            f"{mass}</tr>"
        )
    return (
        '<table><thead><tr><th class="n">Bin</th><th>Labels</th><th class="n">Output value</th>'
        f"{share}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _inference(m: Manifest) -> str:
    spent, life = Epsilon.parse(m.epsilon_spent), Epsilon.parse(m.epsilon_lifetime)
    points = [
        f"<strong>Presence.</strong> That these {m.n:,} ids are in the batch, and in no other batch of this label.",
        "<strong>Averages and patterns.</strong> How labels are distributed, and how they depend on features, over "
        "many examples: that is what the release is for. A good model's guess for a person is not limited by ε.",
        "<strong>What was known before.</strong> ε bounds the change; whoever was nearly sure of a label stays so.",
        "<strong>Correlated labels.</strong> Labels that go together, such as those of one person or household, reveal "
        "more jointly than each alone: c of them at most c · ε.",
        "<strong>Features.</strong> The features of the examples are with the receiver and are not protected by ε.",
        f"<strong>Repeated releases.</strong> Releases of one batch add up: {spent} so far, at most {life} ever.",
    ]
    return (
        "<section><h2>What stays possible to infer</h2><ul>"
        + "".join(f"<li>{p}</li>" for p in points)
        + "</ul></section>"
    )


def _checking(m: Manifest, digest: str) -> str:
    files = "".join(
        f'<tr><td>{text(f.name)}</td><td class="n">{f.rows:,}</td><td class="n">{f.bytes:,}</td>'
        f"<td><code>{text(f.sha256)}</code></td></tr>"
        for f in m.files[:LISTED]
    )
    more = f"<p>{len(m.files) - LISTED} more files are listed in the manifest.</p>" if len(m.files) > LISTED else ""
    return (
        "<section><h2>How to check this page</h2>"
        "<p>The manifest is signed (Ed25519) with the labels party's key. Compare the key's id with one you got in "
        f"another way:</p><p><code>{text(m.key_id)}</code></p>"
        '<table><thead><tr><th>File</th><th class="n">Rows</th><th class="n">Bytes</th><th>SHA-256</th></tr></thead>'
        f"<tbody>{files}</tbody></table>{more}"
        "<p>Either of these checks signature, digests and the arithmetic of ε:</p>"
        "<pre>features-party verify MESSAGE.parquet --labels-key signing.pub\n"
        "python3 verify_standalone message MESSAGE.parquet --key signing.pub</pre>"
        f"<p>Randomness: {text(m.randomness)}.</p></section>"
    )


def _later(later: Later) -> str:
    rows = [(text(day), text(sentence)) for day, sentence in later.facts]
    listed = f'<table class="facts">{_facts(rows)}</table>' if rows else "<p>Nothing is recorded.</p>"
    return (
        '<section class="later"><h2>What happened since</h2>'
        f"<p>Not from the manifest, but from {text(later.source)}.</p>"
        f"{listed}</section>"
    )


def _glossary() -> str:
    return "<section><h2>Words</h2><dl>" + "".join(f"<dt>{w}</dt><dd>{t}</dd>" for w, t in GLOSSARY) + "</dl></section>"


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in rows)
