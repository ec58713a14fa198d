"""Edits of a source at places of its syntax tree: all other bytes stay as they are."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass

from vispark.migrate.errors import SourceError


@dataclass(frozen=True, order=True)
class Edit:
    """Replacement of the bytes from ``start`` to ``end`` by a text."""

    start: int
    end: int
    text: str


class SourceBytes:
    """Bytes of a source, with the offsets of its syntax tree's places.

    Examples
    --------
    >>> text = SourceBytes("é = f(x)")
    >>> call = ast.parse("é = f(x)").body[0].value
    >>> text.edited([Edit(text.start(call), text.start(call) + 1, "g")])
    'é = g(x)'
    """

    def __init__(self, source: str):
        self.data = source.encode()
        self._lines = [0]
        for line in source.splitlines(keepends=True) if "\f" not in source else source.split("\n"):
            self._lines.append(self._lines[-1] + len(line.encode()) + ("\f" in source))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place: a line from 1, and a column in bytes from 0."""
        return self._lines[line - 1] + column

    def start(self, node: ast.AST) -> int:
        """Return the offset where a node begins."""
        return self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Return the offset behind a node."""
        return self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def between(self, start: int, end: int) -> str:
        """Return the text between two offsets."""
        return self.data[start:end].decode()

    def edited(self, edits: list[Edit]) -> str:
        """Return the source with edits, none of which may overlap.

        Raises
        ------
        SourceError
            If two overlap, or the result is no Python.
        """
        changed, at = b"", 0
        for edit in sorted(set(edits)):
            if edit.start < at:
                raise SourceError(f"two changes meet at byte {edit.start}, which is to be done by hand")
            changed += self.data[at:edit.start] + edit.text.encode()
            at = edit.end
        text = (changed + self.data[at:]).decode()
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise SourceError(f"the changed source is no Python at line {error.lineno}: {error.msg}") from error
        return text


def unified(before: str, after: str, name: str) -> str:
    """Return the unified diff of two texts; empty where they are the same.

    Examples
    --------
    >>> print(unified("a\\n", "b\\n", "job.py"), end="")
    --- job.py
    +++ job.py
    @@ -1 +1 @@
    -a
    +b
    """
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
