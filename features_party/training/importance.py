"""The importance of columns, from that of the inputs made of them."""

from __future__ import annotations

from collections.abc import Mapping

from features_party.training.encoding import FeatureSchema


def by_column(shares: Mapping[str, float], schema: FeatureSchema) -> dict[str, float]:
    """Sum shares of inputs by column of the schema, in its order.

    A part of a date counts for its column, a statistic for the column it describes, and a crossing equally for its
    sides.
    """
    made_of: dict[str, tuple[str, ...]] = {column.name: (column.name,) for column in schema.columns}
    made_of |= {part: (column.name,) for column in schema.columns for part in column.number_names}
    categories = [column.name for column in schema.categories]
    for crossing in schema.crossings:
        sides = [schema.column_numbers[s.at] if s.values is not None else categories[s.at] for s in crossing.sides]
        made_of[crossing.name] = tuple(made_of[side][0] for side in sides)
    for statistic in schema.statistics:
        made_of[statistic.name] = made_of[schema.category_names[statistic.category]]
    totals = dict.fromkeys((column.name for column in schema.columns), 0.0)
    for name, share in shares.items():
        for column in made_of[name]:
            totals[column] += share / len(made_of[name])
    return totals
