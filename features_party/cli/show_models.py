"""How the command line shows models to people."""

from __future__ import annotations

from typing import Any

from features_party.registry.card_text import members_text
from shared.service.cli import table


def show_comparison(data: dict[str, Any]) -> None:
    """One column per model."""
    models = data["models"]
    rows = [
        ["model", *(f"{m['kind']}, {m['loss']}" for m in models)],
        ["mechanism", *(", ".join(m["mechanisms"]) for m in models)],
        ["correction", *(", ".join(m["corrections"]) for m in models)],
        ["ε per example", *(_epsilon(m) for m in models)],
        ["releases", *(str(len(m["releases"])) for m in models)],
        ["rows", *(f"{m['rows']:,}" for m in models)],
        ["noiseless rows they are worth", *(f"{m['effective_rows']:,.0f}" for m in models)],
        ["noise variance", *(f"{m['noise_variance']:.6g}" for m in models)],
        ["trees", *("" if m["trees"] is None else f"{m['trees']}, up to depth {m['depth']}" for m in models)],
        ["members", *(members_text(m["members"]) for m in models)],
        ["mse below the constant", *(_gain(m) for m in models)],
        ["  95 % interval", *(_interval(m) for m in models)],
        ["seconds", *("" if m["seconds"] is None else f"{m['seconds']:.1f}" for m in models)],
        ["trained", *(m["created"] for m in models)],
    ]
    table(f"Models of {data['label']}, domain {data['domain']}", ["", *(m["model"] for m in models)], rows)
    print(data["note"])  # noqa: T201 - the command line's own output
    for m in models:
        if m["gain"] is None:
            print(f"{m['model']}: no gain estimated, {m['gain_why']}")  # noqa: T201 - the same


def _epsilon(model: dict[str, Any]) -> str:
    return ", ".join(f"{e['name']} {e['epsilon_per_example']}" for e in model["epsilon"])


def _gain(model: dict[str, Any]) -> str:
    gain = model["gain"]
    if gain is None:
        return "not identified"
    return f"{gain['mse_below_constant']:.6g}"


def _interval(model: dict[str, Any]) -> str:
    gain = model["gain"]
    return "" if gain is None else f"{gain['low']:.4g} … {gain['high']:.4g}"
