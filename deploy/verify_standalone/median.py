"""A median: one value of the label domain in its one spelling, or none found."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from .clipping import value
from .refusal import refuse

METHODS = ("slices", "ranks")
SPELT = re.compile(r"(?!-0\Z)-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", re.ASCII)


def check_median(parameters: Any, result: Any, domain: Any) -> str:
    """A line for the result of a median."""
    if set(parameters) != {"method"} or parameters["method"] not in METHODS:
        refuse("a median has one parameter, its method: slices or ranks")
    if set(result) != {"found", "median"} or result["found"] is not (result["median"] is not None):
        refuse("a median was found or not, and is a number or null")
    text = result["median"]
    if text is None:
        return f"median by {parameters['method']}: none found"
    if not isinstance(text, str) or len(text) > 400:
        refuse("the median is not a decimal number")
    if not _among(text, domain):
        refuse("the median is not a value of the label domain, in its one spelling")
    return f"median by {parameters['method']}: {text}, a value of the label domain"


def _among(text: str, domain: Any) -> bool:
    number = value(text)
    if "values" in domain:
        listed = [value(one) for one in domain["values"]]
        if any(a >= b for a, b in pairwise(listed)):
            refuse("the values of the label domain do not rise")
        return text in domain["values"]  # as the owner wrote it, 1.50 being no other value than 1.5
    low, high, step = (value(one) for one in domain["range"].split(":"))
    if step <= 0 or not low <= high or ((high - low) / step).denominator != 1:
        refuse("no whole number of steps leads through the label domain")
    return SPELT.fullmatch(text) is not None and low <= number <= high and ((number - low) / step).denominator == 1
