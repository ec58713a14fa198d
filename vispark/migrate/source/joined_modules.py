"""A script and the modules beside it as one source, so that a loop is looked at with the functions that it calls."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from vispark.migrate.source.edits import Edit, SourceBytes
from vispark.migrate.source.modules_beside import modules_beside
from vispark.migrate.source.program import SourcePart, SourceProgram


class JoinedProgram(SourceProgram):
    """Script whose modules stand before it, as one source with the places of its files.

    Parameters
    ----------
    script : SourceProgram
    modules : sequence of SourceProgram
        Modules of its folder, whose functions have names of their own.

    Examples
    --------
    >>> script = SourceProgram("job.py", "from steps import step\\nfor i in x:\\n    w = step(sc.parallelize(a), w)\\n")
    >>> steps = SourceProgram("steps.py", "def step(data, w):\\n    return data.map(f).sum()\\n")
    >>> found = JoinedProgram(script, [steps])
    >>> [(found.where(call.line), call.method) for calls in found.loops().values() for call in calls]
    [('line 2 of steps.py', 'map'), ('line 2 of steps.py', 'sum'), ('line 3', 'parallelize')]
    """

    def __init__(self, script: SourceProgram, modules: Iterable[SourceProgram]):
        text, parts = "", list[SourcePart]()
        for program in (*modules, script):
            parts.append(SourcePart(program.file, program.source, text.count("\n")))
            text += program.source if program.source.endswith("\n") or program is script else program.source + "\n"
        self._modules = {Path(each.file).stem for each in modules}
        self._names = {name: taken for each in (*modules, script) for name, taken in _renamed(each)}
        super().__init__(script.file, text)
        self.parts = tuple(parts)

    def called(self, node: ast.AST) -> ast.FunctionDef | None:
        """Return the function of one of the files that a call is of, as ``step(...)`` or ``steps.step(...)``."""
        if not isinstance(node, ast.Call):
            return None
        match node.func:
            case ast.Name(id=name):
                return self.functions.get(self._names.get(name, name))
            case ast.Attribute(value=ast.Name(id=of), attr=name) if self._names.get(of, of) in self._modules:
                return self.functions.get(name)
        return None

    def located(self, line: int) -> tuple[str, int]:
        """Return the file of a line, and its number there."""
        part = next(each for each in reversed(self.parts) if line > each.first)
        return part.file, line - part.first

    def where(self, line: int) -> str:
        """Return a place in words; of the script the line alone."""
        file, number = self.located(line)
        return f"line {number}" if file == self.file else f"line {number} of {Path(file).name}"

    def edited(self, edits: list[Edit]) -> dict[str, str]:
        """Return the changed sources by file."""
        whole, texts, start = SourceBytes(self.source), dict[str, str](), 0
        for part, behind in zip(self.parts, (*self.parts[1:], None), strict=True):
            end = len(whole.data) if behind is None else whole.offset(behind.first + 1, 0)
            own = [Edit(each.start - start, each.end - start, each.text) for each in edits if start <= each.start < end
                   or (behind is None and each.start == end)]
            if own:
                texts[part.file] = SourceBytes(whole.data[start:end].decode()).edited(own)
            start = end
        return texts


def with_modules(program: SourceProgram, sources: Mapping[str, str] | None = None) -> SourceProgram:
    """Return a script joined with the modules beside it; the script alone, where functions of two have one name.

    Parameters
    ----------
    program : SourceProgram
        The script.
    sources : mapping, optional
        Texts of modules by file, as a recording has them. [default: what the files have]
    """
    modules = list(modules_beside(program)) if sources is None else [
        SourceProgram(file, text) for file, text in sources.items()]
    names = Counter(name for each in (*modules, program) for name in _defined(each))
    if not modules or any(count > 1 for count in names.values()):
        return program
    return JoinedProgram(program, modules)


def _defined(program: SourceProgram) -> set[str]:
    """Return the names of a file's functions and classes."""
    return {each.name for each in ast.walk(program.tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)
            and not each.name.startswith("__")}


def _renamed(program: SourceProgram) -> Iterable[tuple[str, str]]:
    """Yield the names that a file gives to what it imports, with those that these have in their modules."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name, each.name.rpartition(".")[2]) for each in node.names)
