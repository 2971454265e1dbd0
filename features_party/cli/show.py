"""Results, formatted for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from features_party.models.card import explained
from features_party.models.card_text import members_text, of_classes, probability_rows, statistics_text
from label_dp.cli.answers import answer_rows, budget_rows, headline, show_result
from label_dp.cli.output import echo, table


def show_message(data: dict[str, Any]) -> None:
    """Print a message's facts."""
    eps = data["epsilon"]
    unit = data["unit"]
    protects = f"labels of one {unit['column']}" if unit["kind"] == "unit" else "the label of one example"
    rows = [
        ["message", str(data["message"])],
        ["release", data["release"]],
        ["population", f"{data['population_name']} ({data['label']}, domain {data['domain']})"],
        *([["classes", ", ".join(data["names"])]] if data.get("names") else []),
        ["examples", f"{data['n']:,}"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", f"{data['mechanism']}, {data['outputs']} outputs, {data['loss']} loss"],
        ["ε", f"{eps['total']} = {eps['clip']} clip + {eps['prior']} prior + {eps['randomize']} randomize"],
        *([["clipped", clipping_text(data["clipping"])]] if data.get("clipping") else []),
        ["δ", eps["delta"]],
        ["protects", protects],
        *budget_rows(data),
        ["signed by", data["key_id"]],
    ]
    title = "Verified rehearsal: made-up labels, no ε" if data.get("rehearsal") else f"Verified message{headline(data)}"
    table(title, ["", ""], rows)


def clipping_text(clipping: dict[str, Any]) -> str:
    """Describe the clipping bounds and their price."""
    bounds, quantiles = " and ".join(clipping["bounds"]), ", ".join(clipping["quantiles"])
    many = "quantile" if len(clipping["quantiles"]) == 1 else "quantiles"
    return f"at {bounds}, the private {many} {quantiles} of labels in {clipping['public_domain']}"


def count_rows(counts: dict[str, Any]) -> list[list[str]]:
    """Format the counts of a join as rows of a table."""
    words = {
        "message_rows": "rows in messages",
        "feature_rows": "rows in features",
        "matched": "matched rows",
        "message_ids_without_features": "message ids without features",
        "features_without_message": "features without message",
        "ids_in_several_messages": "ids in several messages (each row kept)",
    }
    aloud = [] if counts["unmatched_warning"] is None else [["warning", counts["unmatched_warning"]]]
    return [[text, f"{counts[key]:,}"] for key, text in words.items()] + aloud


def show_join(data: dict[str, Any]) -> None:
    """Print the counts and corrections of a join."""
    rows = [["features", data["features"]], *count_rows(data["counts"])]
    for item in data["messages"]:
        if item["applied"] is None:
            rows.append([f"labels of {item['release']}", item["why"]])
            continue
        rows.append([f"correction of {item['release']}", f"{item['applied']}: {item['why']}"])
        rows.append(["  noise variance", f"{item['noise_variance']:.6g}"])
    rows.append(["written to", data["table"]])
    table("Join", ["", ""], rows)


def show_card(card: dict[str, Any], out: Path) -> None:
    """Print a model's card."""
    report, capacity = card["report"], card["capacity"]
    answers = card.get("answers", [])
    rows = [["model", f"{out} ({card['kind']}, {card['loss']} loss)"]]
    rows += [["examples", f"{report['rows']:,}"]] if answers else count_rows(report)
    for message in card["messages"]:
        correction = message["correction"]
        rows.append([f"message {message['release']}", f"{message['mechanism']}, ε {message['epsilon']['total']}"])
        rows.append(["  correction", f"{correction['applied']}: {correction['why']}"])
    for answer in answers:
        rows.append([f"answer {answer['answer']}", f"{answer['kind']}, ε {answer['epsilon']['total']}"])
    for entry in card["epsilon"]:
        rows.append([f"ε per example of {entry['name']}", entry["epsilon_per_example"]])
    rows += [] if answers else [["labels say", capacity["why"]]]
    if card["trees"] is not None:
        rows.append(["trees", f"{card['trees']}, up to depth {capacity['depth']}"])
    if card["members"]:
        rows.append(["members", members_text(card["members"])])
    if card["statistics"]:
        rows.append(["large categories", statistics_text(card["statistics"])])
    if card.get("classes") is not None:
        rows.append(["classes", ", ".join(card["classes"])])
    else:
        mean = "mean of the labels, of the sums" if answers else "corrected training mean"
        rows.append([mean, f"{report['corrected_mean']:.6g}"])
    estimate = report["error_estimate"]
    if estimate is not None and of_classes(estimate):
        rows += probability_rows(estimate)
    elif estimate is not None:
        low, high = estimate["low"], estimate["high"]
        rows.append(["mse below the constant", f"{estimate['mse_below_constant']:.6g} (95 %: {low:.6g} … {high:.6g})"])
        share = explained(report)
        rows += [] if share is None else [["  of the labels' variance", f"{share:.1%}"]]
        if estimate.get("mse") is not None:
            mse = estimate["mse"]
            rows.append(["mse over true labels", f"{mse['estimate']:.6g} (95 %: {mse['low']:.6g} … {mse['high']:.6g})"])
            rows += [["  its root", f"{mse['estimate'] ** 0.5:.6g}"]] if mse["estimate"] > 0 else []
        rows += probability_rows(estimate)
    else:
        rows.append(["error estimate", report["error_estimate_why"]])
    rows += [["note", note] for note in card["notes"]]
    table("Trained model", ["", ""], rows)


ERRORS = {
    "mse": "mean squared error",
    "constant_mse": "  of the mean for everybody",
    "mse_below_constant": "  below that of the mean",
    "mae": "mean absolute error",
    "poisson": "Poisson loss",
}


def show_evaluation(data: dict[str, Any]) -> None:
    """Print errors from true labels, or from privatized ones with their intervals."""
    rows = [["note", note] for note in data.get("notes", ())]  # first: one may say that the figures are no estimate
    rows += [["examples", f"{data['rows']:,}"]]
    for name, text in ERRORS.items():
        found = data.get(name)
        if isinstance(found, dict):
            rows.append([text, f"{found['estimate']:.6g} (95 %: {found['low']:.6g} … {found['high']:.6g})"])
        elif found is not None:
            rows.append([text, f"{found:.6g}"])
        elif name in data:
            rows.append([text, str(data.get(f"{name}_why") or data.get("mse_why") or "not for negative labels")])
    if "auc" in data or of_classes(data):
        rows += probability_rows(data)
    for column, cells in data["unknown_categories"].items():
        rows.append([f"categories of {column}", f"{cells:,} cells hold one that training did not see: missing"])
    rows += [["labels", "clipped to the model's domain"]] if data.get("labels_clipped") else []
    table("Evaluation", ["", ""], rows)


def show_answer(found: Any) -> None:
    """Print a signed answer of any kind."""
    from label_dp.documents.registry import KINDS

    data, facts = found.summary(), found.answer.mechanism.facts
    eps, result = data["epsilon"], KINDS[data["kind"]].shown(found.answer)
    rows = [
        ["answer", f"{data['answer']}, a {data['kind']} of batch {data['batch']}"],
        ["population", f"{data['population_name']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['n']:,}, all charged"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", data["mechanism"]],
        ["ε", f"{eps['total']}; δ = {eps['delta']}"],
        *budget_rows(data),
        ["protects", data["adjacency"]],
        *answer_rows(data["parameters"], result, facts),
        ["signed by", data["key_id"]],
    ]
    table(f"Signed answer{headline(data)}", ["", ""], rows)
    show_result(data["parameters"], result)


def show_comparison(data: dict[str, Any]) -> None:
    """Print one column per model."""
    models = data["models"]
    rows = [
        ["model", *(f"{m['kind']}, {m['loss']}" for m in models)],
        ["mechanism", *(", ".join(m["mechanisms"]) for m in models)],
        ["correction", *(", ".join(m["corrections"]) for m in models)],
        [
            "ε per example",
            *(", ".join(f"{e['name']} {e['epsilon_per_example']}" for e in m["epsilon"]) for m in models),
        ],
        ["releases", *(str(len(m["releases"])) for m in models)],
        ["rows", *(f"{m['rows']:,}" for m in models)],
        ["noiseless rows they are worth", *(f"{m['effective_rows']:,.0f}" for m in models)],
        ["noise variance", *(f"{m['noise_variance']:.6g}" for m in models)],
        ["trees", *("" if m["trees"] is None else f"{m['trees']}, up to depth {m['depth']}" for m in models)],
        ["members", *(members_text(m["members"]) for m in models)],
        ["mse below the constant", *(_gain(m) for m in models)],
        ["  95 % interval", *(_interval(m) for m in models)],
        *_probabilities(models),
        ["seconds", *("" if m["seconds"] is None else f"{m['seconds']:.1f}" for m in models)],
        ["trained", *(m["created"] for m in models)],
    ]
    table(f"Models of {data['label']}, domain {data['domain']}", ["", *(m["model"] for m in models)], rows)
    echo(data["note"])
    for m in models:
        if m["gain"] is None:
            echo(f"{m['model']}: no gain estimated, {m['gain_why']}")


def _gain(model: dict[str, Any]) -> str:
    gain = model["gain"]
    if gain is None:
        return "not identified"
    return "" if of_classes(gain) else f"{gain['mse_below_constant']:.6g}"


def _probabilities(models: list[dict[str, Any]]) -> list[list[str]]:
    """Format metrics of two labels or of classes; a metric that no model has is left out."""
    metrics = [{} if m["gain"] is None else dict(probability_rows(m["gain"])) for m in models]
    names = dict.fromkeys(name for of_one in metrics for name in of_one)
    return [[name, *(of_one.get(name, "") for of_one in metrics)] for name in names]


def _interval(model: dict[str, Any]) -> str:
    gain = model["gain"]
    return "" if gain is None or of_classes(gain) else f"{gain['low']:.4g} … {gain['high']:.4g}"
