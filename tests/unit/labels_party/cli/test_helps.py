"""The list of commands says of the kinds of answers what the kinds say of themselves, and its help is made of it.

Write the file again: .venv/bin/python -m tests.unit.labels_party.cli.test_helps
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import typer

import features_party.cli
import labels_party.cli
from label_dp.cli.commands import help_of
from label_dp.cli.outline import commands_of
from label_dp.documents.registry import KINDS
from labels_party.companions.cli.asking import HELPS

PARTIES = {"labels-party": labels_party.cli.app, "features-party": features_party.cli.app}


def helps() -> str:
    found = {kind.command: help_of(kind.asks) for kind in KINDS.values() if kind.asks is not None}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def test_the_kinds_are_listed_as_they_say() -> None:
    again = "write it again: .venv/bin/python -m tests.unit.labels_party.cli.test_helps"
    assert HELPS.read_text(encoding="utf-8") == helps(), again


@pytest.mark.parametrize("party", PARTIES)
def test_a_command_is_the_same_whether_made_at_once_or_on_demand(party: str) -> None:
    at_once: Any = typer.main.get_command(PARTIES[party])
    later = commands_of(PARTIES[party])
    assert said(later, party) == said(at_once, party)


def said(command: Any, path: str) -> dict[str, Any]:
    """What the help shows of a command, of its options and of the commands below it."""
    found: dict[str, Any] = {path: [str(getattr(command, name, None)) for name in OF_COMMANDS]}
    for option in command.params:
        found[f"{path} {option.name}"] = [str(getattr(option, name, None)) for name in OF_OPTIONS]
    for name, inner in getattr(command, "commands", {}).items():
        found |= said(inner, f"{path} {name}")
    return found


OF_COMMANDS = ("name", "help", "short_help", "hidden", "deprecated", "rich_help_panel", "no_args_is_help", "epilog")
OF_OPTIONS = ("opts", "secondary_opts", "default", "help", "required", "multiple", "nargs", "is_flag", "is_eager")
OF_OPTIONS += ("show_default", "rich_help_panel", "param_type_name")


@pytest.mark.processes
@pytest.mark.parametrize("party", PARTIES)
def test_the_list_of_commands_loads_no_schema(party: str) -> None:
    code = (
        f"import sys; sys.argv = ['{party}', '--help']\n"
        f"from {party.replace('-', '_')}.cli import main\n"
        "try: main()\n"
        "except SystemExit: print({'pydantic', 'numpy', 'label_dp.schemas.base'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"


if __name__ == "__main__":
    HELPS.write_text(helps(), encoding="utf-8")
