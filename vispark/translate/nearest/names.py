"""The names that the code of a nearest-centre function assigns."""

from __future__ import annotations

from vispark.translate.ir import nodes


def assigned_in(body: nodes.Statements) -> set[str]:
    """Return the names that a block assigns."""
    names: set[str] = set()
    for statement in body:
        match statement:
            case nodes.Assign(targets, _):
                for target in targets:
                    names |= names_in(target)
            case nodes.Augment(target, _, _):
                names |= names_in(target)
            case nodes.If(_, body, orelse):
                names |= assigned_in(body) | assigned_in(orelse)
            case nodes.For(target, _, body, orelse):
                names |= names_in(target) | assigned_in(body) | assigned_in(orelse)
    return names


def names_in(target: nodes.Expression) -> set[str]:
    if isinstance(target, nodes.TupleOf):
        return set().union(*(names_in(item) for item in target.items))
    return {target.name} if isinstance(target, nodes.Local) else set()
