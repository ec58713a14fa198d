"""Runs the examples and writes their pages: ``python -m docs.gallery [NAME...]``, in the repository's root.

A page has the program, what it printed and what it drew; tests/policy/test_docs.py looks that each example has one, and
tests/system/test_examples.py and test_ml_examples.py run the examples in CI.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "examples"


@dataclass(frozen=True)
class Example:
    """A program of examples/, the arguments it is run with, and the picture it draws."""

    name: str
    title: str
    arguments: tuple[str, ...] = ()
    picture: str = ""

    @property
    def page(self) -> str:
        """The name of its page, without an ending."""
        return self.name.replace("/", "_")


#: A program for each family of estimators, and its title.
FAMILIES = {"classification": "Classification", "regression": "Regression", "clustering": "Clustering",
            "decomposition": "Decomposition", "recommendation": "Recommendation", "features": "Features",
            "similarity": "Similarity", "tuning": "Tuning", "machines": "Factorization machines",
            "consensus": "Consensus"}
GALLERY = (
    Example("kmeans", "K-means, ported", picture="kmeans.png"),
    Example("logistic_regression", "Logistic regression, ported", picture="logistic_regression.png"),
    Example("logistic_regression_lowlevel", "Logistic regression with CUDA kernels"),
    Example("shared_memory_kernel", "A kernel with shared memory"),
    Example("heat", "The heat equation in three dimensions", ("--cells", "63"), "heat.png"),
    Example("navier_stokes", "Flow in a cavity", ("--cells", "64"), "navier_stokes.png"),
    *(Example(f"ml/{name}", title, picture=f"{name}.png") for name, title in FAMILIES.items()),
)


def main(*names: str) -> None:
    """Run each example, or those that are named, and write its page."""
    for example in GALLERY:
        if names and example.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="vg-") as folder:
            printed = run(example, Path(folder))
            if example.picture:
                (PAGES / f"{example.page}.png").write_bytes(Path(folder, example.picture).read_bytes())
        (PAGES / f"{example.page}.md").write_text(page(example, printed), encoding="utf-8")
        print(f"{example.name}: {len(printed.splitlines())} lines printed")


def run(example: Example, folder: Path) -> str:
    """Run an example in a folder and return what it printed."""
    environment = os.environ | {
        "VISPARK_RUNTIME_DIR": str(folder / "run"), "PYSPARK_PYTHON": sys.executable, "COLUMNS": "100",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.showConsoleProgress=false pyspark-shell"}
    ended = subprocess.run([sys.executable, ROOT / "examples" / f"{example.name}.py", *example.arguments], cwd=folder,
                           env=environment, stdout=subprocess.PIPE, text=True, check=True)
    subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=environment, stdout=subprocess.DEVNULL, check=True)
    return ended.stdout


def page(example: Example, printed: str) -> str:
    """Return an example's page in Markdown."""
    source = (ROOT / "examples" / f"{example.name}.py").read_text(encoding="utf-8")
    summary = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
    command = " ".join(["python", f"examples/{example.name}.py", *example.arguments])
    picture = f"![what it draws]({example.page}.png)\n\n" if example.picture else ""
    return (f"# {example.title}\n\n{summary}\n\n{picture}`{command}` prints, on two cores without a GPU:\n\n"
            f"```text\n{printed.rstrip()}\n```\n\n"
            f"```{{literalinclude}} ../../examples/{example.name}.py\n:language: python\n```\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
