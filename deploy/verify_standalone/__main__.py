"""`python3 verify_standalone …`: runs the command of this folder, wherever it lies and whatever its name is."""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path[:1] = []  # this folder: its files are imported as parts of a package only
    sys.path.append(str(HERE.parent))  # last, so that nothing beside the folder takes a library's place
    sys.exit(import_module(f"{HERE.name}.command").main())
