"""How the command line shows results to people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from features_party.registry.card_text import members_text, statistics_text
from shared.service.cli import table


def show_message(data: dict[str, Any]) -> None:
    eps = data["epsilon"]
    unit = data["unit"]
    protects = f"labels of one {unit['column']}" if unit["kind"] == "unit" else "the label of one example"
    rows = [
        ["message", str(data["message"])],
        ["release", data["release"]],
        ["population", f"{data['population_name']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['n']:,}"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", f"{data['mechanism']}, {data['outputs']} outputs, {data['loss']} loss"],
        ["ε", f"{eps['total']} = {eps['clip']} clip + {eps['prior']} prior + {eps['randomize']} randomize"],
        *([["clipped", clipping_text(data["clipping"])]] if data.get("clipping") else []),
        ["δ", eps["delta"]],
        ["protects", protects],
        ["budget", f"{data['epsilon_spent']} of {data['epsilon_lifetime']} spent per example"],
        ["signed by", data["key_id"]],
    ]
    table("Verified message", ["", ""], rows)


def clipping_text(clipping: dict[str, Any]) -> str:
    """Where labels were clipped, and what was bought."""
    bounds, quantiles = " and ".join(clipping["bounds"]), ", ".join(clipping["quantiles"])
    many = "quantile" if len(clipping["quantiles"]) == 1 else "quantiles"
    return f"at {bounds}, the private {many} {quantiles} of labels in {clipping['public_domain']}"


def count_rows(counts: dict[str, Any]) -> list[list[str]]:
    shown = {
        "message_rows": "rows in messages",
        "feature_rows": "rows in features",
        "matched": "matched rows",
        "message_ids_without_features": "message ids without features",
        "features_without_message": "features without message",
        "ids_in_several_messages": "ids in several messages (each row kept)",
    }
    return [[text, f"{counts[key]:,}"] for key, text in shown.items()]


def show_join(data: dict[str, Any]) -> None:
    rows = count_rows(data["counts"])
    for item in data["messages"]:
        rows.append([f"correction of {item['release']}", f"{item['applied']}: {item['why']}"])
        rows.append(["  noise variance", f"{item['noise_variance']:.6g}"])
    rows.append(["written to", data["table"]])
    table("Join", ["", ""], rows)


def show_card(card: dict[str, Any], out: Path) -> None:
    report, capacity = card["report"], card["capacity"]
    rows = [["model", f"{out} ({card['kind']}, {card['loss']} loss)"], *count_rows(report)]
    for message in card["messages"]:
        correction = message["correction"]
        rows.append([f"message {message['release']}", f"{message['mechanism']}, ε {message['epsilon']['total']}"])
        rows.append(["  correction", f"{correction['applied']}: {correction['why']}"])
    for entry in card["epsilon"]:
        rows.append([f"ε per example of {entry['name']}", entry["epsilon_per_example"]])
    rows.append(["labels say", capacity["why"]])
    if card["trees"] is not None:
        rows.append(["trees", f"{card['trees']}, up to depth {capacity['depth']}"])
    if card["members"]:
        rows.append(["members", members_text(card["members"])])
    if card["statistics"]:
        rows.append(["large categories", statistics_text(card["statistics"])])
    rows.append(["corrected training mean", f"{report['corrected_mean']:.6g}"])
    estimate = report["error_estimate"]
    if estimate is not None:
        low, high = estimate["low"], estimate["high"]
        rows.append(["mse below the constant", f"{estimate['mse_below_constant']:.6g} (95 %: {low:.6g} … {high:.6g})"])
        if estimate.get("mse") is not None:
            mse = estimate["mse"]
            rows.append(["mse over true labels", f"{mse['estimate']:.6g} (95 %: {mse['low']:.6g} … {mse['high']:.6g})"])
    else:
        rows.append(["error estimate", report["error_estimate_why"]])
    rows += [["note", note] for note in card["notes"]]
    table("Trained model", ["", ""], rows)
