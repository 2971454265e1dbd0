"""A message as the command line shows it to people."""

from __future__ import annotations

from typing import Any

from label_dp.cli.answers import budget_rows, headline
from label_dp.cli.layout import number
from label_dp.cli.output import table


def shortened(values: list[str], most: int = 8) -> str:
    return "; ".join(values[:most]) + ("; …" if len(values) > most else "")


def _bought(split: dict[str, str]) -> str:
    return "" if split["clip"] == "0" else f"{split['clip']} clip + "


def show_message(data: dict[str, Any]) -> None:
    eps = data["epsilon"]
    rows = [
        ["message", str(data["message"])],
        ["release", data["release"]],
        ["population", f"{data['population']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['examples']:,}"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", f"{data['mechanism']}, {data['loss']} loss, prior {data['prior']}"],
        [
            "ε",
            f"{eps['total']} = {_bought(eps)}{eps['prior']} prior + {eps['randomize']} randomize; δ = {eps['delta']}",
        ],
        *budget_rows(data),
    ]
    if data.get("clipping"):
        c = data["clipping"]
        bought = f"{'quantile' if len(c['quantiles']) == 1 else 'quantiles'} {', '.join(c['quantiles'])}"
        rows.append(["clipped", f"at {' and '.join(c['bounds'])}: {bought} bought inside {c['public_domain']}"])
    if data["expected_label_loss"] is not None:
        rows.append(["expected label loss", number(data["expected_label_loss"])])
    for b in data.get("bins", [])[:16]:
        rows.append(["bin", f"{_shown(b['from'])} … {_shown(b['to'])}  →  {_shown(b['output'])}"])
    if "lattice" in data:
        ends, step = (number(data["lattice"][end]) for end in ("from", "to")), number(data["lattice"]["step"])
        rows.append(["outputs", f"{' … '.join(ends)}, {step} apart ({data['lattice']['outputs']:,})"])
    elif "bins" not in data:
        rows.append(["outputs", shortened([_shown(v) for v in data["outputs"]])])
    beside = [name for name in data.get("files", []) if name != str(data["message"])]
    if beside:
        rows.append(["beside it", ", ".join(beside)])
    rows.append(["signed by", data["key_id"]])
    rows += [["note", heap["told"]] for heap in data["heaps"]]
    if "note" in data:
        rows.append(["note", data["note"]])
    if "labels_key" in data:
        rows.append(["public key", data["labels_key"]])
    table(f"Privatized message{headline(data)}", ["", ""], rows)


def _shown(label: float | str) -> str:
    return label if isinstance(label, str) else number(label)


def show_waiting(data: dict[str, Any]) -> None:
    """What people see of a release that a second person has yet to approve."""
    rows = [
        ["release", data["release"]],
        ["population", data["population"]],
        ["state", f"{data['state']}, asked for by {data['requested_by_name'] or data['requested_by']}"],
        ["ε", f"{data['epsilon']['total']}, not charged yet"],
        ["next", data["next"]],
    ]
    table("Waiting for approval", ["", ""], rows)
