"""How the command line shows signed answers to people."""

from __future__ import annotations

from typing import Any

from shared.service.answers import answer_rows, show_result
from shared.service.cli import table


def show_answer(found: Any) -> None:
    """A signed answer of any kind."""
    from shared.message.calibration import CALIBRATION

    data, facts = found.summary(), found.answer.mechanism.facts
    eps, result = data["epsilon"], data["result"]
    if data["kind"] == CALIBRATION:  # its map is long, and for programs
        result = {"pieces": found.calibration().pieces}
    rows = [
        ["answer", f"{data['answer']}, a {data['kind']} of batch {data['batch']}"],
        ["population", f"{data['population_name']} ({data['label']}, domain {data['domain']})"],
        ["examples", f"{data['n']:,}, all charged"],
        ["audiences", ", ".join(data["audiences"])],
        ["mechanism", data["mechanism"]],
        ["ε", f"{eps['total']}; δ = {eps['delta']}"],
        ["budget", f"{data['epsilon_spent']} of {data['epsilon_lifetime']} spent per example"],
        ["protects", data["adjacency"]],
        *answer_rows(data["parameters"], result, facts),
        ["signed by", data["key_id"]],
    ]
    table("Signed answer", ["", ""], rows)
    show_result(data["parameters"], result)
