"""MIME bundles of objects that notebooks show: HTML, and a text that says all that the HTML says."""

from __future__ import annotations

import html
from collections.abc import Container, Iterable
from typing import Any


def table(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table with a row for each (label, text); every text is escaped.

    Examples
    --------
    >>> table("a<b>", [("rows", "3 & 4")])
    '<table><caption>a&lt;b&gt;</caption><tr><th>rows</th><td>3 &amp; 4</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>" for label, text in facts)
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def sections(text: str) -> str:
    """Return the HTML of a text whose sections begin with lines such as ``== Plan ==``; each can be folded.

    Examples
    --------
    >>> print(sections("== Plan ==\\nvmap x < 1"))
    <details open><summary>Plan</summary><pre>vmap x &lt; 1</pre></details>
    """
    found: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if line.startswith("== ") and line.endswith(" =="):
            found.append((line.removeprefix("== ").removesuffix(" =="), []))
        elif found:
            found[-1][1].append(line)
        else:
            found.append(("", [line]))
    return "".join(f"<details open><summary>{html.escape(title)}</summary><pre>{html.escape(chr(10).join(lines))}</pre>"
                   "</details>" if title else f"<pre>{html.escape(chr(10).join(lines))}</pre>"
                   for title, lines in found)


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
    '<details open><summary>Plan</summary><pre>send</pre></details>'
    """

    __slots__ = ()

    def _repr_mimebundle_(self, include: Container[str] | None = None,
                          exclude: Container[str] | None = None) -> dict[str, Any]:
        """Return the text, and the same with a part of its own for each section; no job is run."""
        return bundle(str(self), sections(self), include, exclude)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Write the text to IPython's printer, which would show a string in quotes otherwise."""
        printer.text(str(self))
