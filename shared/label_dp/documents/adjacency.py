"""Definitions of neighbouring data sets, in the words of signed answers."""

from __future__ import annotations

REPLACE_ONE = "replace one example's label; ids, their number and everything that was sent beside them are public"
WHOLE_EXAMPLE = (
    "replace one example, its label and its features; ids, which of them have features, and their number are public"
)
IN_PARTS = (
    "replace one example, its label and its features: which part an example belongs to depends on its id alone, and "
    "ids and their number are public"
)
WALKED = "replace one example, its label and its position; ids and their number are public"
LABEL_ALONE = "replace one example's label; features, ids and their number are taken as given"
