"""Entry of a population for OpenDP's public registry of differential privacy deployments.

The members of its schema are restated in `templates/deployment_entry.json`; no text of it is copied. Source:
github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml, commit 3e9c812 (15 July 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from importlib import resources
from typing import Any

from label_dp.documents.statement_text import count, visible
from labels_party.pages.disclosure_rows import Disclosure, batches

DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)
NUMBERS = (int, float, Decimal)
TYPES = {"text": (str,), "number": NUMBERS, "number or text": (*NUMBERS, str), "anything": (object,)}
RESTATED: Mapping[str, Any] = json.loads(
    resources.files("labels_party.pages").joinpath("templates", "deployment_entry.json").read_text("utf-8")
)
SHAPE, REQUIRED, FIXED = RESTATED["shape"], RESTATED["required"], RESTATED["fixed"]  # a list: the values of a member


def problems(entry: object, shape: Any = SHAPE, where: str = "") -> Iterator[str]:
    """Yield a sentence for each member that the registry's schema would refuse."""
    if not isinstance(shape, Mapping):
        if not _fits(entry, shape):
            yield f"'{where}' is not {shape if isinstance(shape, str) else 'one of ' + ', '.join(map(str, shape))}."
        return
    if not isinstance(entry, Mapping):
        yield f"'{where}' is no mapping."
        return
    for name in REQUIRED.get(where, ()):
        if name not in entry:
            yield f"'{where}' has no '{name}'."
    for name, value in entry.items():
        path = f"{where}.{name}".lstrip(".")
        if name in shape:
            yield from problems(value, shape[name], path)
        else:
            yield f"'{path}' is no member of an entry."


def _fits(value: object, shape: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(shape, list):
        return value in shape
    if shape == "day":
        return isinstance(value, str) and DAY.fullmatch(value) is not None
    if shape == "texts":
        return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)
    return isinstance(value, TYPES[shape])


def as_yaml(entry: Mapping[str, Any], indent: str = "") -> str:
    """Write an entry as YAML: blocks of double-quoted texts, the slug plain, as the registry's own script reads it."""
    lines: list[str] = []
    for name, value in entry.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}:\n", as_yaml(value, indent + "  ")]
        elif isinstance(value, list):
            lines += [f"{indent}{name}:\n", *(f"{indent}  - {_quoted(text)}\n" for text in value)]
        else:
            plain = name == "url_slug" or not isinstance(value, str)
            lines.append(f"{indent}{name}: {value if plain else _quoted(value)}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False)


def slug(name: str, curator: str, published: str) -> str:
    """Return the entry's address as the registry derives it from name, curator and year."""
    words = [re.sub(r"\W+", "_", text.lower()) for text in (name, curator, published[:4])]
    return "_".join(words).replace("_", "-")


def deployment_entry(facts: Disclosure, curator: str, region: str) -> Mapping[str, object]:
    """Return the entry of a population: a draft of tier 3 about what was published so far."""
    population, summary, days = facts.population, facts.summary, facts.days
    parameters: dict[str, object] = {"epsilon": Decimal(facts.epsilon_per_unit)}
    if approximate := facts.delta_per_unit != "0":
        parameters["delta"] = Decimal(facts.delta_per_unit)
    many = len(facts.published) > 1
    answers = summary["answers"]
    parts: Mapping[str, Mapping[str, object]] = {
        "basic": {
            "name": population.name,
            "data_curators": [curator],
            "data_product_type": "Dataset" if summary["releases"] else "Summary statistics",
            "data_product_region": region,
            "description": (
                f"Privatized values of the label '{population.label}': {count(summary['releases'], 'release')} of a "
                f"noisy label for every example, and {count(answers, 'answer')} computed with noise from the labels."
            ),
            "publication_date": days[0],
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if approximate else "Pure DP",
            "data_domain": f"One label of each example, from the public domain {population.domain}.",
        },
        "privacy_loss": {
            "privacy_unit": facts.unit_name,
            "privacy_unit_details": " ".join(facts.unit_sentences()),
            "privacy_parameters": parameters,
            "privacy_parameters_details": " ".join(facts.budget_sentences()),
        },
        "deployment_model": {
            "actors": (
                f"The curator, trusted with its own labels. Audiences of the documents, not trusted: "
                f"{', '.join(population.audiences)}. They may combine what they have."
            ),
            "release_type": "Many releases" if many else "One release",
            "release_type_details": (
                f"{count(len(facts.published), 'signed document')} from {days[0]} to {days[-1]}. The lifetime ε "
                "never resets; further documents are refused beyond it."
            ),
            "data_source_type": "Dynamic" if summary["batches"] > 1 else "Static",
            "data_source_type_details": f"{batches(summary['batches'])} of examples; no two share one.",
            "access_type": "Interactive" if answers else "Non-interactive",
            "access_type_details": (
                "Every answer is charged to one ledger, whoever asked, so that audiences may collude."
                if answers
                else "Audiences fetch signed documents and ask nothing."
            ),
        },
        "accounting": {},
        "implementation": {
            "mechanisms": " ".join(facts.mechanism_sentences()),
            "justification": " ".join(facts.rule_sentences()),
        },
        "administrative": {"notes": f"Made on {facts.day} from {facts.seal}.", "registry_authors": [curator]},
    }
    deployment = {name: {**FIXED.get(name, {}), **members} for name, members in parts.items()}
    address = slug(population.name, curator, days[0])
    return {"url_slug": address, "status": "Draft", "tier": 3, "deployment": deployment}
