"""Kernel that joins neighbouring rows by a translated function of two records, for folds by any associative function.

A thread joins a group of neighbouring rows, the first with the second, what that gives with the third, and so on, so
that rows stay in their order: the function need not commute. Passes of it leave one row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from vispark.translate.codegen.scalar.interface import (
    ElementField,
    ElementSpec,
    KernelOutput,
    KernelParameter,
    TracedCall,
)
from vispark.translate.codegen.scalar.prelude import prelude_for
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.source_text import at_definition
from vispark.translate.ir.types import scalar_of
from vispark.translate.ir.values import Dict, Value
from vispark.translate.kernels.row_function import (
    ArgumentType,
    InputPlace,
    Link,
    Port,
    RowFunction,
    RowWriter,
    givens,
    links_of,
    values_of,
)
from vispark.translate.kernels.row_kernel import function_of_row

#: The threads of a thread block.
THREADS = 128
#: The most bytes of a record: a thread has two of them.
MOST_BYTES = 4096


@dataclass(frozen=True)
class JoinKernel:
    """Kernel that joins groups of rows.

    Its parameters are, for each field, the addresses of what it reads and of what it writes; then ``long long``
    records, rows of each, and rows of a group; then ``parameters``.

    Attributes
    ----------
    source, name : str
        CUDA C++, and the function in it.
    parameters : tuple of KernelParameter
        Captured values.
    """

    source: str
    name: str
    parameters: tuple[KernelParameter, ...]


def join_kernel(call: TracedCall, fields: tuple[ElementField, ...]) -> JoinKernel:
    """Return the kernel that joins rows of some fields by a function of two records.

    Parameters
    ----------
    call : TracedCall
        The function, of two records.
    fields : tuple of ElementField
        What a record is: one without a name, a dict's fields, or the places of a tuple.

    Raises
    ------
    TranslationError
        If the function does not give a record of the same fields, dtypes and shapes; at its line.
    """
    values = values_of((call,))
    statics: dict[InputPlace, Any] = {}
    link, = links_of((call,))
    while True:
        try:
            return _kernel(link, fields, givens(values), tuple(statics.items()))
        except NeedsStatic as needed:
            statics |= {place: values[place].number for place in needed.sources}
        except Refusal as error:
            raise at_definition(call.function.definition, str(error)) from error


@functools.lru_cache(maxsize=128)
def _kernel(link: Link, fields: tuple[ElementField, ...], arguments: tuple[tuple[InputPlace, ArgumentType], ...],
            statics: tuple[tuple[InputPlace, Any], ...]) -> JoinKernel:
    sides = ElementSpec(tuple(ElementField(_on(side, field.name), field.dtype, field.shape)
                              for side in "01" for field in fields))
    function = _JoinWriter((link,), sides, dict(arguments), dict(statics), None, False, 1).write()
    _check(link, fields, function.results)
    text = "\n".join([*function_of_row(function, 1, ()), "", *_frame(function, fields)]) + "\n"
    helpers = prelude_for(text)
    return JoinKernel("#include \"vispark/rows.h\"\n\n" + (helpers + "\n" if helpers else "") + text,
                      f"{function.name}_joined", tuple(parameter for _, parameter in function.given))


def _on(side: str, name: str) -> str:
    """Return the name of a field of the first or the second record."""
    return f"{side}.{name}" if name else side


class _JoinWriter(RowWriter):
    """Writer of a function of two records, which are the items 0 and 1 of its element."""

    def _variables(self, link: Link, fields: dict[str, Value | ElementField], first: int) -> dict[str, Value]:
        definition = link.definition
        two = [parameter for parameter in definition.parameters if not parameter.keyword_only and not parameter.many]
        if len(two) < 2:
            raise Refusal(f"{definition.name} takes {len(two)} parameters, and a fold's function takes two records")
        variables = {parameter.name: self._side(parameter.name, side, fields)
                     for parameter, side in zip(two, "01", strict=False)}
        return variables | {parameter.name: self._default(definition, parameter, {"": ElementField("", "bool")})
                            for parameter in definition.parameters if parameter.name not in variables}

    def _side(self, wanted: str, side: str, fields: dict[str, Value | ElementField]) -> Value:
        own = {name.partition(".")[2]: field for name, field in fields.items() if name.partition(".")[0] == side}
        if "" in own:
            return self._taken(wanted, own[""])
        if all(name.replace(".", "0").isdecimal() for name in own):
            return self._tuple_of(wanted, own)
        return Dict(tuple(own), tuple([self._taken(f"{wanted}_{name}", field) for name, field in own.items()]))


def _check(link: Link, fields: tuple[ElementField, ...], results: tuple[KernelOutput, ...]) -> None:
    """Check that what a function gives is a record as those that it takes."""
    records = {field.name: (scalar_of(field.dtype, "").dtype, field.shape) for field in fields}
    produced = {output.name: (output.dtype, output.shape) for output in results}
    if records != produced:
        raise Refusal(f"{link.definition.name} takes records of {_shown(records)} and gives {_shown(produced)}; a "
                      "fold's function gives what it takes")
    size = sum(scalar_of(field.dtype, "").numpy.itemsize * _count(field.shape) for field in fields)
    if size > MOST_BYTES:
        raise Refusal(f"records of {size:,} bytes are too large to be joined one by one, by a thread: at most "
                      f"{MOST_BYTES:,}")


def _shown(fields: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name + ' ' if name else ''}{dtype}{list(shape) if shape else ''}"
                     for name, (dtype, shape) in fields.items())


def _count(shape: tuple[int, ...]) -> int:
    return functools.reduce(lambda a, b: a * b, shape, 1)


# -- the kernel -------------------------------------------------------------------------------------------------------

def _frame(function: RowFunction, fields: tuple[ElementField, ...]) -> list[str]:
    """Return the lines of the kernel around a function of two records."""
    numbers = range(len(fields))
    c = [scalar_of(field.dtype, "").c for field in fields]
    size = [_count(field.shape) for field in fields]
    declared = [text for i in numbers for text in (f"const {c[i]}* __restrict__ joined_in_{i}",
                                                   f"{c[i]}* __restrict__ joined_out_{i}")]
    declared += ["const long long joined_records", "const long long joined_rows", "const long long joined_group"]
    declared += [text for text, _ in function.given]

    def each(line: str) -> list[str]:
        return [f"for (int j = 0; j < {size[i]}; ++j) {line.format(i=i, size=size[i])}" for i in numbers]

    return [
        f'extern "C" __global__ void __launch_bounds__({THREADS})',
        f"{function.name}_joined({', '.join(declared)})", "{",
        "    const long long joined_groups = (joined_rows + joined_group - 1) / joined_group;",
        "    const long long joined_place = blockIdx.x * (long long)blockDim.x + threadIdx.x;",
        "    if (joined_place >= joined_records * joined_groups) return;",
        "    const long long joined_first = joined_place % joined_groups * joined_group;",
        "    const long long joined_base = joined_place / joined_groups * joined_rows;",
        "    const long long joined_last = joined_rows - joined_first < joined_group ? joined_rows",
        "                                                                            : joined_first + joined_group;",
        *(f"    {c[i]} joined_total_{i}[{max(1, size[i])}], joined_next_{i}[{max(1, size[i])}];" for i in numbers),
        *(f"    {line}" for line in each("joined_total_{i}[j] = joined_in_{i}[(joined_base + joined_first) * {size} "
                                         "+ j];")),
        "    for (long long joined_row = joined_first + 1; joined_row < joined_last; ++joined_row) {",
        f"        {_call(function, fields)}",
        *(f"        {line}" for line in each("joined_total_{i}[j] = joined_next_{i}[j];")),
        "    }",
        *(f"    {line}" for line in each("joined_out_{i}[joined_place * {size} + j] = joined_total_{i}[j];")),
        "}"]


def _call(function: RowFunction, fields: tuple[ElementField, ...]) -> str:
    """Return the call that joins what a thread has with the next row."""
    inputs, outputs = dict[str, str](), dict[str, str]()
    for number, field in enumerate(fields):
        size = _count(field.shape)
        inputs[_on("0", field.name)] = f"joined_total_{number}"
        inputs[_on("1", field.name)] = f"joined_in_{number} + (joined_base + joined_row) * {size}"
        outputs[field.name] = f"joined_next_{number}"

    def given(port: Port, place: str) -> str:
        return f"*({place})" if port.number else place

    arguments = [given(port, inputs[port.parameter.name]) for port in function.inputs]
    arguments += [given(port, outputs[port.parameter.name]) for port in function.outputs]
    arguments += [declared.rpartition(" ")[2] for declared, _ in function.given]
    return f"{function.name}({', '.join(arguments)});"
