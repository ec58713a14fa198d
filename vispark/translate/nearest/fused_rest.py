"""Kernels that find the nearest centre of a row by matrix work, and compute the rest of the function row by row.

The labels of a chunk of rows are found first (``vispark/nearest.h``); then the rest of the function, as
:mod:`vispark.translate.nearest.split` has it, goes over these rows as the translator writes it, with its rounding. What
it gives is stored, folded as a whole, or folded by label beside the sums of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vispark.translate.codegen.emitter import Serial
from vispark.translate.codegen.scalar.interface import ElementSpec, KernelParameter, TableKernel, TracedCall
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.folding import Accumulated, Folding, accumulated
from vispark.translate.ir.types import Scalar
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
from vispark.translate.kernels.row_kernel import AccumulatedField, IndentedText, RowKernel, at_row
from vispark.translate.kernels.schedule import FLUSHED, WARP, Table
from vispark.translate.nearest.recognise import Nearest, Row
from vispark.translate.nearest.split import Computed, Key
from vispark.translate.nearest.two_pass import (
    KINDS,
    MOST_VALUES,
    OF_KEYS,
    SUMS,
    NearestShape,
    centres_of,
    constant_store,
    described,
    known_of,
    parted_of,
    paths,
    row_of,
    shape_for,
    sums_store,
)

#: What the kernel calls its own variables, beside what other kernels do.
_OWN = frozenset([
    "nearest", "tensor", "Shape", "Way", "storage", "image", "label", "values", "Values", "lane", "x", "k"])


def by_labels(kernel: TableKernel, calls: Sequence[TracedCall], record: ElementSpec, wanted: frozenset[str] | None,
              folding: Folding | None, shared_limit: int) -> TableKernel:
    """Return the kernel that finds labels by matrix work and gives what a kernel gives, or that kernel itself.

    Parameters
    ----------
    kernel : TableKernel
        What the translator wrote of the chain.
    calls, record, wanted, folding, shared_limit
        What it wrote it of and for.
    """
    row = row_of(calls[0], record)
    if row is None or (rows := np.dtype(row.dtype).name) not in KINDS:
        return kernel
    parted = parted_of(described(calls[0].function), known_of(calls[0]))
    centres = centres_of(calls[0], row, parted.centres) if parted else None
    if parted is None or centres is None:
        return kernel
    count, columns = centres.shape
    shape = shape_for(count, columns, rows, centres.dtype, Nearest(parted.nan, False),
                      folds=bool(folding and folding.key), shared_limit=shared_limit)
    if shape is None:
        return kernel
    chain = (TracedCall(parted.rest, (np.int64(0), *calls[0].args)), *calls[1:])
    result = parted.result if len(calls) == 1 else Computed()
    values = values_of(chain)
    statics = {place: value.number for place, value in values.items()
               if not value.shape and value.weak and np.dtype(value.dtype) == np.bool_}
    while True:
        try:
            labels = _Labels(shape, KernelParameter("input", row.name, 0, rows, row.shape, True), centres)
            return _fused(kernel, links_of(chain), record, givens(values), tuple(statics.items()), wanted, folding,
                          labels, result) or kernel
        except NeedsStatic as needed:
            statics |= {place: values[place].number for place in needed.sources}
        except (Refusal, TranslationError):
            return kernel           # one centre in place of all: what it says of that is not what the user wrote


@dataclass(frozen=True)
class _Labels:
    """Search of labels in a kernel: its shape, and the parameters that are the rows and the centres."""

    shape: NearestShape
    row: KernelParameter
    centres: KernelParameter


@functools.lru_cache(maxsize=128)
def _fused(kernel: TableKernel, links: tuple[Link, ...], record: ElementSpec,
           arguments: tuple[tuple[InputPlace, ArgumentType], ...],
           statics: tuple[tuple[InputPlace, Any], ...], wanted: frozenset[str] | None, folding: Folding | None,
           labels: _Labels, result: object) -> TableKernel | None:
    by_key = _by_key(kernel, folding, labels, result) if folding and folding.key else None
    if folding and folding.key:
        if by_key is None:
            return None
        wanted = frozenset(by_key.computed)

    def written(lanes: int) -> RowFunction:
        writer = RowWriter(links, record, dict(arguments), dict(statics), wanted, bool(folding) and by_key is None,
                           lanes)
        writer.emit.taken |= _OWN
        return replace(writer.write(), name="rest_of_row")

    host = written(1)
    if host.products:
        return None
    function = _by_warps(host, written)
    outputs = {output.name: output for output in kernel.outputs}
    if any(output != outputs.get(output.name) for output in host.results):
        return None
    if by_key is None and (host.results, host.structure, host.merge) != (kernel.outputs, kernel.structure,
                                                                         kernel.merge):
        return None
    if folding and not all(port.number for port in host.outputs):
        return None
    folded = tuple(AccumulatedField(port, accumulated(port.parameter.name, Scalar(port.parameter.dtype), port.count,
                                                      folding.fields)) for port in host.outputs) if folding else ()
    if folding and by_key is None and tuple(one for each in folded for one in each.accumulated) != kernel.accumulated:
        return None
    table = Table("labels", WARP if function is not host else 1, labels.shape.threads, labels.shape.threads // 2, 1, 1,
                  labels.shape.shared)
    frame = _Frame("nearest_fold" if folding else "nearest_rest", function, host, table, folded, labels=labels,
                   by_key=by_key)
    return replace(kernel, source=frame.source(), name=frame.name, parameters=frame.parameters, block=table.block,
                   shared=table.shared, tile=table.tile, preparation=labels.shape.preparation, cluster=1,
                   waves=min(1.0, kernel.waves) if folding else 1.0)


def _by_warps(host: RowFunction, written: Any) -> RowFunction:
    """Return the row function by a warp, where it reads or writes rows and needs no memory for that."""
    if all(port.number for port in (*host.read, *host.outputs)):
        return host
    try:
        function: RowFunction = written(WARP)
    except Serial:
        return host
    same = function.inputs == host.inputs and function.given == host.given and not function.products
    return function if same and not function.scratch else host


# -- folds by label ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _ByKey:
    """Accumulators of a fold by label, and where each gets its values.

    Attributes
    ----------
    accumulated : tuple of Accumulated
        The accumulators.
    stores : tuple of str
        For each: "" for the sums of the rows, "computed" for what the rest gives, else what is stored for each label.
    computed : tuple of str
        The fields that the rest gives.
    groups, offset : int
        How many keys there are, and the key of the first centre.
    """

    accumulated: tuple[Accumulated, ...]
    stores: tuple[str, ...]
    computed: tuple[str, ...]
    groups: int
    offset: int


def _by_key(kernel: TableKernel, folding: Folding, labels: _Labels, result: object) -> _ByKey | None:
    """Return the accumulators of a fold by label; None if its keys are no labels, or if it folds rows beside the row.
    """
    shape, offset = labels.shape, result[0].offset if isinstance(result, tuple) and isinstance(result[0], Key) else -1
    if not isinstance(result, tuple) or len(result) != 2 or folding.key != "0" or not offset >= 0 \
            or offset + shape.centres > folding.groups:
        return None
    parts = dict(paths(result[1], "1"))
    widths = {output.name: output.shape for output in kernel.outputs}
    stores, computed = list[str](), list[str]()
    for one in kernel.accumulated:
        part = parts.get(one.field)
        store = OF_KEYS.get(one.guard) if one.field == "0" else None
        if isinstance(part, Row):
            store = sums_store(one, SUMS[labels.row.dtype])
        elif one.field != "0" and not isinstance(part, Row | Computed | Key):
            store = constant_store(one, part)
        if store is None:
            if widths[one.field] or one.field == "0":
                return None
            store = "computed"
            computed += [one.field] * (one.field not in computed)
        stores.append(store)
    if stores.count("") > 1 or len(computed) > MOST_VALUES:
        return None
    return _ByKey(kernel.accumulated, tuple(stores), tuple(computed), folding.groups, offset)


# -- the kernel -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Frame(RowKernel):
    """The kernel around the rest."""

    labels: _Labels = field(kw_only=True)
    by_key: _ByKey | None = field(kw_only=True)

    @property
    def header(self) -> str:
        """What the kernel includes."""
        return "nearest"

    @property
    def ports(self) -> tuple[Port, ...]:
        """The kernel's ports: the rows that are labelled come first."""
        labels = [port for port in self.function.inputs if port.parameter == self.labels.row]
        others = [port for port in self.function.inputs if port.parameter != self.labels.row]
        c, count = KINDS[self.labels.row.dtype], self.labels.shape.columns
        row = Port("x", "", c, count, np.dtype(self.labels.row.dtype).itemsize, False, False, self.labels.row)
        return (labels[0] if labels else row, *others, *(() if self.folded or self.by_key else self.function.outputs))

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """The kernel's parameters, in order, as the chain that the user wrote has them."""
        return (*(port.parameter for port in self.ports), self.labels.centres,
                *(parameter for _, parameter in self._given))

    @property
    def _given(self) -> list[tuple[str, KernelParameter]]:
        """The parameters but for centres and label, numbered as in the chain that the user wrote."""
        captured = []
        for declared, parameter in self.function.given:
            one = _without_label(parameter)
            if one is not None and one != self.labels.centres:
                captured.append((declared, one))
        return captured

    def _named(self, wanted: KernelParameter | None, otherwise: str) -> str:
        """Return the name of a parameter in the row function."""
        return next((declared.rpartition(" ")[2] for declared, parameter in self.function.given
                     if _without_label(parameter) == wanted), otherwise)

    def _kernel(self) -> list[str]:
        shape, labels = self.labels.shape, self.labels
        centres = self._named(labels.centres, "nearest_centre")
        others = [f"const {KINDS[labels.centres.dtype]}* __restrict__ {centres}",
                  *(declared for declared, _ in self._given)]
        image = ["const unsigned char* __restrict__ image"] if shape.ring else []
        declared = ["const long long* __restrict__ works", "void* const* __restrict__ ports", *self._partials(), *image,
                    *others]
        text = IndentedText()
        text.add("extern __shared__ __align__(128) unsigned char memory[];",
                 "Shape::SharedStorage& storage = *(Shape::SharedStorage*)memory;")
        if not shape.ring:
            text.add("const unsigned char* const image = nullptr;")
        text.add(f"const rows::Work work(works, ports, {len(self.ports)});")
        for number, port in enumerate(self.ports):
            const = "" if port.output else "const "
            text.add(f"{const}{port.c}* __restrict__ const {port.base} = work.of<{const}{port.c}>({number}, "
                     f"{port.count});")
        lane = [f"const int lane = threadIdx.x % {WARP};", "unsigned char* const scratch = nullptr;"]
        text.choose(lambda part: part.add("if (threadIdx.x != 0) return;"),
                    (lambda part: part.add(*lane)) if self.table.lanes > 1 else None)
        arguments = f"{self.ports[0].base}, work.count, storage, image, {centres}"
        if self.by_key:
            self._fold_by_key(text, self.by_key, arguments)
        else:
            text.choose(lambda part: self._rows_on_host(part, f"{self.ports[0].base}, work.count, {centres}"),
                        lambda part: self._rows_in_chunks(part, arguments))
        return [*shape.types(), *self._values(), *shape.preparing(others, centres),
                f'extern "C" __global__ void __launch_bounds__({shape.threads}, 1)',
                f"{self.name}({', '.join(declared)})", "{", *text.lines, "}"]

    def _partials(self) -> list[str]:
        if self.by_key is None:
            return super()._partials()
        return [f"{one.accumulator}* __restrict__ partial_{number}"
                for number, one in enumerate(self.by_key.accumulated)]

    def _label(self, text: IndentedText, label: str) -> None:
        name = self._named(None, "")
        if name:
            text.add(f"const long long {name} = {label};")

    # -- results that are stored or folded as a whole -----------------------------------------------------------------

    def _rows_on_host(self, text: IndentedText, operands: str) -> None:
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::Columns<{one.functor}, {one.of}, {one.element}, {one.accumulator}, 1> "
                         f"{folded.name(one)};")
        text.add(f"Shape::label_all({operands}, [&](long long row, int label) {{")
        self._label(text, "label")
        places = {port.local: at_row(port, "row") for port in self.ports} | self._declared_results(text, 1)
        text.add(self._call(places, lanes=False))
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"{folded.name(one)}.take(&{folded.port.local});")
                if one.fold == "rows::Fold<Add, Value, float, double>":
                    text.add(f"if (row % {FLUSHED} == {FLUSHED - 1}) {folded.name(one)}.flush();")
        text.add("});")
        for folded in self.folded:
            for one in folded.accumulated:
                text.add(f"rows::leave_alone<{one.functor}, {one.width}>({folded.partial(one)}, {folded.name(one)});")

    def _rows_in_chunks(self, text: IndentedText, operands: str) -> None:
        groups = self.table.groups
        self._declare_folds(text)
        text.add(f"Shape::chunks({operands}, [&](long long first, int count) {{",
                 f"for (int i = threadIdx.x / {self.table.lanes}; i < count; i += {groups}) {{",
                 "const long long row = first + i;")
        self._label(text, "storage.labels[i]")
        self._one_row(text, {port.local: at_row(port, "row") for port in self.ports}, "row")
        if self._flushes:
            text.add(f"if (i / {groups} % {FLUSHED} == {FLUSHED - 1}) {{")
            self._flush(text, self.table.lanes)
            text.add("}")
        text.add("}", "});")
        self._store_results(text)

    # -- results that are folded by label -----------------------------------------------------------------------------

    def _values(self) -> list[str]:
        """Return the declaration of the values of a row that are folded by label."""
        if not self.by_key or not self.folded:
            return []
        return ["struct Values {", *(f"    {each.port.c} {each.port.local};" for each in self.folded), "};", ""]

    def _fold_by_key(self, text: IndentedText, by_key: _ByKey, operands: str) -> None:
        shape = self.labels.shape
        cells: dict[int, str] = {}
        sums, whole = f"({SUMS[self.labels.row.dtype]}*)nullptr", by_key.groups == shape.centres
        for number, (one, store) in enumerate(zip(by_key.accumulated, by_key.stores, strict=True)):
            if store in ("least", "greatest"):
                continue
            width = one.width // by_key.groups
            text.add(f"{one.accumulator}* const cells_{number} = partial_{number} + blockIdx.x * {one.width}ll;")
            if store == "computed" or not whole:
                text.add(f"nearest::start<{one.functor}>(cells_{number}, {one.width});")
            cells[number] = f"cells_{number} + {by_key.offset * width}" if by_key.offset else f"cells_{number}"
            if store == "":
                sums = cells[number]
        text.choose(together=lambda part: part.add("__syncthreads();"))
        if not self.folded:
            text.add(f"Shape::fold({operands}, {sums});")
        else:
            text.choose(lambda part: self._values_on_host(part, by_key, cells, f"{operands}, {sums}"),
                        lambda part: self._values_by_label(part, by_key, cells, f"{operands}, {sums}"))
        text.add(f"nearest::for_each<{shape.centres}>(storage, [&](int k, long long count) {{")
        for number, store in enumerate(by_key.stores):
            if store not in ("", "computed", "least", "greatest"):
                text.add(f"({cells[number]})[k] = {store};")
        text.add("});", "if (threadIdx.x == 0) {")
        for number, store in enumerate(by_key.stores):
            if store in ("least", "greatest"):
                text.add(f"partial_{number}[blockIdx.x] = nearest::{store}<{shape.centres}>(storage, {by_key.offset});")
        text.add("}")

    def _computed(self, by_key: _ByKey) -> list[tuple[int, Accumulated, str]]:
        """Return the accumulators of what the rest gives, with their numbers, and the variable of a row's."""
        names = {each.port.parameter.name: each.port.local for each in self.folded}
        return [(number, one, names[one.field]) for number, one in enumerate(by_key.accumulated)
                if by_key.stores[number] == "computed"]

    def _places(self, text: IndentedText) -> dict[str, str]:
        return {port.local: at_row(port, "row") for port in self.function.inputs} | self._declared_results(text, 1)

    def _values_on_host(self, text: IndentedText, by_key: _ByKey, cells: dict[int, str], operands: str) -> None:
        text.add(f"Shape::fold({operands}, [&](long long row, int label) {{")
        self._label(text, "label")
        text.add(self._call(self._places(text), lanes=False))
        for number, one, name in self._computed(by_key):
            text.add(f"rows::take<{one.functor}, {one.of}>(({cells[number]})[label], {name});")
        text.add("});")

    def _values_by_label(self, text: IndentedText, by_key: _ByKey, cells: dict[int, str], operands: str) -> None:
        shape, lanes = self.labels.shape, self.table.lanes
        text.add(f"Shape::fold({operands}, [&](long long first) {{",
                 f"nearest::by_label<Values, {shape.centres}, {shape.threads}, {lanes}>(storage,",
                 "[&](int i, Values& values) {", "const long long row = first + i;")
        self._label(text, "storage.labels[i]")
        text.add(self._call(self._places(text), lanes=True))
        guard = "if (lane == 0) " if lanes > 1 else ""
        text.add(*(f"{guard}values.{each.port.local} = {each.port.local};" for each in self.folded),
                 "}, [&](int k, const Values* values, int count) {")
        for number, one, name in self._computed(by_key):
            text.add(f"nearest::fold_into<{one.fold}, {one.functor}>({cells[number]} + k, count, "
                     f"[&](int i) {{ return values[i].{name}; }});")
        text.add("});", "});")


def _without_label(parameter: KernelParameter) -> KernelParameter | None:
    """Return a parameter of the rest with its number in the chain that the user wrote; None for the label, which that
    chain does not have.
    """
    if parameter.kind != "argument":
        return parameter
    return replace(parameter, number=parameter.number - 1) if parameter.number else None
