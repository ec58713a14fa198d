"""PySpark's own examples of ``pyspark.ml`` as they are, beside ``python -m vispark.ml``.

Each program of the installed wheel that imports a name of vispark's is run both ways, on the wheel's data, and what it
prints is compared: words, and numbers to ``--tolerance``, but for the width of columns and what objects are called.
Seeds that a program leaves open are the same both ways: Python's ``random``, from which ``randomSplit`` draws its own,
and hashes of names.

==============  ======================================================================================================
equal           the same words and numbers
refused         both end in one error, and print the same before it
explained       another output, for a reason that ``EXPLAINED`` names
differs         another output, or one of them does not end
not applicable  the program imports no name of vispark's
==============  ======================================================================================================

Fits that were left to MLlib stand beside the outcome. The exit status is 0 where nothing differs, and no program of
``EXPLAINED`` is equal.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pyspark

import tests.conftest  # It sets the environment before Spark is started.
from tests.system.worker_tools import stop_worker
from vispark.ml.installation import ESTIMATORS, EVALUATORS

__all__ = ["main", "tests"]

WHEEL = Path(pyspark.__file__).parent
EXAMPLES = WHEEL / "examples/src/main/python/ml"

#: Programs that print something else, and why.
EXPLAINED: dict[str, str] = {
    "als_example": "`show` takes 20 of 30 users' recommendations, in the order of the factors' partitions; the first "
                   "line, and what both show, agree as float32 does",
    "pca_example": "three rows span two dimensions: any vector of the other three is a third component",
    "word2vec_example": "all words but few occur once: the tree goes by the order in which Spark's hashes give them",
}

#: A number, also one whose end a table leaves out.
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?:\.\.\.)?")
#: Lines of tables, and the random part of the names that Spark gives to objects.
UNTOLD = re.compile(r"^[+-]+$|(?<=_)[0-9a-f]{12}\b", re.MULTILINE)
#: The last line of a traceback.
TRACEBACK = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)


@dataclass(frozen=True)
class PrintedOutput:
    """Text that a program printed; the status is None where it did not end."""

    status: int | None
    text: str
    errors: str

    @property
    def left(self) -> list[str]:
        """The fits that were left to MLlib, each with its reason."""
        return [line.partition("FallbackWarning: ")[2] for line in self.errors.splitlines()
                if "FallbackWarning: " in line]

    @property
    def error(self) -> str:
        """The error that ended the program, which the JVM may have others behind."""
        return next(iter(TRACEBACK.findall(self.errors)[::-1]), "no error")

    def write(self, path: Path) -> None:
        """Write both to files beside each other."""
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{path}.txt").write_text(self.text)
        Path(f"{path}.log").write_text(self.errors)


def replaced(program: str) -> set[str]:
    """Return the names that a program imports, and that are vispark's under ``python -m vispark.ml``."""
    imported = {name.name for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)
                for name in node.names}
    return imported & {each.__name__ for each in (*ESTIMATORS, *EVALUATORS)}


def difference(ours: str, plain: str, tolerance: float) -> tuple[str, int, float]:
    """Compare what was printed.

    Returns
    -------
    difference : str
        Empty where both are equal.
    count : int
        How many numbers were compared.
    apart : float
        The greatest difference, as a part of the greater number. Numbers below a fiftieth of the tolerance are as good
        as 0: NumPy prints eight places of decimals.
    """
    ours, plain = UNTOLD.sub("", ours), UNTOLD.sub("", plain)
    numbers = [[float(number.removesuffix("...")) for number in NUMBER.findall(text)] for text in (ours, plain)]
    count = len(numbers[1])
    if len(set(map(len, numbers))) > 1:
        return f"{len(numbers[0])} numbers, plain {count}", count, math.inf
    apart = [abs(mine - other) / max(abs(mine), abs(other), tolerance / 50)
             for mine, other in zip(*numbers, strict=True)]
    over = sum(each > tolerance and abs(mine - other) > tolerance / 50
               for each, mine, other in zip(apart, *numbers, strict=True))
    worst = max(apart, default=0.0)
    if over:
        return f"{over} of {count} numbers differ, at most by {worst:.1e}", count, worst
    words = ["".join(NUMBER.sub("#", text).split()) for text in (ours, plain)]
    return "" if words[0] == words[1] else "other words", count, worst


def judged(name: str, ours: PrintedOutput, plain: PrintedOutput, tolerance: float) -> tuple[str, str]:
    """Return the outcome of a program, and what is to be said of it."""
    if None in (ours.status, plain.status):
        return "differs", " and ".join(f"{way} did not end" for way, each in (("vispark's", ours), ("plain", plain))
                                       if each.status is None)
    if ours.status != plain.status:
        broken = ours if ours.status else plain
        return "differs", f"exit status {ours.status}, plain {plain.status}: {broken.error}"
    if ours.error != plain.error:
        return "differs", f"{ours.error}, plain {plain.error}"
    text, count, apart = difference(ours.text, plain.text, tolerance)
    if text:
        return ("explained", f"{text}: {EXPLAINED[name]}") if name in EXPLAINED else ("differs", text)
    if ours.status:
        return "refused", ours.error
    return "equal", f"{count} numbers, {apart:.1e} apart"


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Yield a folder in which programs find the wheel's data, and whose Python draws the same numbers each time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").symlink_to(WHEEL / "data")
        (folder / "python").mkdir()
        (folder / "python/sitecustomize.py").write_text("import random\nrandom.seed(0)\n")
        yield folder


def run(program: Path, folder: Path, device: str, limit: float, *, plain: bool) -> PrintedOutput:
    """Run a program in a folder."""
    options = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.vispark.device": device}
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder / "python"), os.environ["PYTHONPATH"]]), "PYTHONHASHSEED": "0",
        "PYSPARK_SUBMIT_ARGS": " ".join(f"--conf {key}={value}" for key, value in options.items()) + " pyspark-shell"}
    command = [sys.executable, *([] if plain else ["-m", "vispark.ml"]), str(program)]
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, timeout=limit, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return PrintedOutput(None, "", "")
    return PrintedOutput(ended.returncode, ended.stdout, ended.stderr)


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--tolerance", default=1e-6, help="by which numbers may differ, as a part of them")
@click.option("--limit", default=600.0, help="seconds for a program")
@click.option("--device", default="host", help="device of the fits")
@click.option("--keep", type=click.Path(path_type=Path), help="folder that gets what programs print, both ways")
@click.option("--out", type=click.Path(path_type=Path), help="file that gets what is printed, too")
def main(names: tuple[str, ...], tolerance: float, limit: float, device: str, keep: Path | None,
         out: Path | None) -> None:
    programs = [EXAMPLES / f"{name}.py" for name in names] or sorted(EXAMPLES.glob("*.py"))
    lines = [f"PySpark {pyspark.__version__}, device {device}, numbers to {tolerance:g}", ""]
    print("\n".join(lines), flush=True)
    outcomes: Counter[str] = Counter()
    stale = []
    with place() as folder:
        for program in programs:
            name, left = program.stem, []
            if not replaced(program.read_text()):
                outcome, text = "not applicable", ""
            else:
                plain, ours = (run(program, folder, device, limit, plain=way) for way in (True, False))
                outcome, text = judged(name, ours, plain, tolerance)
                left = ours.left
                if keep:
                    plain.write(keep / f"{name}.plain")
                    ours.write(keep / f"{name}.vispark")
            outcomes[outcome] += 1
            if name in EXPLAINED and outcome == "equal":
                stale.append(name)
            lines += [f"{name:48}{outcome:16}{text}".rstrip(), *(f"    left to MLlib: {each}" for each in left)]
            print("\n".join(lines[-1 - len(left):]), flush=True)
            if out:
                out.write_text("\n".join(lines) + "\n")
        stop_worker(Path(os.environ["VISPARK_RUNTIME_DIR"]))
    lines += ["", ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
              *(f"no longer different: {name}" for name in stale)]
    print("\n".join(lines[-2 - len(stale):]))
    if out:
        out.write_text("\n".join(lines) + "\n")
    sys.exit(bool(outcomes["differs"] or stale))


if __name__ == "__main__":
    main()
