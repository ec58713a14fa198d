"""Rules of words: one class for a name, the field's word for an idea, and docstrings that begin with a verb and its
object, or with a kind.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.policy import rules

#: What no summary of a function begins with: it says what the function does, as "Return the ..." or "Wait until ...".
_NO_VERB = frozenset([
    "a", "about", "all", "an", "another", "any", "as", "at", "before", "behind", "by", "each", "every", "for",
    "from", "how", "in", "into", "its", "most", "nobody", "none", "nothing", "of", "on", "one", "only", "other",
    "our", "several", "since", "some", "something", "such", "that", "the", "their", "these", "this", "those", "to",
    "two", "what", "when", "where", "whether", "which", "who", "whose", "why", "with", "within", "without"])
#: What no summary of a class or a module begins with: it says what kind of thing that is.
_NO_KIND = frozenset([
    "as", "how", "that", "way", "what", "when", "where", "whether", "which", "who", "whose", "why"])
#: Verbs that a class's or a module's summary does not begin with either: it is "Writer of ...", not "Writes ...".
_DOES = frozenset([
    "computes", "does", "gives", "has", "holds", "keeps", "makes", "puts", "replaces", "says", "sees", "sends",
    "specialises", "takes", "tells", "turns", "writes"])
#: Objects of "Return" and "Yield" that name nothing; the noun is written instead, as "the number of" for "how many".
_NO_OBJECT = frozenset(["how", "that", "those", "what", "whatever", "when", "where", "which", "who", "why"])
#: Words that once stood for an idea that has a word in the field, with that word. None is part of a name, or of text.
INSTEAD = {
    "autopsy": "exit status", "autopsies": "exit statuses", "burial": "reaping", "buried": "reaped", "desk": "context",
    "errand": "garbage collection", "errands": "garbage collection", "glimpse": "partial match",
    "glimpsed": "partially matched", "greeters": "handshake limiter",
    "keeper": "supervisor", "loan": "lease",
    "loans": "leases", "lender": "pool", "regain": "reclaim", "setback": "loss", "setbacks": "losses",
    "shipment": "invocation", "shipments": "invocations", "stranger": "unauthenticated peer",
    "strangers": "unauthenticated peers", "stopwatch": "timing", "ticket": "pending request",
    "vault": "snapshot store", "vessel": "binding", "vessels": "bindings", "visitor": "remote client",
    "visitors": "remote clients",
}
#: Words that are no part of a name, as they say too little of the thing; in text they are what they are elsewhere.
#: Names of tests are sentences.
IN_NAMES = {"deposit": "put", "landed": "complete, loaded, or arrived", "room": "the bytes of what, or the set of what",
            "rooms": "the sets of what", "strays": "speculative copies, unrecorded clusters, ...",
            "told": "warned, reported, ..."}
#: Words that no name of C++ has as a part, beside :data:`IN_NAMES`.
IN_CPP_NAMES = {"apart": "a stride, a pitch, an offset, or a difference", "tickets": "what is counted"}
#: Names that say nothing of a thing, which parameters and locals of functions do not have. What an expression binds for
#: itself may: a comprehension's element and a lambda's parameter are read within sight. Classes' attributes are
#: qualified by their object.
NAMELESS = frozenset([
    "asked", "came", "each", "found", "given", "got", "made", "mine", "ones", "said", "stuff", "thing", "things", "tmp",
    "told"])
#: Names as classes have them; constants are all in capitals.
_ALIAS = re.compile(r"_?[A-Z]\w*[a-z]")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
#: Comments and literals of C++, and its names; an apostrophe may also part the digits of a number.
_CPP = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\])'|\b[A-Za-z_]\w*""", re.DOTALL)
#: What lines of C++ end with, and those of messages do not.
_CPP_END = (";", "{", "}")
#: What a docstring refers to, as the site links it.
_REFERENCE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?([\w.]+)`")
_PROPERTIES = frozenset({"property", "cached_property", "setter"})


def classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the places of each class of some files, and of each type that a module gives a name, by that name."""
    places = defaultdict(list)
    for path, source in sources.items():
        for node in rules.nodes(source):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
        for name, line in _aliases(source):
            places[name].append(f"{path}:{line}")
    return places


def _aliases(source: str) -> Iterator[tuple[str, int]]:
    """Yield the names, as classes have them, that a module assigns; type variables are each function's own."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if isinstance(node.value, ast.Call) and rules.last_name(node.value.func) in ("TypeVar", "ParamSpec"):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and _ALIAS.match(target.id):
                yield target.id, node.lineno


def strange(text: str, path: str) -> Iterator[str]:
    """Yield the places of words of :data:`INSTEAD`, alone or as parts of names, with the word to write instead."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in _WORD.findall(line):
            if word.lower() in INSTEAD:
                yield f"{path}:{number} has {word!r}: write {INSTEAD[word.lower()]!r}"


def strange_names(source: str, path: str) -> Iterator[str]:
    """Yield the places of names that have a word of :data:`IN_NAMES` as a part."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not token.string.startswith("test_"):
            for word in _WORD.findall(token.string):
                if word.lower() in IN_NAMES:
                    yield f"{path}:{token.start[0]} is called {token.string!r}: name {IN_NAMES[word.lower()]!r}"


def strange_cpp_names(source: str, path: str, line: int = 1) -> Iterator[str]:
    """Yield the places of C++ names that say nothing, as :data:`NAMELESS`, or have a word of :data:`IN_NAMES`,
    :data:`IN_CPP_NAMES` or :data:`INSTEAD` as a part; the source begins at a ``line`` of its file.
    """
    for match in _CPP.finditer(source):
        name = match[0]
        if not name[0].isidentifier():
            continue
        parts = {word.lower() for word in _WORD.findall(name)}
        instead = [IN_NAMES.get(word) or IN_CPP_NAMES.get(word) or INSTEAD.get(word) for word in sorted(parts)]
        advice = ["name the thing"] if name.strip("_").lower() in NAMELESS else []
        advice += [f"name {word!r}" for word in instead if word]
        if advice:
            number = line + source.count("\n", 0, match.start())
            yield f"{path}:{number} is called {name!r}: {'; '.join(advice)}"


def strange_names_in_templates(source: str, path: str) -> Iterator[str]:
    """Yield the places of such names in a Python file's literals that are C++, as their last line ends as lines of it
    do; what an f-string inserts may be any name.
    """
    inside: set[ast.AST] = set()
    for node in rules.nodes(source):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
        elif isinstance(node, ast.Expr):
            inside.add(node.value)      # a docstring
    for node in rules.nodes(source):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "_0_" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            text = node.value
        if text.rstrip().endswith(_CPP_END):
            yield from strange_cpp_names(text, path, node.lineno)


def nameless(source: str, path: str) -> Iterator[str]:
    """Yield the places where a function's parameter or local has a name of :data:`NAMELESS`."""
    for function in rules.nodes(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, line in _bound(function):
                if name.strip("_") in NAMELESS:
                    yield f"{path}:{line} binds {name!r} in {function.name}(): name the thing"


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
    """Yield the names that parameters and statements of a function bind, with lines; inner functions have their own."""
    todo: list[ast.AST] = [function.args, *function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno
        todo += [below for below in ast.iter_child_nodes(node) if not isinstance(below, ast.comprehension)]


def openings(source: str, path: str) -> Iterator[str]:
    """Yield the places of docstrings that do not begin with a verb and its object, or with a kind."""
    for node in rules.nodes(source):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        text = (ast.get_docstring(node) or "").split()
        if not text or _is_property(node):
            continue
        word = text[0].strip(",;:.").lower()
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and word in ("return", "yield") and _names_nothing(text[1:3]):
            yield f"{path}:{node.lineno} begins with {' '.join(text[:3])!r}"
        elif word in (_NO_VERB if is_function else _NO_KIND | _DOES) or (is_function and word.startswith("``")):
            yield f"{path}:{getattr(node, 'lineno', 1)} begins with {text[0]!r}"
        elif is_function and not _may_be_imperative(text[0].strip(",;:.")):
            yield f"{path}:{node.lineno} begins with {text[0]!r}, which is no imperative"


def dangling(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the places of references in docstrings to names that nothing has any more."""
    names = set(sys.stdlib_module_names)
    for path, source in sources.items():
        names.update(path.removesuffix(".py").split("/"))
        for node in rules.nodes(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    for path, source in sources.items():
        for number, line in enumerate(source.splitlines(), 1):
            for name in _REFERENCE.findall(line):
                top, _, rest = name.partition(".")
                is_ours = not rest or top in ("vispark", "gpu_worker") or top.strip("_")[:1].isupper()
                if is_ours and name.rpartition(".")[2] not in names:
                    yield f"{path}:{number} refers to {name!r}, which is nowhere"


def _may_be_imperative(word: str) -> bool:
    """Return whether a word may be a verb's imperative: no plural, no "Writes", no name in capitals, no symbol."""
    return word.isalpha() and not word.isupper() and (not word.endswith("s") or word.endswith("ss"))


def _names_nothing(words: list[str]) -> bool:
    return words[:1] != [] and (words[0].strip(",;:.") in _NO_OBJECT or words == ["the", "same"])


def _is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", ())
    return any(getattr(each, "id", getattr(each, "attr", "")) in _PROPERTIES for each in decorators)
