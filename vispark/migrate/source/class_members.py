"""Members of a source's classes, by its syntax tree: what methods assign to ``self``, return and are given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

FunctionStatement = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class ClassMembers:
    """Members of all classes of a source, by their names.

    Parameters
    ----------
    tree : ast.Module
    parent : callable
        Gives the node around a node.

    Examples
    --------
    >>> tree = ast.parse("class A:\\n    def __init__(self): self.x = 1\\n    def y(self): return self.x")
    >>> members = ClassMembers(tree, {}.get)
    >>> sorted(members.attributes), sorted(members.methods)
    (['x'], ['__init__', 'y'])
    """

    tree: ast.Module
    parent: Callable[[ast.AST], ast.AST | None]
    #: Expressions that are assigned to an attribute of the first parameter, each with its class and statement.
    attributes: dict[str, list[tuple[ast.ClassDef, ast.stmt, ast.expr]]] = field(default_factory=dict)
    methods: dict[str, list[tuple[ast.ClassDef, ast.FunctionDef]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef):
                        self.methods.setdefault(method.name, []).append((node, method))
                        self._note(node, method)

    def _note(self, of: ast.ClassDef, method: ast.FunctionDef) -> None:
        own = next((each.arg for each in (*method.args.posonlyargs, *method.args.args)), "")
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else \
                [node.target] if isinstance(node, ast.AnnAssign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and own == target.value.id \
                        and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    self.attributes.setdefault(target.attr, []).append((of, node, node.value))

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class around a node."""
        above = self.parent(node)
        while above is not None and not isinstance(above, ast.ClassDef):
            above = self.parent(above)
        return above

    def values_of(self, node: ast.Attribute) -> list[ast.expr]:
        """Return the expressions that ``self.NAME`` or ``object.NAME`` may stand for, the likeliest first.

        Those of the class around come first, and of these the assignments before the node in its method; a property
        gives what it returns.
        """
        if not isinstance(node.value, ast.Name):
            return []
        own, method_here = self.class_around(node), self._method_around(node)
        placed: list[tuple[tuple[bool, bool, int], ast.expr]] = []
        for of, statement, value in self.attributes.get(node.attr, []):
            if (own is not None and of is not own) or value is node or any(each is node for each in ast.walk(value)):
                continue
            same = self._method_around(statement) is method_here
            before = statement.lineno < node.lineno
            placed.append(((not same, not before, -statement.lineno if before else statement.lineno), value))
        values = [value for _, value in sorted(placed, key=lambda pair: pair[0])]
        return values or [value for method in self._properties(node.attr, own) for value in self.returned(method)]

    def method_of(self, node: ast.Call) -> ast.FunctionDef | None:
        """Return the method of the file that ``self.NAME()`` or ``object.NAME()`` calls; None where none has it."""
        if not isinstance(node.func, ast.Attribute):
            return None
        methods = self.methods.get(node.func.attr, [])
        own = self.class_around(node)
        return next((method for of, method in methods if of is own), methods[0][1] if methods else None)

    def returned(self, method: ast.FunctionDef) -> list[ast.expr]:
        """Return the expressions that a method returns."""
        return [each.value for each in ast.walk(method) if isinstance(each, ast.Return) and each.value is not None
                and self._method_around(each) is method]

    def calls_of(self, scope: ast.FunctionDef) -> list[ast.Call]:
        """Return the calls of a method: of its name on an object, and for ``__init__`` of its class."""
        of = self.parent(scope)
        if not isinstance(of, ast.ClassDef):
            return []
        if scope.name == "__init__":
            return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and isinstance(
                node.func, ast.Name) and node.func.id == of.name]
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self.method_of(node) is scope]

    def _method_around(self, node: ast.AST) -> FunctionStatement | None:
        above = self.parent(node)
        while above is not None and not isinstance(above, FunctionStatement):
            above = self.parent(above)
        return above

    def _properties(self, name: str, own: ast.ClassDef | None) -> list[ast.FunctionDef]:
        return [method for of, method in self.methods.get(name, []) if (own is None or of is own) and any(
            ast.unparse(each) in ("property", "cached_property", "functools.cached_property")
            for each in method.decorator_list)]


def is_place(node: ast.AST) -> bool:
    """Return whether an expression is a name or an attribute of one, to which something can be assigned.

    Examples
    --------
    >>> [is_place(ast.parse(each, mode="eval").body) for each in ("x", "self.x", "f(x)")]
    [True, True, False]
    """
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
