"""How large the house is: lines, files, commands and options, as a table. Run: python -m tests.architecture.figures"""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "labels_party", "features_party", "deploy")


def _files(room: str) -> dict[str, int]:
    paths = (ROOT / room).rglob("*.py")
    return {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in paths}


def _commands(party: str) -> tuple[int, int]:
    """Commands and their options (arguments are not counted) of a party's command line."""
    import click
    import typer

    importlib.import_module(f"{party}.cli")
    app = importlib.import_module(f"{party}.cli.app").app

    def walk(command: click.Command) -> tuple[int, int]:
        below = getattr(command, "commands", None)
        if below is None:
            given = {option for p in command.params if p.param_type_name == "option" for option in p.opts}
            return 1, len(given - {"--help"})
        counted = [walk(sub) for sub in below.values()]
        return sum(c for c, _ in counted), sum(o for _, o in counted)

    return walk(typer.main.get_command(app))


def main() -> None:
    everything: dict[str, int] = {}
    for room in ROOMS:
        sizes = _files(room)
        everything |= sizes
        print(f"{room:15} {sum(sizes.values()):7,} lines in {len(sizes):4} files")
    largest = max(everything, key=lambda name: everything[name])
    print(f"{'product':15} {sum(everything.values()):7,} lines in {len(everything):4} files")
    filled = [lines for lines in everything.values() if lines > 1]
    print(f"median file {statistics.median(filled):.0f} lines; largest {everything[largest]} ({largest})")
    for party in ("labels_party", "features_party"):
        commands, options = _commands(party)
        print(f"{party}: {commands} commands, {options} options")


if __name__ == "__main__":
    main()
