"""Notebooks as scripts: cells of code in their order, and a changed script as a notebook again.

Magics and shell commands, which are no Python, become comments. Each cell begins with a comment that has its number, by
which a changed script is cut into cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vispark.migrate.errors import SourceError

SUFFIX = ".ipynb"
_CELL = "# %% cell "
_MAGIC = "# IPython: "
_HEADER = re.compile(rf"^{_CELL}(\d+)$", re.MULTILINE)


def script_of(path: Path) -> str:
    """Return a notebook's cells of code as a script.

    Parameters
    ----------
    path : Path
        A notebook of format 4, of Python.

    Raises
    ------
    SourceError
        If it cannot be read, or is none of these.
    """
    document = _read(path)
    language = str(document.get("metadata", {}).get("language_info", {}).get("name", "python"))
    if language != "python":
        raise SourceError(f"{path} is a notebook of {language}, not of Python")
    parts = [f"{_CELL}{number}\n{_as_python(text)}" for number, text in _code(document)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def is_notebook(text: str) -> bool:
    """Return whether a text is that of a notebook's file.

    Examples
    --------
    >>> is_notebook('{"cells": [], "nbformat": 4}'), is_notebook("{'cells': []}")
    (True, False)
    """
    if not text.lstrip().startswith("{"):
        return False
    try:
        return "nbformat" in json.loads(text)
    except ValueError:
        return False


def cell_lines(script: str) -> dict[int, int]:
    """Return the first line of each cell of a script that :func:`script_of` gave, by the cell's number.

    Examples
    --------
    >>> cell_lines("# %% cell 1\\nx = 1\\n\\n# %% cell 4\\ny = 2\\n")
    {1: 2, 4: 5}
    """
    return {int(each[1]): script.count("\n", 0, each.start()) + 2 for each in _HEADER.finditer(script)}


def write_script(path: Path, folder: Path) -> Path:
    """Write a notebook as a script into a folder, and return the script's path.

    Raises
    ------
    SourceError
        If the notebook cannot be read, or is none of Python's.
    """
    script = folder / f"{path.stem}.py"
    script.write_text(script_of(path), encoding="utf-8")
    return script


def notebook_with(path: Path, script: str) -> str:
    """Return a notebook, as JSON, whose cells are those of a changed script; outputs of cells that change go.

    Parameters
    ----------
    path : Path
        The notebook that the script was made of.
    script : str
        The changed script, with the comments that begin its cells.

    Raises
    ------
    SourceError
        If the script has other cells than the notebook.
    """
    document = _read(path)
    pieces = _HEADER.split(script)
    # What is before the first cell, as an import, goes into it.
    texts = {int(number): text.strip("\n") for number, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    numbers = [number for number, _ in _code(document)]
    if list(texts) != numbers:
        raise SourceError(f"{path} has the cells {numbers}, and the script those of {list(texts)}")
    if numbers and pieces[0].strip():
        texts[numbers[0]] = pieces[0].strip("\n") + "\n" + texts[numbers[0]]
    for number in numbers:
        cell = document["cells"][number - 1]
        before, after = _text(cell), _as_notebook(texts[number])
        if before.rstrip("\n") != after.rstrip("\n"):
            cell |= {"source": after.splitlines(keepends=True), "outputs": [], "execution_count": None}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is no notebook: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list) or not all(
            isinstance(cell, dict) for cell in document["cells"]):
        raise SourceError(f"{path} is no notebook of format 4: it has no list of cells")
    return document


def _code(document: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the cells of code with their numbers, from 1 among all cells."""
    for number, cell in enumerate(document["cells"], 1):
        if cell.get("cell_type") == "code":
            yield number, _text(cell)


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, source))


def _as_python(text: str) -> str:
    """Return a cell's text with its magics as comments; all of it where it begins with a magic of the cell.

    Examples
    --------
    >>> print(_as_python("%matplotlib inline\\nx = 1\\n  !ls"))
    # IPython: %matplotlib inline
    x = 1
      # IPython: !ls
    """
    lines = text.split("\n")
    if text.lstrip().startswith("%%"):
        return "\n".join(_MAGIC + line for line in lines)
    return "\n".join(re.sub(r"^(\s*)([%!].*|\?.*|\w[\w.]*\?\??)$", rf"\g<1>{_MAGIC}\g<2>", line) for line in lines)


def _as_notebook(text: str) -> str:
    return re.sub(rf"^(\s*){re.escape(_MAGIC)}", r"\g<1>", text, flags=re.MULTILINE)
