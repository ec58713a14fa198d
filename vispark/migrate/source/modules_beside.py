"""Modules of the user's that a script imports from beside it: their own loops, and their functions that loops call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vispark.migrate.errors import SourceError
from vispark.migrate.source.program import SourceProgram


def modules_beside(program: SourceProgram, seen: set[Path] | None = None) -> Iterator[SourceProgram]:
    """Yield the modules that a script imports from its own folder, and those that these import from theirs.

    One that is no Python is left out: the script would not run.
    """
    seen = {Path(program.file).resolve()} if seen is None else seen
    for name in sorted(set(_imported(program).values())):
        path = (Path(program.file).parent / name.replace(".", "/")).with_suffix(".py")
        if path.is_file() and path.resolve() not in seen:
            seen.add(path.resolve())
            with suppress(SourceError):
                module = SourceProgram.read(path)
                yield module
                yield from modules_beside(module, seen)


def called_in_loops(program: SourceProgram, modules: list[SourceProgram]) -> Iterator[str]:
    """Yield a line for each call in a loop of a function with operations of RDDs that another module has.

    Examples
    --------
    >>> script = SourceProgram("job.py", "from steps import step\\nfor i in x:\\n    w = step(data, w)\\n")
    >>> steps = SourceProgram("steps.py", "def step(data, w):\\n    return data.mapValues(f).collectAsMap()\\n")
    >>> list(called_in_loops(script, [steps]))
    ['job.py, line 3: step of steps.py has operations of RDDs, lines 2; bring them into the loop of the script, where \
they are looked at with it']
    """
    names = _imported(program)
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.Call) or not any(isinstance(each, ast.For | ast.While) for each in program.around(
                node)):
            continue
        module, name = _target(node.func, names)
        for beside in modules:
            if Path(beside.file).stem == module.rpartition(".")[2]:
                function = beside.functions.get(name)
                lines = sorted({call.line for call in beside.calls if call.scope is function})
                if function is not None and lines:
                    yield (f"{Path(program.file).name}, line {node.lineno}: {name} of {Path(beside.file).name} has "
                           f"operations of RDDs, lines {', '.join(map(str, lines))}; bring them into the loop of the "
                           "script, where they are looked at with it")


def _imported(program: SourceProgram) -> dict[str, str]:
    """Return the modules by the names under which a source has them or what it takes of them."""
    imported: dict[str, str] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import):
            imported |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {each.asname or each.name: node.module for each in node.names}
    return imported


def _target(function: ast.expr, names: dict[str, str]) -> tuple[str, str]:
    """Return the module and the name of the function that is called, as far as the imports say."""
    if isinstance(function, ast.Name):
        return names.get(function.id, ""), function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return names.get(function.value.id, ""), function.attr
    return "", ""
