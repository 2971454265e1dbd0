"""A model's card as Markdown, for people: its data, its cost and its claims; metrics of probabilities as lines."""

from __future__ import annotations

import itertools
import re
from typing import Any

from features_party.models.card_reading import reading_card
from features_party.training.encoding import PARTS

SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
SHOWN_FEATURES, SHOWN_STATISTICS = 30, 12
PROBABILITIES = {
    "positive_rate": "rate of the larger label",
    "auc": "AUC",
    "log_loss": "log loss",
    "constant_log_loss": "log loss of the constant",
    "brier": "Brier score",
}
CLASSES = {
    "accuracy": "accuracy",
    "constant_accuracy": "accuracy of the commonest class",
    "log_loss": "log loss",
    "constant_log_loss": "log loss of the class shares",
    "log_loss_below_constant": "log loss below that of the class shares",
    "macro_auc": "AUC, mean of one class against the rest",
}
CALIBRATION = {"in_the_large": "mean label less mean prediction", "slope": "calibration slope"}


@reading_card()
def card_markdown(card: dict[str, Any]) -> str:
    """Write sections for the members that the card has; a model trained in a program of its own may lack some. Raises
    InvalidFile."""
    parts = [f"# Model card: {_plain(card.get('label', 'label'))}", _facts(card)]
    for title, part in (
        ("Labels it was trained on", _messages(card) + _answers(card)),
        ("Calibration", _calibration(card)),
        ("Privacy", _privacy(card)),
        ("What it may claim", _claims(card)),
        ("Capacity", _capacity(card)),
        ("Features", features_section(card)),
        ("Notes", [f"- {_plain(note)}" for note in card.get("notes", [])]),
    ):
        if part:
            parts += [f"## {title}", "\n".join(part)]
    return "\n\n".join(parts) + "\n"


def _facts(card: dict[str, Any]) -> str:
    report = card.get("report", {})
    facts = {
        "model": f"{card.get('kind', '')}, {card.get('loss', '')} loss",
        "label domain": card.get("domain_text"),
        "classes": ", ".join(card["classes"]) if card.get("classes") else None,
        "training rows": f"{report['rows']:,}" if "rows" in report else None,
        "trained": card.get("created"),
        "seconds": card.get("seconds"),
        "SHA-256 of model.json": card.get("model_sha256"),
    }
    return "\n".join(_table(["", ""], [[name, value] for name, value in facts.items() if value is not None]))


def _messages(card: dict[str, Any]) -> list[str]:
    rows = []
    for m in card.get("messages", []):
        eps, fix = m["epsilon"], m["correction"]
        spent = f"{m['epsilon_spent']} of {m['epsilon_lifetime']}" if "epsilon_spent" in m else ""
        rows.append(
            [
                m["release"],
                m.get("population_name", m["population"]),
                m["batch"],
                f"{m['n']:,}",
                m["mechanism"]
                + (
                    f", labels clipped at {' and '.join(m['clipping']['bounds'])} (bought)" if m.get("clipping") else ""
                ),
                f"{eps['total']} = {eps['clip']} clip + {eps['prior']} prior + {eps['randomize']} randomize",
                spent,
                f"{fix['applied']}, noise variance {fix['noise_variance']:.6g}"
                + (f", bias {fix['residual_bias']:.3g} (root mean square)" if fix.get("residual_bias") else ""),
            ]
        )
    columns = ["release", "population", "batch", "examples", "mechanism", "ε", "spent of lifetime ε then", "correction"]
    return _table(columns, rows) if rows else []


def _answers(card: dict[str, Any]) -> list[str]:
    rows = [
        [
            a["answer"],
            a["kind"],
            a["population_name"],
            a["batch"],
            f"{a['n']:,}",
            a["epsilon"]["total"],
            f"{a['epsilon_spent']} of {a['epsilon_lifetime']}",
        ]
        for a in card.get("answers", [])
    ]
    columns = ["answer", "kind", "population", "batch", "examples", "ε", "spent of lifetime ε then"]
    return _table(columns, rows) if rows else []


def _calibration(card: dict[str, Any]) -> list[str]:
    calibration = card.get("calibration")
    if calibration is None:
        return []
    facts = {
        "answer": calibration["answer"],
        "population": calibration["population_name"],
        "batch": f"{calibration['batch']}, {calibration['n']:,} examples, all charged",
        "ε": f"{calibration['epsilon']['total']}; δ = {calibration['epsilon']['delta']}",
        "spent of lifetime ε then": f"{calibration['epsilon_spent']} of {calibration['epsilon_lifetime']}",
        "map": f"{calibration['shape']}, {calibration['loss']} loss, {calibration['pieces']} pieces"
        + (", interpolated" if calibration.get("interpolated") else ""),
        "calibrated": calibration["calibrated"],
    }
    text = "Every prediction goes through a private map from score to label, which the labels party computed."
    return [text, "", *_table(["", ""], [[name, value] for name, value in facts.items()])]


def _privacy(card: dict[str, Any]) -> list[str]:
    lines = []
    for entry in card.get("epsilon", []):
        delta = entry.get("delta_per_example", "0")
        also = f", δ = {delta}" if delta != "0" else ""
        unit = entry.get("unit")
        person = (
            f"; {unit['epsilon_per_unit']} per {_plain(unit['column'])} (at most {unit['max_examples']} examples each)"
            if unit
            else ""
        )
        lines.append(f"- **{_plain(entry['name'])}**: ε = {entry['epsilon_per_example']} per example{also}{person}")
    if lines and "epsilon_rule" in card:
        lines += ["", card["epsilon_rule"]]
    return lines


def _claims(card: dict[str, Any]) -> list[str]:
    report = card.get("report")
    if report is None:
        return []
    estimate = report["error_estimate"]
    if estimate is None:
        return [f"No error estimate: {report['error_estimate_why'].removeprefix('none: ')}."]
    if of_classes(estimate):
        table = _table(["", ""], probability_rows(estimate))
        return [f"Of its probabilities, {report['error_estimate_why']}:", "", *table]
    lines = [
        f"Mean squared error below that of the constant {report['corrected_mean']:.6g}: "
        f"{estimate['mse_below_constant']:.6g} (95 %: {estimate['low']:.6g} to {estimate['high']:.6g}), "
        f"{report['error_estimate_why']}."
    ]
    mse = estimate.get("mse")
    if mse is not None:
        lines += ["", f"Mean squared error: {mse['estimate']:.6g} (95 %: {mse['low']:.6g} to {mse['high']:.6g})."]
    elif estimate.get("mse_why"):
        lines += ["", f"The mean squared error itself is {estimate['mse_why']}."]
    rows = probability_rows(estimate)
    return [*lines, "", "As probabilities of the larger label:", "", *_table(["", ""], rows)] if rows else lines


def _capacity(card: dict[str, Any]) -> list[str]:
    lines = [card["capacity"]["why"] + "."] if "capacity" in card and not card.get("answers") else []
    if card.get("members"):
        lines += ["", f"The model adds to the mean of the labels: {_plain(members_text(card['members']))}."]
    return lines


def members_text(members: list[dict[str, Any]]) -> str:
    """List weight and name of an ensemble's members, and how many trees they have; boosters of one kind are one
    member."""
    return ", ".join(_member(list(same)) for _, same in itertools.groupby(members, lambda m: (m["name"], m["trees"])))


def _member(same: list[dict[str, Any]]) -> str:
    name, trees = same[0]["name"], same[0]["trees"]
    weight = sum(m["weight"] for m in same)
    text = f"{weight:.2f} × {name}" if weight else f"{name} (the base of others)"
    return text if trees is None else f"{text} ({len(same)} × {trees})" if len(same) > 1 else f"{text} ({trees})"


def features_section(card: dict[str, Any]) -> list[str]:
    """Write lines about the features and the inputs made of them; none without any."""
    importance = card.get("importance", {})
    rows = [
        [f["name"], f["kind"], f.get("values", ""), _share(importance, _inputs(f))] for f in card.get("features", [])
    ]
    if not rows:
        return []
    rest = len(rows) - SHOWN_FEATURES
    more = ["", f"and {rest} more; see card.json."] if rest > 0 else []
    lines = _table(["feature", "kind", "categories", "share of gain"], rows[:SHOWN_FEATURES]) + more
    crossed = [[c["name"], c["groups"], _share(importance, [c["name"]])] for c in card.get("crossings", [])]
    if crossed:
        lines += ["", "These values and pairs of values have an effect of their own:", ""]
        lines += _table(["crossing", "groups", "share of gain"], crossed)
    return lines + _statistics(card.get("statistics", []), importance)


def _inputs(feature: dict[str, Any]) -> list[str]:
    """List the names under which the importance has a column: a date counts by its parts."""
    name = feature["name"]
    return [f"{name}.{part}" if part else name for part in PARTS.get(feature["kind"], ())] or [name]


def _share(importance: dict[str, float], names: list[str]) -> str:
    shares = [importance[name] for name in names if name in importance]
    return f"{sum(shares):.1%}" if shares else ""


def _statistics(statistics: list[dict[str, Any]], importance: dict[str, float]) -> list[str]:
    """List the statistics of the largest shares."""
    if not statistics:
        return []
    ranked = sorted(statistics, key=lambda s: -importance.get(s["name"], 0.0))
    rows = [[s["name"], _share(importance, [s["name"]])] for s in ranked[:SHOWN_STATISTICS]]
    rest = len(ranked) - SHOWN_STATISTICS
    more = ["", f"and {rest} more; see card.json."] if rest > 0 else []
    return ["", f"{_plain(statistics_text(statistics))}:", "", *_table(["number", "share of gain"], rows), *more]


def statistics_text(statistics: list[dict[str, Any]]) -> str:
    """Say how many numbers were made of which large categories."""
    columns = ", ".join(dict.fromkeys(s["column"] for s in statistics))
    return f"{len(statistics)} more numbers were made, without labels, of {columns}"


def _table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(_plain(cell) if line is not lines[1] else cell for cell in line) + " |" for line in lines]


def _plain(value: Any) -> str:
    """Escape names from messages and tables: they must not become markup, hide text or turn its direction."""
    return SPECIAL.sub(r"\\\1", "".join(c if c.isprintable() else " " for c in str(value)))


@reading_card()
def probability_rows(estimate: dict[str, Any]) -> list[list[str]]:
    """List name and interval, or the reason for its absence, of each metric of probabilities.

    Empty if the model predicts none. Raises InvalidFile for a damaged card.
    """
    if of_classes(estimate):
        return [[text, _interval(estimate, name)] for name, text in CLASSES.items()]
    rows = [[text, _interval(estimate, name)] for name, text in PROBABILITIES.items() if name in estimate]
    calibration = estimate.get("calibration")
    return (
        rows
        if calibration is None
        else [*rows, *([text, _interval(calibration, name)] for name, text in CALIBRATION.items())]
    )


def of_classes(estimate: dict[str, Any]) -> bool:
    """Check whether an error estimate is of probabilities of classes, and not of numbers."""
    return "accuracy" in estimate


def _interval(members: dict[str, Any], name: str) -> str:
    estimate = members[name]
    if estimate is None:
        return str(members[f"{name}_why"])
    return f"{estimate['estimate']:.6g} (95 %: {estimate['low']:.6g} to {estimate['high']:.6g})"
