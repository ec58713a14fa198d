"""Calls as they are written: their arguments, with what a ``*`` spreads, and errors in what stands for a function."""

from __future__ import annotations

from vispark.translate.codegen.dispatch import call_as_written, errors_at, expression, lowers_node
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.syntax.comprehensions import array_of
from vispark.translate.codegen.syntax.functions import call
from vispark.translate.codegen.syntax.iterables import element_of
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.source_text import complain
from vispark.translate.ir.values import Array, List, Named, Tuple, Value, describe
from vispark.translate.language import composed

#: The longest row that * spreads.
_SPREAD = 64


@lowers_node(nodes.Call)
def lower_call(emit: Emitter, node: nodes.Call) -> Value:
    """Return the value of a call."""
    function = expression(emit, node.function)
    if isinstance(function, Named):
        result = call_as_written(emit, function.name, node)
        if result is not None:
            return result
    arguments = tuple(one for argument in node.arguments for one in _given(emit, argument))
    keywords = {name: expression(emit, value) for name, value in node.keywords}
    here = emit.frame.definition
    try:
        return call(emit, function, arguments, keywords)
    except TranslationError as error:
        if error.file != composed.__file__ or here.text.file == composed.__file__:
            raise
        # In what stands for NumPy's function, which the user has not written.
        raise complain(error.message.partition("\n")[0], node.at, here.text, here.name) from error


def _given(emit: Emitter, argument: nodes.Expression) -> tuple[Value, ...]:
    """Return the arguments that one written one stands for: several after ``*``."""
    if isinstance(argument, nodes.Each):
        return (array_of(emit, nodes.Listed(argument.value, argument.target, argument.iterable, argument.conditions,
                                          at=argument.at)),)
    if not isinstance(argument, nodes.Spread):
        return (expression(emit, argument),)
    value = expression(emit, argument.value)
    with errors_at(emit, argument):
        if isinstance(value, Tuple | List):
            return value.items
        if isinstance(value, Array) and value.shape and value.shape[0] <= _SPREAD:
            return tuple(element_of(value, str(number)) for number in range(value.shape[0]))
        raise Refusal(f"* is before a tuple or a short row, and this is {describe(value)}")
