"""Writer of C++ lines: names that do not collide, variables for values, loops."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vispark.translate.codegen.frame import CallFrame
from vispark.translate.codegen.scalar.casts import cast
from vispark.translate.codegen.scalar.prelude import NAMES
from vispark.translate.ir import nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.liveness import NameSet
from vispark.translate.ir.types import Scalar
from vispark.translate.ir.values import (
    Array,
    ArrayType,
    Dict,
    DictType,
    ForRange,
    List,
    ListType,
    NamedTupleType,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    stored,
)

#: The most bytes of an array that a thread keeps for itself; of a larger one, up to the second number, it is in device
#: memory, and a row's all together have at most the third.
LOCAL_BYTES, WORKSPACE_BYTES, _ROW_BYTES = 16384, 1 << 20, 8 << 20

#: The most bytes of shared memory that the lanes of one row keep arrays in.
SCRATCH_BYTES = 24576

#: The longest loop of known length that is written out.
_UNROLLED = 64

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const constexpr
const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float for
friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize n element first rows abs exp exp2 expm1 log log2
log10 log1p sqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh fabs erf erfc lgamma tgamma atan2
hypot pow fmod copysign remainder floor ceil trunc rint expf exp2f expm1f logf log2f log10f log1pf sqrtf cbrtf sinf
cosf tanf asinf acosf atanf sinhf coshf tanhf asinhf acoshf atanhf fabsf atan2f hypotf powf fmodf copysignf floorf
ceilf truncf rintf min max j0 j1 jn y0 y1 yn gamma signgam index time clock round rand div main assert printf malloc
free memcpy NULL INFINITY NAN M_PI linux unix isnan isinf isfinite signbit I complex works ports work lane lanes row
turn count group memory scratch tile carried leftover VISPARK_UNROLL VISPARK_SUM VISPARK_BLOCK VISPARK_EACH
VISPARK_ALONE VISPARK_ONE_PASS VISPARK_WARPGROUPS VISPARK_REPORT vispark
Twofold Add Multiply Minimum Maximum And Or Xor Value Size SizeOrOne IsNan One
"""
_RESERVED = frozenset(_WORDS.split()) | set(NAMES)


class Serial(Exception):
    """Control flow signal: the statement being written goes along a row step by step, and lanes cannot share it."""


@dataclass
class Lines:
    """Lines of C++ and how deep they stand."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else line)


class NoProducts:
    """Products of the element's row with matrices, for kernels that have none: each sum is written where it stands.

    ``vispark/translate/kernels/row_matmul.py`` has those of kernels that multiply the rows of a tile together.
    """

    def placeholder(self, text: Callable[[int | str], str], terms: int, kind: Scalar) -> Number | None:
        """Return the placeholder of a sum of terms while an expression is only probed; None while it is written."""
        return None

    def product_of(self, text: Callable[[int, int | str], str], width: int, terms: int, kind: Scalar) -> Array | None:
        """Return the sums of terms as a product of the element's row with a matrix; None where they are none."""
        return None

    def product_over(self, steps: ForRange, target: nodes.Expression, value: nodes.Expression) -> Array | None:
        """Return the items ``value for target in steps`` where they are those of a product; else None."""
        return None

    def assigned_product(self, loop: nodes.For, steps: ForRange, after: NameSet) -> bool:
        """Write a loop that only stores a product; return False of others."""
        return False


class Emitter:
    """The text of a function's body while it grows; what lowers a call or a node takes it as its first argument.

    With more than one lane, all of them run the body side by side: numbers are the same in each, long arrays are in
    shared memory, and loops over these are dealt out. ``scratch`` counts the bytes of the latter.
    """

    def __init__(self, definition: nodes.Definition, lanes: int = 1) -> None:
        self.out = Lines()
        self.taken: set[str] = set(_RESERVED)
        #: Names that nothing else gets, also where something is written again.
        self.reserved: set[str] = set()
        self.lanes, self.scratch = lanes, 0
        #: The numbers of arrays of its own, by name.
        self.sizes: dict[str, int] = {}
        self.hints = False
        #: Lowerings that come before those that are registered, by functions' names and kinds of nodes.
        self.lowerings: Mapping[str | type, Callable[..., Any]] = {}
        self.products = NoProducts()
        #: The call that is being written, the function's captured values, and the tests of the ifs around.
        self.frame = CallFrame(definition, {})
        self.captures: tuple[Value, ...] = ()
        self.tests: tuple[Number, ...] = ()
        #: Whether a name stands for the expression itself, for those that only look at it.
        self.named_in_place = False

    # -- lines --------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Add a line."""
        self.out.add(text)

    @contextlib.contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """Yield lines in braces under a head."""
        self.line(f"{head} {{" if head else "{")
        self.out.depth += 1
        yield
        self.out.depth -= 1
        self.line(tail)

    @contextlib.contextmanager
    def detached(self, deeper: int = 0) -> Iterator[Lines]:
        """Yield lines that are kept apart, to be put in later by :meth:`put`."""
        outer = self.out
        self.out = Lines(depth=outer.depth + deeper)
        try:
            yield self.out
        finally:
            self.out = outer

    def put(self, lines: Lines) -> None:
        """Add lines that were kept apart at this depth."""
        self.out.lines.extend(lines.lines)

    def name(self, wanted: str) -> str:
        """Return a name like the one wanted that nothing else has."""
        base = re.sub(r"\W", "_", wanted).strip("_") or "value"
        base = f"v{base}" if base[0].isdigit() else base
        base = base if base.isascii() else "value"
        name, number = base, 0
        while name in self.taken or name in self.reserved:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def lasting(self, wanted: str) -> str:
        """Return a name that nothing else gets, whatever is written again."""
        name = self.name(wanted)
        self.reserved.add(name)
        return name

    # -- variables ----------------------------------------------------------------------------------------------------

    def fixed(self, number: Number, name: str = "value") -> Number:
        """Return the number as an expression that may be repeated: a constant, or a name that is not assigned again."""
        settled = number.known or (number.text.isidentifier() and not number.variable)
        return number if settled else self.keep(number, name)

    def keep(self, number: Number, name: str) -> Number:
        """Return the number in a constant of its own."""
        variable = self.name(name)
        self.line(f"const {number.c} {variable} = {number.text};")
        return replace(number, text=variable, atom=True, variable=False)

    def variable(self, kind: Type, name: str, initial: Value | None = None) -> Any:
        """Declare what holds values of a type; arrays are indexed storage."""
        if isinstance(kind, Scalar):
            variable = self.name(name)
            start = f" = {cast(initial, kind).text}" if isinstance(initial, Number) else ""
            self.line(f"{kind.c} {variable}{start};")
            return Number(kind, variable, variable=True)
        if isinstance(kind, ArrayType):
            array = self.storage(kind.element, kind.shape, name, volatile=True)
            if isinstance(initial, Array):
                self.copy(array, initial)
            return array
        if isinstance(kind, Nothing):
            return kind
        items = kind if isinstance(kind, tuple) else kind.items
        starts = initial.items if isinstance(initial, Tuple | List | Dict) else (None,) * len(items)
        variables = tuple(self.variable(item, f"{name}_{i}", start)
                          for i, (item, start) in enumerate(zip(items, starts, strict=True)))
        if isinstance(kind, DictType):
            return Dict(kind.names, variables)
        if isinstance(kind, ListType):
            return List(variables)
        return Tuple(variables, kind.names if isinstance(kind, NamedTupleType) else ())

    def assign(self, target: Any, value: Any) -> None:
        """Store a value in what :meth:`variable` declared."""
        if isinstance(target, Number):
            text = cast(value, target.type).text
            if text != target.text:
                self.line(f"{target.text} = {text};")
        elif isinstance(target, Array):
            if not (target.storage and target.storage == getattr(value, "storage", None)):
                self.copy(target, value)
        elif isinstance(target, Tuple | List | Dict):
            # A part may be read by another part's new value.
            parts = [self.snapshot(item) for item in value.items] if len(target.items) > 1 else value.items
            for one, part in zip(target.items, parts, strict=True):
                self.assign(one, part)

    def snapshot(self, value: Value, name: str = "value") -> Value:
        """Return the value as it is now, whatever is assigned afterwards."""
        if isinstance(value, Number):
            return self.fixed(value, name)
        if isinstance(value, Array) and value.volatile:
            return self.materialised(value, name)
        if isinstance(value, Tuple | List):
            return replace(value, items=tuple(self.snapshot(item, name) for item in value.items))
        return value

    # -- arrays -------------------------------------------------------------------------------------------------------

    def storage(self, kind: Scalar, shape: tuple[int, ...], name: str, volatile: bool = False) -> Array:
        """Declare a thread's own array."""
        variable, size = self.name(name), _size(shape)
        nbytes, most = size * kind.numpy.itemsize, WORKSPACE_BYTES if self.hints else LOCAL_BYTES
        is_large = not self.is_dealt(size) and nbytes > LOCAL_BYTES
        if is_large and (nbytes > most or self.scratch + nbytes > _ROW_BYTES):
            raise Refusal(f"an array {shape} of {kind} is kept for each element here, {nbytes:,} bytes; at most "
                          f"{most:,} can be. Reduce it as it is computed, as in np.sum(a * b)")
        if is_large and self.lanes > 1:
            raise Serial
        if is_large or self.is_dealt(size):
            self._declare_shared(variable, kind, size)
        else:
            self.line(f"{kind.c} {variable}[{max(1, size)}];")
        self.sizes[variable] = size
        return stored(variable, kind, shape, fresh=True, volatile=volatile, storage=variable)

    def _declare_shared(self, name: str, kind: Scalar, size: int) -> None:
        """Declare an array that the lanes of a row have together, or of a row's only thread one in device memory."""
        self.line(f"{kind.c}* const {name} = ({kind.c}*)(scratch + {self.scratch});")
        self.scratch += -(-size * kind.numpy.itemsize // 16) * 16
        if self.lanes > 1 and self.scratch > SCRATCH_BYTES:
            raise Serial

    def copy(self, target: Array, value: Array) -> None:
        """Store an array's elements."""
        self.barrier(target)
        with self.along(target.shape) as indices:
            element = cast(value.at(*indices), target.type)
            self.line(f"{target.element(*indices)} = {element.text};")
        self.barrier(target)

    def barrier(self, array: Array) -> None:
        """Write a barrier around writes of a row's lanes to an array that they share."""
        if array.storage and self.is_dealt(array.size):
            self.line(f"rows::settle<{self.lanes}>();")

    def materialised(self, value: Array, name: str, volatile: bool = False) -> Array:
        """Return the array's elements in storage of its own."""
        array = self.storage(value.type, value.shape, name, volatile)
        self.copy(array, value)
        return array

    @contextlib.contextmanager
    def over(self, shape: tuple[int, ...], name: str = "j") -> Iterator[tuple[str, ...]]:
        """Yield loops over all indices of a shape, one after the other."""
        with contextlib.ExitStack() as loops:
            indices = []
            for extent in shape:
                if extent == 1:
                    indices.append("0")
                    continue
                index = self.name(name)
                indices.append(index)
                loops.enter_context(self.block(f"for (int {index} = 0; {index} < {extent}; ++{index})"))
            yield tuple(indices)
            for index in indices:
                self.taken.discard(index)

    # -- what the lanes of a row share --------------------------------------------------------------------------------

    def is_dealt(self, size: int) -> bool:
        """Return whether the elements of an array are dealt to the lanes of a row."""
        return self.lanes > 1 and size >= self.lanes

    @contextlib.contextmanager
    def along(self, shape: tuple[int, ...], turns: int | tuple[str, str] = 0) -> Iterator[tuple[str, ...]]:
        """Yield loops over all indices of a shape, in any order; of dealt ones each lane takes its own.

        ``turns`` is how many of each lane's elements are left out, or the first turn and the one behind the last.
        """
        size = _size(shape)
        if not self.is_dealt(size):
            self.unroll(size)
            with self.over(shape) as indices:
                yield indices
            return
        slots, slot, place = -(-size // self.lanes), self.name("slot"), self.name("j")
        self.unroll(slots)
        first, end = (turns, slots) if isinstance(turns, int) else turns
        with contextlib.ExitStack() as blocks:
            blocks.enter_context(self.block(f"for (int {slot} = {first}; {slot} < {end}; ++{slot})"))
            self.line(f"const int {place} = {slot} * {self.lanes} + lane;")
            if size % self.lanes:
                blocks.enter_context(self.block(f"if ({place} < {size})"))
            yield self.unflattened(place, shape)
        self.taken -= {slot, place}

    def unflattened(self, place: str, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Return the indices of the element at a flat place."""
        if len(shape) == 1:
            return (place,)
        indices, stride = list[str](), _size(shape)
        for extent in shape:
            stride //= extent
            index = self.name("j")
            wrapped = f" % {extent}" if indices else ""
            self.line(f"const int {index} = {place}{f' / {stride}' if stride > 1 else ''}{wrapped};")
            indices.append(index)
        return tuple(indices)

    def unroll(self, turns: int) -> None:
        """Have the loop that follows written out, where it is short."""
        if self.hints and 1 < turns <= _UNROLLED:
            self.line("VISPARK_UNROLL")


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def same(a: Value, b: Value) -> bool:
    """Return whether two values are the same expression of the same type, for bringing ways together."""
    if isinstance(a, Array) or isinstance(b, Array):
        return a is b
    if isinstance(a, Tuple) and isinstance(b, Tuple) and a.names != b.names:
        return False
    if isinstance(a, Tuple | List) and isinstance(b, Tuple | List) and type(a) is type(b):
        return len(a.items) == len(b.items) and all(map(same, a.items, b.items))
    if isinstance(a, Number) and isinstance(b, Number):
        # 1, 1.0 and True are equal and yet not the same.
        return (a.type, a.text) == (b.type, b.text)
    return a == b
