"""Rules of words: one class for a name, and docstrings that begin with a verb or a kind."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.policy import rules

#: What no summary of a function begins with: it says what the function does, as "Return the ..." or "Wait until ...".
_NO_VERB = frozenset([
    "a", "about", "all", "an", "another", "as", "at", "before", "by", "each", "for", "from", "how", "in", "into",
    "its", "most", "nobody", "none", "nothing", "of", "on", "one", "only", "other", "several", "some", "something",
    "such", "that", "the", "their", "these", "this", "those", "to", "two", "what", "when", "where", "whether",
    "which", "who", "whose", "why", "with", "within", "without"])
#: What no summary of a class or a module begins with: it says what kind of thing that is.
_NO_KIND = frozenset([
    "as", "how", "that", "what", "when", "where", "whether", "which", "who", "whose", "why"])
_PROPERTIES = frozenset({"property", "cached_property", "setter"})


def classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the places of each class of some files, by its name."""
    found = defaultdict(list)
    for path, source in sources.items():
        for node in rules.nodes(source):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path}:{node.lineno}")
    return found


def openings(source: str, path: str) -> Iterator[str]:
    """Yield the places of docstrings that begin with a word that is neither a verb nor a kind."""
    for node in rules.nodes(source):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        text = (ast.get_docstring(node) or "").split()
        if not text or _is_property(node):
            continue
        word = text[0].strip(",;:.").lower()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if word in (_NO_VERB if is_function else _NO_KIND) or (is_function and word.startswith("``")):
            yield f"{path}:{getattr(node, 'lineno', 1)} begins with {text[0]!r}"


def _is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", ())
    return any(getattr(each, "id", getattr(each, "attr", "")) in _PROPERTIES for each in decorators)
