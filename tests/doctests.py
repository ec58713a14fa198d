"""The examples in docstrings and in the documentation's pages, and how they are run.

An example may use what its module has, every public name of vispark, NumPy as ``np``, and a SparkContext as ``sc``.
"""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

import gpu_worker
import vispark

ROOT = Path(__file__).resolve().parent.parent

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


#: Its import begins MPI in this process, for good: a segment of 16 MB would stay in shared memory.
_BEGINS_MPI = "gpu_worker.exchange.mpi.rank"


def modules() -> Iterator[ModuleType]:
    """Yield the modules of both packages whose sources have examples, but the one that begins MPI."""
    for path in sorted(path for package in (gpu_worker, vispark) for path in Path(package.__path__[0]).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != _BEGINS_MPI and ">>> " in path.read_text():
            yield importlib.import_module(name)


def of_docstrings(*, spark: bool) -> list[doctest.DocTest]:
    """Return the docstrings with examples that need a SparkContext, or those that need none."""
    return [test for test in _of_docstrings() if _uses_spark(test) == spark]


@functools.cache
def _of_docstrings() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [test for module in modules() for test in finder.find(module, globs=_names() | _own(module))]
    return [test for test in tests if test.examples]


def of_pages() -> list[doctest.DocTest]:
    """Return README.md and the pages below docs/, of those the ones with examples: blocks marked as ``pycon``."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [test for page in pages if page.is_file() and (test := _page(page)).examples]


def run(test: doctest.DocTest, **names: object) -> None:
    """Run one docstring's or page's examples, with more names for them to use.

    Raises
    ------
    AssertionError
        With what was expected and what came.
    """
    test.globs.update(names)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=_FLAGS)
    runner.run(test, out=output.append)
    assert runner.tries, f"{test.name} has no example"
    assert not runner.failures, "".join(output)


def _own(module: ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in getattr(module, "__all__", ())} | vars(module)


def _names() -> dict[str, object]:
    return {"np": np} | {name: getattr(vispark, name) for name in vispark.__all__}


def _page(path: Path) -> doctest.DocTest:
    text = path.read_text(encoding="utf-8")
    # Everything else becomes empty lines, so that an error's line is the page's.
    kept = [""] * (text.count("\n") + 1)
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        lines = block[1].splitlines()
        kept[first:first + len(lines)] = lines
    name = str(path.relative_to(ROOT))
    return doctest.DocTestParser().get_doctest("\n".join(kept), _names(), name, str(path), 0)


def _uses_spark(test: doctest.DocTest) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "sc"
               for example in test.examples for node in ast.walk(ast.parse(example.source)))
