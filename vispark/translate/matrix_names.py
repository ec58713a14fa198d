"""The names that the code of a nearest-centre function assigns."""

from __future__ import annotations

from vispark.translate import form


def assigned_in(body: form.Block) -> set[str]:
    """The names that a block assigns."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case form.Assign(targets, _):
                for target in targets:
                    found |= names_in(target)
            case form.Augment(target, _, _):
                found |= names_in(target)
            case form.If(_, body, orelse):
                found |= assigned_in(body) | assigned_in(orelse)
            case form.For(target, _, body, orelse):
                found |= names_in(target) | assigned_in(body) | assigned_in(orelse)
    return found


def names_in(target: form.Expression) -> set[str]:
    if isinstance(target, form.TupleOf):
        return set().union(*(names_in(item) for item in target.items))
    return {target.name} if isinstance(target, form.Local) else set()
