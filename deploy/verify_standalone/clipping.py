"""Clipping bounds that were bought with ε_clip: the label domain is the part of the declared one between them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from .exact import NANO, units
from .refusal import refuse

DECLARED, BOUGHT = "declared public by the owner", "bought with ε_clip"
QUANTILE = re.compile(r"0\.[0-9]{0,8}[1-9]", re.ASCII)
VALUE = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?", re.ASCII)


def check_clipping(m: Any) -> list[str]:
    """A line for the bounds of the manifest `m`, where it has some; without them no ε may have gone into any."""
    clipping, nano = m.get("clipping"), units(m["epsilon"]["clip"], NANO, "ε of part clip")
    if clipping is None:
        if "clipping" in m or nano != 0 or m["domain_source"] != DECLARED:
            refuse("ε was spent on clipping bounds that are not stated")
        return []
    quantiles, bounds = clipping["quantiles"], clipping["bounds"]
    if m["domain_source"] != BOUGHT or nano == 0 or units(clipping["epsilon"], NANO, "ε of the bounds") != nano:
        refuse("the ε of the clipping bounds is not the split's")
    texts = all(isinstance(q, str) and QUANTILE.fullmatch(q) for q in quantiles)
    if not texts or len(quantiles) not in (1, 2) or len({Fraction(q) for q in quantiles}) != len(quantiles):
        refuse("the clip quantiles are not one or two numbers between 0 and 1")
    if [Fraction(q) for q in quantiles] != sorted(Fraction(q) for q in quantiles):
        refuse("the clip quantiles do not rise")
    low, high = _check_part(m["domain"], clipping["public_domain"], whole_below=len(quantiles) == 1)
    if [value(bound) for bound in bounds] != [low, high][-len(quantiles) :]:
        refuse("the clipping bounds are not the ends of the label domain")
    at = "quantile" if len(quantiles) == 1 else "quantiles"
    bought = f"bought at the {at} {' and '.join(quantiles)} for ε {clipping['epsilon']}"
    return [f"labels clipped at {' and '.join(bounds)}, {bought}"]


def _check_part(domain: Any, public: Any, *, whole_below: bool) -> tuple[Fraction, Fraction]:
    """The ends of `domain`, a part of `public` without gaps; from the lowest value on where only the top was bought."""
    if "values" in domain:
        part, around = ([value(text) for text in of["values"]] for of in (domain, public))
        first = around.index(part[0]) if part[0] in around else -1
        inside = first >= 0 and around[first : first + len(part)] == part
        ends = part[0], part[-1]
    else:
        (low, high, step), (least, most, unit) = ([value(t) for t in of["range"].split(":")] for of in (domain, public))
        inside = step == unit and least <= low <= high <= most and ((low - least) / unit).denominator == 1
        first, ends = (0 if low == least else 1), (low, high)
    if not inside or ends[0] >= ends[1] or (whole_below and first != 0):
        refuse("the label domain is not the part of the declared one that was bought")
    return ends


def value(text: object) -> Fraction:
    """A value of a label domain, exact."""
    if not isinstance(text, str) or VALUE.fullmatch(text) is None:
        refuse("a value of the label domain is not a decimal number")
    return Fraction(text)
