"""Clipping bounds that were bought with ε_clip: the label domain is the part of the declared one between them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from .domains import Domain
from .exact import NANO, units
from .members import listed, matching, members
from .refusal import refuse

DECLARED, BOUGHT = "declared public by the owner", "bought with ε_clip"
QUANTILE = re.compile(r"0\.[0-9]{0,8}[1-9]", re.ASCII)
MEMBERS = ("quantiles", "bounds", "epsilon", "public_domain", "mechanism")
MECHANISM = "exponential mechanism on ranks"


def check_clipping(m: Any, domain: Domain) -> list[str]:
    """A line for the bounds of the manifest `m`, where it has some; without them no ε may have gone into any."""
    nano = units(m["epsilon"]["clip"], NANO, "ε of part clip")
    if m["clipping"] is None:
        if nano != 0 or m["domain_source"] != DECLARED:
            refuse("ε was spent on clipping bounds that are not stated")
        return []
    clipping = members(m["clipping"], MEMBERS, "what was bought with ε_clip")
    if m["domain_source"] != BOUGHT or nano == 0 or units(clipping["epsilon"], NANO, "ε of the bounds") != nano:
        refuse("the ε of the clipping bounds is not the split's")
    if clipping["mechanism"] != MECHANISM:
        refuse("the mechanism that bought the clipping bounds is unknown")
    quantiles = listed(clipping["quantiles"], 1, 2, "the list of clip quantiles")
    numbers = [Fraction(matching(text, QUANTILE, "a clip quantile")) for text in quantiles]
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        refuse("the clip quantiles do not rise")
    first = _place(domain, Domain(clipping["public_domain"]))
    if domain.k < 2 or (len(quantiles) == 1 and first != 0):
        refuse("the label domain has other ends than those that were bought")
    if clipping["bounds"] != [domain.text(0), domain.text(domain.k - 1)][-len(quantiles) :]:
        refuse("the clipping bounds are not the ends of the label domain, in their one spelling")
    at = "quantile" if len(quantiles) == 1 else "quantiles"
    bought = f"bought at the {at} {' and '.join(quantiles)} for ε {clipping['epsilon']}"
    return [f"labels clipped at {' and '.join(clipping['bounds'])}, {bought}"]


def _place(part: Domain, public: Domain) -> int:
    """Where `part` begins in `public`, of which it is a part without gaps."""
    if bool(part.texts) != bool(public.texts):
        refuse("the label domain is not a part of the declared one")
    if part.texts:
        first = public.values.index(part.low) if part.low in public.values else public.k
        inside = public.values[first : first + part.k] == part.values
    else:
        start = (part.low - public.low) / public.step
        first = int(start)
        inside = start.denominator == 1 and first >= 0 and part.step == public.step and part.high <= public.high
    if not inside:
        refuse("the label domain is not a part of the declared one")
    return first
