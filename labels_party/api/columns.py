"""Names of the columns of an uploaded table, if not those of the members of a JSON record."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from labels_party.labels.parsing import ID, LABEL, SCORE, SCORE_2, UNIT

_ID = Annotated[str | None, Query(min_length=1, max_length=200, description="Its column with ids, in a table.")]
_LABEL = Annotated[str | None, Query(min_length=1, max_length=200, description="Its column with labels, in a table.")]
_SCORE = Annotated[str | None, Query(min_length=1, max_length=200, description="Its column with scores, in a table.")]
_SECOND = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Its column with second scores, for a map of two.")
]
_UNIT = Annotated[str | None, Query(min_length=1, max_length=200, description="Its column with units, in a table.")]


def _of_ids(id_column: _ID = None, unit_column: _UNIT = None) -> dict[str, str]:
    return _given({ID: id_column, UNIT: unit_column})


def _of_labels(id_column: _ID = None, label_column: _LABEL = None, unit_column: _UNIT = None) -> dict[str, str]:
    return _given({ID: id_column, LABEL: label_column, UNIT: unit_column})


def _of_scores(id_column: _ID = None, score_column: _SCORE = None, score_2_column: _SECOND = None) -> dict[str, str]:
    return _given({ID: id_column, SCORE: score_column, SCORE_2: score_2_column})


def _given(columns: dict[str, str | None]) -> dict[str, str]:
    return {field: name for field, name in columns.items() if name is not None}


IdColumns = Annotated[dict[str, str], Depends(_of_ids)]
LabelColumns = Annotated[dict[str, str], Depends(_of_labels)]
ScoreColumns = Annotated[dict[str, str], Depends(_of_scores)]
