"""MIME bundles of objects that notebooks show: HTML, and a text that says all that the HTML says."""

from __future__ import annotations

import html
from collections.abc import Container, Iterable
from typing import Any

#: Front ends put cells to the right, and the lines of a text into a proportional font, unless these are said.
_LEFT, _RIGHT = ' style="text-align:left"', ' style="text-align:right"'
_LINES = '<pre style="font-family:monospace;white-space:pre;overflow-x:auto;font-size:90%">'


def table(title: str, rows: Iterable[tuple[str, ...]], numbers: Container[int] = ()) -> str:
    """Return an HTML table with a row for each (label, text, ...); every text is escaped.

    Parameters
    ----------
    title : str
        Its caption.
    rows : iterable of tuple of str
        The texts of each row, of which the first is its heading.
    numbers : container of int
        The columns that are numbers, which stand to the right; the others stand to the left.

    Examples
    --------
    >>> print(table("a<b>", [("rows", "3 & 4")]).replace(' style="text-align:left"', ""))
    <table><caption>a&lt;b&gt;</caption><tr><th>rows</th><td>3 &amp; 4</td></tr></table>
    """
    def cell(name: str, column: int, text: str) -> str:
        return f"<{name}{_RIGHT if column in numbers else _LEFT}>{html.escape(text)}</{name}>"

    lines = "".join(f"<tr>{cell('th', 0, row[0])}{''.join(cell('td', *each) for each in enumerate(row[1:], 1))}</tr>"
                    for row in rows)
    return f"<table><caption{_LEFT}>{html.escape(title)}</caption>{lines}</table>"


def sections(text: str) -> str:
    """Return the HTML of a text whose sections begin with lines such as ``== Plan ==``; each can be folded.

    Examples
    --------
    >>> sections("== Plan ==\\nvmap x < 1")
    '<details open><summary>Plan</summary><pre style="font-family:monospace;...">vmap x &lt; 1</pre></details>'
    """
    parts: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if line.startswith("== ") and line.endswith(" =="):
            parts.append((line.removeprefix("== ").removesuffix(" =="), []))
        elif parts:
            parts[-1][1].append(line)
        else:
            parts.append(("", [line]))
    return "".join(f"<details open><summary>{html.escape(title)}</summary>{_pre(lines)}</details>" if title
                   else _pre(lines) for title, lines in parts)


def _pre(lines: list[str]) -> str:
    return f"{_LINES}{html.escape(chr(10).join(lines))}</pre>"


def bundle(text: str, markup: str, include: Container[str] | None = None,
           exclude: Container[str] | None = None) -> dict[str, Any]:
    """Return the data by MIME type for ``_repr_mimebundle_``, of the types that are asked for.

    Examples
    --------
    >>> bundle("3 rows", "<b>3 rows</b>", exclude={"text/html"})
    {'text/plain': '3 rows'}
    """
    data = {"text/plain": text, "text/html": markup}
    return {kind: value for kind, value in data.items()
            if (include is None or kind in include) and (exclude is None or kind not in exclude)}


class Explanation(str):
    """Text of a plan, as ``explain()`` prints it: a string, which prompts and notebooks show as lines.

    Examples
    --------
    >>> Explanation("== Plan ==\\nsend")._repr_mimebundle_()["text/html"]
    '<details open><summary>Plan</summary><pre ...>send</pre></details>'
    """

    __slots__ = ()

    def _repr_mimebundle_(self, include: Container[str] | None = None,
                          exclude: Container[str] | None = None) -> dict[str, Any]:
        """Return the text, and the same with a part of its own for each section; no job is run."""
        return bundle(str(self), sections(self), include, exclude)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Write the text to IPython's printer, which would show a string in quotes otherwise."""
        printer.text(str(self))
