"""Translation of pydantic's errors to sentences that name member and rule, never the value (it may be a label)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import core_schema

from label_dp.columnar.budget import needs
from label_dp.errors import InvalidRequest
from label_dp.numbers import WHOLE
from label_dp.strict_json import decoded_bytes, read_json

Model = TypeVar("Model", bound=BaseModel)

DAY = "a day, written as YYYY-MM-DD"
# expected form, by pydantic's type of the error
EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": WHOLE,
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "decimal_type": "a number",
    "decimal_parsing": "a number",
    "date_type": DAY,
    "date_parsing": DAY,
    "date_from_datetime_parsing": DAY,
    "date_from_datetime_inexact": DAY,
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "string_unicode": "text",
}
LIMITS = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have {min_length} characters or more",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have {min_length} entries or more",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_pattern_mismatch": "has another form than this call takes",
}
OF_PYDANTIC = frozenset(get_args(core_schema.ErrorType))
SHOWN_NAME, SHOWN_MEMBERS = 60, 30
MOST_FAULTS = 300
COPIES = 2  # of a body's values: as JSON, and as the schema's
MOST_CONTAINERS = 1 << 18  # objects and lists of a body, each of which takes thirty times its two bytes


def as_model(value: Any, model: type[Model]) -> Model:
    """Validate a decoded body as `model`. Raises InvalidRequest."""
    instance: Model = checked(value, TypeAdapter(model), model)
    return instance


def read_value(body: bytes, adapter: TypeAdapter[Any], annotation: Any) -> Any:
    """Parse a JSON body as `annotation`, with its `adapter`. Raises InvalidRequest."""
    needs(COPIES * decoded_bytes(body), wait=False)  # few threads decode
    return checked(read_json(body, most_containers=MOST_CONTAINERS), adapter, annotation)


def checked(value: Any, adapter: TypeAdapter[Any], annotation: Any) -> Any:
    """Validate a decoded body as `annotation`. Raises InvalidRequest."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if error.error_count() > MOST_FAULTS:  # each takes a kilobyte of the reply
            raise InvalidRequest(f"The body breaks the rules of this call in more than {MOST_FAULTS} places.") from None
        errors = error.errors(include_input=False, include_url=False)
        entries = [dict(e) | {"loc": ("body", *e["loc"])} for e in errors]
        raise explain(entries, value, annotation) from None


def explain(entries: Sequence[Mapping[str, Any]], body: Any = None, model: Any = None) -> InvalidRequest:
    """Make one error of pydantic's `entries`; `body` and its `model` provide the known members."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(_path(entry, body), []).append(entry)
    # the best-fitting alternatives of a union are those with the deepest errors
    deepest = [p for p in groups if not any(len(q) > len(p) and q[: len(p)] == p for q in groups)]
    places = [
        {"where": ".".join(str(part) for part in path), "rule": _rule(path, groups[path], model)} for path in deepest
    ]
    detail = _sentence(deepest[0], places[0]["rule"]) if places else "The request is malformed."
    return InvalidRequest(detail, places)


def _path(entry: Mapping[str, Any], body: Any) -> tuple[Any, ...]:
    """Return the place in the request, without pydantic's names of a union's alternatives."""
    loc = tuple(entry["loc"])
    if not loc or loc[0] != "body":
        return loc
    path, value = ["body"], body
    for part in loc[1:]:
        inside = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if inside:
            value = value[part]
        elif not (entry["type"] == "missing" and part == loc[-1]):
            continue
        path.append(part)
    return tuple(path)


def _rule(path: tuple[Any, ...], entries: list[Mapping[str, Any]], model: Any) -> str:
    kinds = {str(e["type"]) for e in entries}
    if kinds == {"extra_forbidden"}:  # a union's other alternative may know the member
        names = list(dict.fromkeys(_members(model, path[1:-1])))
        sentence = ", ".join(names[:SHOWN_MEMBERS]) + (", …" if len(names) > SHOWN_MEMBERS else "")
        return f"is not known here; the members are {sentence}" if names else "is not known here"
    return broken_rule(*entries)


def broken_rule(*entries: Mapping[str, Any]) -> str:
    """Describe the fault of one value as a predicate; several `entries` are the alternatives of a union."""
    kinds = [str(e["type"]) for e in entries]
    if "missing" in kinds:
        return "is missing"
    context = entries[0].get("ctx") or {}
    if context.get("min_length") == 1:
        return "must not be empty"
    if kinds[0] in LIMITS:
        return LIMITS[kinds[0]].format(**context)
    expected: list[str] = []
    for entry in entries:
        named = EXPECTED.get(entry["type"])
        if entry["type"] in ("literal_error", "enum"):
            named = str((entry.get("ctx") or {}).get("expected", ""))
        if named and named not in expected:
            expected.append(named)
    if expected:
        return "must be " + (", ".join(expected[:-1]) + " or " if len(expected) > 1 else "") + expected[-1]
    if kinds[0] in ("value_error", "assertion_error"):  # of our own validators, which quote no value
        return str(entries[0]["msg"]).partition(", ")[2].rstrip(".")
    if kinds[0] not in OF_PYDANTIC:  # a sentence of our own
        return str(entries[0]["msg"])
    return "has another form than this call takes"


def _members(model: Any, path: Sequence[Any]) -> list[str]:
    """List the members of the model at `path` below `model`; none if unknown."""
    models = _models(model)
    for part in path:
        if isinstance(part, str):
            fields = [outer.model_fields[part] for outer in models if part in outer.model_fields]
            models = [m for field in fields for m in _models(field.annotation)]
    return [field.alias or name for m in models for name, field in m.model_fields.items()]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _sentence(path: tuple[Any, ...], rule: str) -> str:
    place, names = path[0] if path else "body", path[1:]
    if not names:
        return "The request needs a JSON body." if rule == "is missing" else f"The body {rule}."
    name = ".".join(str(part) for part in names)
    label = name if len(name) <= SHOWN_NAME else name[:SHOWN_NAME] + "…"
    kind = {"query": "query parameter", "header": "header", "path": "part of the path"}.get(str(place), "member")
    return f"The {kind} '{label}' {rule}."
