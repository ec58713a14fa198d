"""Runs the notebooks of examples/notebooks: ``python -m docs.notebooks`` writes their outputs, ``--check`` compares.

All cells run in one kernel, notebook by notebook. Compared is what they print and the text of what they show; of cells
with the tag "varies" only of which MIME types it is. ``--without ipywidgets`` runs them where that cannot be imported;
names, as ``kmeans.ipynb``, say which are run.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))

_SETTINGS = ("--master local[2] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
             "--conf spark.log.level=OFF pyspark-shell")


def main() -> None:
    """Run the notebooks, and write or compare their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--without", default="", metavar="MODULE")
    options = parser.parse_args()
    kept = {path: nbformat.read(path, as_version=4) for path in NOTEBOOKS
            if path.name in options.names or not options.names}
    run = dict(zip(kept, executed(list(kept.values()), options.without), strict=True))
    differences = [line for path in kept for line in difflib.unified_diff(
        list(texts(kept[path])), list(texts(run[path])), f"{path.name} as kept", f"{path.name} now", lineterm="")]
    if not options.check:
        for path, notebook in run.items():
            for cell in code_cells(notebook):
                cell.outputs = [output for output in cell.outputs if shown(output)]
            nbformat.write(notebook, path)
    elif differences:
        sys.exit("\n".join(differences))
    print(f"{len(run)} notebooks, {sum(map(len, map(code_cells, run.values())))} cells: "
          + ("as they are kept" if options.check else "written"))


def executed(notebooks: list[Any], without: str) -> list[Any]:
    """Return notebooks with the outputs of their cells, all of which run in one new kernel."""
    whole = nbformat.v4.new_notebook(metadata=notebooks[0].metadata)
    whole.cells = [nbformat.from_dict(cell) for notebook in notebooks for cell in notebook.cells]
    with tempfile.TemporaryDirectory(prefix="vn-") as folder:       # a short path: there is a socket in it
        environment = os.environ | {
            "VISPARK_RUNTIME_DIR": folder, "PYSPARK_PYTHON": sys.executable, "IPYTHONDIR": f"{folder}/ipython",
            "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": os.environ.get("PYSPARK_SUBMIT_ARGS", _SETTINGS)}
        if without:
            startup = Path(folder, "ipython", "profile_default", "startup")
            startup.mkdir(parents=True)
            (startup / "00-without.py").write_text(f"import sys\nsys.modules[{without!r}] = None\n", encoding="utf-8")
        try:
            NotebookClient(whole, timeout=300, kernel_name="python3", record_timing=False).execute(env=environment)
        finally:
            subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=environment, check=False,
                           capture_output=True)
    cells = iter(whole.cells)
    run = [nbformat.v4.new_notebook(metadata=notebook.metadata, cells=[next(cells) for _ in notebook.cells])
           for notebook in notebooks]
    for notebook in run:
        for number, cell in enumerate(code_cells(notebook), 1):
            cell.execution_count = number
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = number
    return run


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells of a notebook that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(output: Any) -> dict[str, Any]:
    """Return an output's data by MIME type; none of stderr, which is Spark's and the machine's, and of past progress.
    """
    data = output.get("data", {"text/plain": output.get("text", "")})
    return data if output.get("name") != "stderr" and any(data.values()) else {}


def texts(notebook: Any) -> Iterator[str]:
    """Yield the lines of text that a notebook's cells gave, and the MIME types of what else they gave."""
    for number, cell in enumerate(code_cells(notebook), 1):
        for data in filter(None, map(shown, cell.outputs)):
            yield f"[{number}] {' '.join(sorted(data))}"
            if "varies" not in cell.metadata.get("tags", ()) and not any(kind.startswith("image/") for kind in data):
                yield from (f"[{number}] {line}" for line in data.get("text/plain", "").splitlines())


if __name__ == "__main__":
    main()
