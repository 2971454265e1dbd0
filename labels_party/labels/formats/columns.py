"""Column types of Arrow streams and Parquet files."""

from __future__ import annotations

from typing import Any

from label_dp.columnar.tables import require_columns
from label_dp.errors import InvalidTable
from labels_party.labels.formats.source import ColumnSelection

SHOWN = "the upload"


def check_schema(schema: Any, selection: ColumnSelection) -> None:
    """Raise InvalidTable for a missing column or an unsuitable type. Runs before anything is decoded: nested types may
    hold any amount of anything."""
    import pyarrow as pa

    require_columns(schema.names, selection.fields, SHOWN, public=False, csv=False)
    for name in selection.fields:
        kind = schema.field(name).type
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        text = pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)
        number = pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_decimal(inner)
        if name in selection.numeric:
            if not (text or number or pa.types.is_null(inner)):
                raise InvalidTable(f"The column '{name}' must hold numbers; it holds {shown(inner)}.")
        elif name in selection.classes:
            if not (text or pa.types.is_null(inner)):
                raise InvalidTable(f"The column '{name}' must hold names of classes as text; it holds {shown(inner)}.")
        elif not (text or pa.types.is_integer(inner)):
            raise InvalidTable(f"The id column '{name}' must hold text or whole numbers; it holds {shown(inner)}.")


def shown(kind: Any) -> str:
    """Return a type's name without the names inside it, which a caller chooses freely."""
    return str(kind).split("<", maxsplit=1)[0].split("[", maxsplit=1)[0]
