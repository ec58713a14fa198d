"""C++ assertions appended to a kernel's source, with which the compiler checks arguments of types that the text does
not settle.

Template parameters, and names that are not the same under all conditions, have their types only in the compiler. It is
the same on every device, and what it refuses is an error before anything is launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpu_worker.protocol.messages import Argument, Field, In, Out, ScalarArgument, Signature
from gpu_worker.protocol.plans import CHECKS_FILE
from vispark.plan.arguments import ExecArgument
from vispark.plan.cuda_source import ArrayValue, Kernel

# Every name is one that nobody else uses, since a user's macros are in force behind the source. A kind is a character:
# b, i, u, f for numbers, c for `char`, which holds all numbers of a byte, s for structures, 0 for anything else.
_PRELUDE = r"""
template <class vispark_t> struct vispark_kind {
    static constexpr char vispark_is =
        __is_enum(vispark_t) ? 'i' : __is_class(vispark_t) || __is_union(vispark_t) ? 's' : 0;
};
#define VISPARK_KIND(vispark_t, vispark_k) \
    template <> struct vispark_kind<vispark_t> { static constexpr char vispark_is = vispark_k; };
VISPARK_KIND(bool, 'b') VISPARK_KIND(char, 'c') VISPARK_KIND(signed char, 'i') VISPARK_KIND(unsigned char, 'u')
VISPARK_KIND(short, 'i') VISPARK_KIND(unsigned short, 'u') VISPARK_KIND(int, 'i') VISPARK_KIND(unsigned, 'u')
VISPARK_KIND(long, 'i') VISPARK_KIND(unsigned long, 'u') VISPARK_KIND(long long, 'i')
VISPARK_KIND(unsigned long long, 'u') VISPARK_KIND(float, 'f') VISPARK_KIND(double, 'f')
#undef VISPARK_KIND
template <class vispark_t> struct vispark_kind<const vispark_t> : vispark_kind<vispark_t> {};
template <class vispark_t> struct vispark_kind<volatile vispark_t> : vispark_kind<vispark_t> {};
template <class vispark_t> struct vispark_kind<const volatile vispark_t> : vispark_kind<vispark_t> {};

__device__ static constexpr bool vispark_same(char vispark_is, char vispark_given, bool vispark_byte) {
    return vispark_is == vispark_given || (vispark_is == 'c' && vispark_byte && vispark_given != 'f')
        || (vispark_is == 'u' && vispark_byte && vispark_given == 'b');
}
template <class vispark_t, char vispark_given, unsigned vispark_size> struct vispark_value {
    static constexpr char vispark_is = vispark_kind<vispark_t>::vispark_is;
    static constexpr bool vispark_fits = sizeof(vispark_t) == vispark_size
        && (vispark_same(vispark_is, vispark_given, vispark_size == 1)
            || ((vispark_is == 'i' || vispark_is == 'u') && (vispark_given == 'i' || vispark_given == 'u'))
            || (vispark_is == 's' && (vispark_given == 's' || vispark_size == 2)));
};
template <class vispark_t, char vispark_given, unsigned vispark_size> struct vispark_value<vispark_t*, vispark_given,
                                                                                          vispark_size> {
    static constexpr bool vispark_fits = false;
};
template <char vispark_is, class vispark_t, char vispark_given, unsigned vispark_size> struct vispark_elements {
    static constexpr bool vispark_fits = sizeof(vispark_t) == vispark_size
        && vispark_same(vispark_is, vispark_given, vispark_size == 1);
};
template <class vispark_t, char vispark_given, unsigned vispark_size>
struct vispark_elements<0, vispark_t, vispark_given, vispark_size> { static constexpr bool vispark_fits = true; };
template <class vispark_t, char vispark_given, unsigned vispark_size>
struct vispark_elements<'s', vispark_t, vispark_given, vispark_size> { static constexpr bool vispark_fits = true; };
template <class vispark_t, char vispark_given, unsigned vispark_size> struct vispark_address {
    static constexpr bool vispark_fits = false;
};
template <class vispark_t, char vispark_given, unsigned vispark_size>
struct vispark_address<vispark_t*, vispark_given, vispark_size>
    : vispark_elements<vispark_kind<vispark_t>::vispark_is, vispark_t, vispark_given, vispark_size> {};

template <class vispark_f, unsigned vispark_i> struct vispark_parameter;
template <class vispark_t, class... vispark_r> struct vispark_parameter<void (*)(vispark_t, vispark_r...), 0> {
    typedef vispark_t vispark_is;
};
template <class vispark_t, class... vispark_r, unsigned vispark_i>
struct vispark_parameter<void (*)(vispark_t, vispark_r...), vispark_i>
    : vispark_parameter<void (*)(vispark_r...), vispark_i - 1> {};
template <class vispark_f> struct vispark_arity;
template <class... vispark_r> struct vispark_arity<void (*)(vispark_r...)> {
    static constexpr unsigned vispark_is = sizeof...(vispark_r);
};
"""

_KINDS = {"b": "b", "i": "i", "u": "u", "f": "f", "c": "s", "V": "s"}


def checks(kernel: Kernel, arguments: Sequence[ExecArgument], settled: Sequence[Argument | ArrayValue | None],
           inputs: Signature, outputs: Sequence[Field]) -> str:
    """Return the C++ checks to append to a kernel's source for one call of ``exec``; empty if the source settles all
    types.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    arguments : sequence of Given
        Arguments of the call.
    settled : sequence of Argument, ArrayValue or None
        Those of them that a block settles.
    inputs, outputs : Signature, sequence of Field
        The blocks that ``IN`` and ``OUT`` stand for.
    """
    parameters = kernel.parameters
    if parameters is not None and all(parameter.settled for parameter in parameters):
        return ""
    asserted = list(_assertions(kernel, arguments, settled, inputs, outputs))
    return "\n".join(["", f'#line 1 "{CHECKS_FILE}"', _PRELUDE, *asserted, ""])


def _assertions(kernel: Kernel, arguments: Sequence[ExecArgument], settled: Sequence[Argument | ArrayValue | None],
                inputs: Signature, outputs: Sequence[Field]) -> Iterator[str]:
    function, parameters = f"decltype(&{kernel.name})", kernel.parameters
    name = kernel.name.replace("\\", "").replace('"', "'")
    if parameters is None:
        yield (f'static_assert(vispark_arity<{function}>::vispark_is == {len(arguments)}, "{name} is given '
               f'{len(arguments)} arguments, and has another number of parameters");')
    for place, (argument, value) in enumerate(zip(arguments, settled, strict=True)):
        if parameters is not None and parameters[place].settled:
            continue
        dtype = _dtype(argument if value is None else value, inputs, outputs)
        by_value = isinstance(argument if value is None else value, ScalarArgument)
        takes = f"vispark_{'value' if by_value else 'address'}<vispark_parameter<{function}, {place}>::vispark_is"
        described = f"{'of dtype' if by_value else 'the address of'} {dtype.name}"
        if dtype.kind == "V":
            described = "a structure" if by_value else "the address of structures"
        declared = f" ({parameters[place].text})" if parameters is not None else ""
        declared = declared.replace("\\", "").replace('"', "'")
        yield (f"static_assert({takes}, '{_KINDS[dtype.kind]}', {dtype.itemsize}>::vispark_fits, \"argument {place + 1}"
               f' of {name} is {described}, which its parameter{declared} does not take");')


def _dtype(value: object, inputs: Signature, outputs: Sequence[Field]) -> np.dtype:
    if isinstance(value, In | Out):
        fields = inputs.fields if isinstance(value, In) else outputs
        return np.dtype(next(field.dtype for field in fields if field.name == value.field))
    assert isinstance(value, ScalarArgument | ArrayValue)
    return np.dtype(value.dtype)
