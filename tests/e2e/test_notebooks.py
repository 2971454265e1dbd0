"""The notebooks of the guides run from top to bottom, and what is kept of an earlier run has no error in it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.support.processes import ROOT
from tests.support.real_data import DATA

pytestmark = pytest.mark.processes
FOLDER = ROOT / "deploy" / "guides" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
ROWS, SECONDS = 6_000, 300
# what a run of each must have said
SAID = {
    "an-audit-of-epsilon": ["estimated prior", "consistent", "image/png", "'True'", "guesses of canaries were right"],
    "an-officers-audit": ["VERIFIED", "REFUSED", "8 events agree"],
    "first-model": ["stdout"],
    "evaluation-without-labels": ["the privatized labels said"],
    "own-lightgbm": ["mean for everybody", "corrected labels", "LabelDPRegressor"],
    "what-epsilon-costs": ["expected_model_error", "auto would take", "image/png"],
}


def outputs(notebook: nbformat.NotebookNode) -> str:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "\n".join(str(output) for cell in code for output in cell.outputs)


def test_there_is_a_word_of_each() -> None:
    assert sorted(SAID) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name: str, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTEBOOK_ROWS", str(ROWS))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # as a reader has it, who installed what the guides say
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    retail = DATA / "online_retail_lines.parquet"
    if retail.exists():
        monkeypatch.setenv("ONLINE_RETAIL", str(retail))
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()
    said = outputs(notebook)
    assert [word for word in SAID[name] if word not in said] == []


def test_the_first_model_is_that_of_the_readme() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    cells = [cell.source for cell in nbformat.read(FOLDER / "first-model.ipynb", 4).cells if cell.cell_type == "code"]
    lines = [line.rstrip(";") for cell in cells for line in cell.splitlines() if line]
    assert lines == [line for line in code.splitlines() if line]
    assert len(lines) == 12


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_kept_of_a_run(name: str) -> None:
    said = outputs(nbformat.read(FOLDER / f"{name}.ipynb", 4))
    assert [word for word in SAID[name] if word not in said] == []
    assert "traceback" not in said
    assert str(ROOT) not in said
    assert "Warning" not in said
