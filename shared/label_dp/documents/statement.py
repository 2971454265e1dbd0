"""Release statement: one self-contained, printable HTML page from a release's signed manifest.

Both parties can make it. It contains no label and nothing beyond the manifest and its private prior; later events are
in a section of their own, from the maker's audit store. It works without a network and runs nothing: no script, no
outside file, all text escaped by the template engine.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from label_dp.channels.base import Channel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.documents import statement_text
from label_dp.documents.heaps import heaps
from label_dp.documents.manifest import Manifest
from label_dp.documents.statement_pictures import picture
from label_dp.privacy import Epsilon

if TYPE_CHECKING:
    import jinja2

LISTED = 20  # audiences, bins and files that are listed


@dataclass(frozen=True)
class Later:
    """Events after publication, from the maker's audit store: (day, sentence) in order."""

    source: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Bin:
    """Row of the table of bins: its labels from `first` to `last`, and their share under the prior, if any."""

    number: int
    first: float
    last: float
    output: float
    share: float | None


def render_statement(
    manifest: Manifest, digest: str, prior: npt.NDArray[np.float64] | None = None, later: Later | None = None
) -> str:
    """Render the page of a *verified* manifest with payload digest `digest`. `prior`: float64[k], from its prior
    file."""
    channel, split, unit = manifest.read_channel(), manifest.epsilon, manifest.unit
    spent, life = manifest.epsilon_spent, manifest.epsilon_lifetime
    return _template().render(
        m=manifest,
        digest=digest,
        later=later,
        css=Markup(_css()),  # noqa: S704 - a file of ours
        policy=Markup(CONTENT_SECURITY_POLICY),  # noqa: S704 - a constant
        most=LISTED,
        spent=spent,
        life=life,
        left=Epsilon(life.nano - spent.nano),
        of_life=spent.nano / life.nano,
        parts=(
            ("ε_clip", split.clip, "to choose the range of labels"),
            ("ε_prior", split.prior, "to estimate the private prior"),
            ("ε_randomize", split.randomize, "to randomize every label"),
        ),
        per_unit=unit.epsilon_per_unit,
        thumb=statement_text.in_all_words(
            Decimal(unit.epsilon_per_unit or str(spent)),
            "the label of an example" if unit.epsilon_per_unit is None else f"the labels of one {unit.column}",
        ),
        heaps=heaps(manifest, prior),
        prior_odds=statement_text.PRIOR_ODDS,
        channel=channel,
        mechanism=statement_text.mechanism_words(channel),
        flipped=channel.flip_probability(prior),
        under="under the private prior" if prior is not None else "if all labels were equally frequent",
        picture=Markup("") if channel.domain.nominal else picture(channel, prior),
        classes=list(_classes(channel, prior)),
        has_prior=prior is not None,
        bins=list(_bins(channel, prior)) if isinstance(channel, RRChannel) and not channel.domain.nominal else None,
        one_bit=isinstance(channel, OneBitChannel),
    )


@dataclass(frozen=True)
class Class:
    """Row of the table of classes: whether it is an output, and its share under the prior, if any."""

    name: str
    drawn: bool
    share: float | None


def _classes(channel: Channel, prior: npt.NDArray[np.float64] | None) -> Iterator[Class]:
    """Yield all classes of the domain, none for numbers."""
    outputs = np.isin(channel.labels, channel.outputs)
    for at, name in enumerate(channel.domain.names):
        yield Class(name, bool(outputs[at]), None if prior is None else float(prior[at]))


def _bins(channel: RRChannel, prior: npt.NDArray[np.float64] | None) -> Iterator[Bin | None]:
    """Yield the first and the last bins; None once if some are left out."""
    labels, half = channel.labels, LISTED // 2
    for j, (a, b) in enumerate(itertools.pairwise(channel.boundaries.tolist())):
        if channel.d <= LISTED or j < half or j >= channel.d - half:
            share = None if prior is None else float(prior[a:b].sum())
            yield Bin(j + 1, float(labels[a]), float(labels[b - 1]), float(channel.outputs[j]), share)
        elif j == half:
            yield None


@cache
def _template() -> jinja2.Template:
    import jinja2  # here alone: every command loads this module

    engine = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else statement_text.visible(value),
    )
    engine.filters |= {
        "bdi": lambda value: Markup("<bdi>{}</bdi>").format(statement_text.visible(value)),
        "number": lambda value: statement_text.number(float(value)),
        "percent": lambda value: statement_text.percent(float(value)),
        "thousands": lambda value: f"{value:,}",
        "plain": lambda value: f"{value:f}",
        "count": statement_text.count,
        "odds": statement_text.odds_factor,
        "surest": statement_text.surest,
    }
    return engine.from_string(_file("statement.html.jinja"))


def _file(name: str) -> str:
    return resources.files("label_dp.documents").joinpath(name).read_text("utf-8")


@cache
def _css() -> str:
    return _file("statement.css")


def _policy() -> str:
    style = base64.b64encode(hashlib.sha256(_css().encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


CONTENT_SECURITY_POLICY = _policy()
