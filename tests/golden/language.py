"""The tables of docs/guide/translator.md, made from the cases that cover the language and from the library's lists."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections import Counter
from pathlib import Path

from tests.golden import (  # noqa: F401 - they fill CASES
    cases_calls,
    cases_control,
    cases_idioms,
    cases_lists,
    cases_numbers,
    cases_numpy,
    cases_random,
    cases_rows,
    cases_special,
)
from tests.golden.case import CASES, GoldenCase
from vispark.translate.frontend.reader import trace
from vispark.translate.language import library, registry, signatures

_DTYPES = re.compile(r"\b(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64))\b")
#: What may stand behind a function, "" at the end of the text.
_BEHIND = ("", ",", ")", "]", "}", " ", "\n")
_HEAD = "| construct | for example | becomes | cases |\n|---|---|---|---|"
_SECTIONS = {"Numbers": "cases_numbers", "Branches, loops, locals, calls, results": "cases_control",
             "Rows and arrays": "cases_rows", "Tuples, lists, arrays made of others": "cases_lists",
             "Arguments of functions": "cases_calls", "Idioms of NumPy and Python": "cases_idioms",
             "More functions of NumPy and math": "cases_numpy", "Random numbers": "cases_random",
             "Functions of scipy.special": "cases_special"}


def tables() -> str:
    """Everything that is generated, as Markdown."""
    parts = [_functions(), _arguments()]
    by_module: dict[str, list[GoldenCase]] = {module: [] for module in _SECTIONS.values()}
    for case in CASES:
        by_module.setdefault(_module(case), []).append(case)
    for title, module in _SECTIONS.items():
        cases = by_module[module]
        parts.append(f"### {title}\n\n{_HEAD}\n{_rows(cases)}")
    return "\n\n".join(parts) + "\n"


def _module(case: GoldenCase) -> str:
    return Path(trace(case.fn, case.args).definition.text.file).stem


def _rows(cases: list[GoldenCase]) -> str:
    groups: dict[str, list[GoldenCase]] = {}
    forms = Counter(map(_form, cases))
    for case in cases:
        # A construct that is there of three types or more is shown once.
        name = _form(case) if _form(case) != case.construct and forms[_form(case)] > 2 else case.construct
        groups.setdefault(name, []).append(case)
    lines = []
    for name, members in groups.items():
        shown = next((case for case in members if case.golden), members[0])
        golden = f"[{shown.golden}.cu](../../tests/golden/{shown.golden}.cu)" if shown.golden else ""
        lines.append(f"| {_cell(name)} | {_example(shown)} | {golden} | {len(members)} |")
    return "\n".join(lines)


def _form(case: GoldenCase) -> str:
    """Return a construct's name with its first dtype left open."""
    return _DTYPES.sub("T", case.construct, count=1)


def _example(case: GoldenCase) -> str:
    """Return the function's body, on one line."""
    text = trace(case.fn, case.args).definition.text
    source = textwrap.dedent("\n".join(text.lines))
    tree = None
    for start in range(len(source)):
        if source.startswith(("lambda", "def "), start):
            tree = _parsed(source[start:])
            if tree is not None:
                break
    if isinstance(tree, ast.Lambda):
        return f"`{_cell(ast.unparse(tree.body))}`"
    body = ast.unparse(tree.body) if tree is not None else source
    return f"<code>{_cell(body).replace('<', '&lt;').replace(chr(10), '<br>').replace('    ', '&emsp;')}</code>"


def _parsed(text: str) -> ast.Lambda | ast.FunctionDef | None:
    """Return the lambda or function at a text's start, whatever follows it."""
    for end in range(len(text), 0, -1):
        if text[end:end + 1] not in _BEHIND:
            continue
        try:
            tree = ast.parse(text[:end])
        except SyntaxError:
            continue
        first = tree.body[0] if tree.body else None
        if isinstance(first, ast.FunctionDef):
            return first
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Lambda):
            return first.value
    return None


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _arguments() -> str:
    """Return a table of each function with more than what it is of: what is taken and what is refused."""
    lines = ["### Parameters", "", "A parameter that is not taken is refused where `vmap` is called, by its name.", "",
             "| function | takes | refuses |", "|---|---|---|"]
    single = [name for name, one in registry.functions().items() if not one.family]
    for name in sorted(single, key=lambda name: name.rpartition(".")[::-1]):
        signature, refused = signatures.signature(name)
        taken = [str(one) if str(one)[0] == "*" else one.name for one in signature.parameters.values()
                 if one.name not in refused]
        if len(taken) > 1 or refused:
            shown = signatures.shown(name) if name not in registry.methods().values() or "." in name else f".{name}()"
            lines.append(f"| `{shown}` | {', '.join(f'`{one}`' for one in taken)} | "
                         f"{', '.join(f'`{one}`' for one in signature.parameters if one in refused)} |")
    return "\n".join(lines)


def _functions() -> str:
    def listed(module: str, *others: str, family: str = "") -> str:
        return ", ".join(f"`{name}`" for name in sorted([*others, *_short(module, family)]))
    linalg = [f"linalg.{name}" for name in _short("numpy.linalg")]
    return "\n".join([
        "### Functions", "", "| from | functions |", "|---|---|", f"| Python | {listed('', )} |",
        f"| `math` | {listed('math')}; constants such as `math.pi` |",
        "| `functools` | `reduce`; `partial` and `cache` around a function |",
        f"| `operator` | {listed('operator', family='operator')} |",
        f"| `numpy`, ufuncs | {listed('numpy', family='ufunc')} |",
        f"| `numpy` | {listed('numpy', 'amax', 'amin', *linalg)} |",
        f"| `scipy.special`, where SciPy is installed | "
        f"{', '.join(f'`{name}`' for name in sorted([*_short('scipy.special'), *_short('scipy.special', 'ufunc')]))} |",
        "| `numpy.lib.stride_tricks` | `sliding_window_view` |",
        f"| `numpy`, types | {', '.join(f'`{name}`' for name in sorted(library.TYPES))} |"])


def _short(module: str, family: str = "") -> list[str]:
    """Return the names of a module's functions, without those that only methods have."""
    return [one.name.rpartition(".")[2] for one in registry.functions().values() if one.family == family
            and one.name.rpartition(".")[0] == module and (module or hasattr(builtins, one.name))]
