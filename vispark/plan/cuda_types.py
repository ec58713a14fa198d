"""Types of a CUDA source: built-in ones, ``typedef``, ``using``, macros and structures, read from its text.

What the text settles twice in different ways, as under ``#ifdef``, is not known here: the compiler decides it, see
:mod:`vispark.plan.argument_checks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|union|enum"
                         r"|typename)\b|\[\[.*?\]\]|\b__align__\s*\([^)]*\)")

#: The words of built-in types.
TYPE_WORDS = frozenset({"unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool", "void"})
_WORDS = re.compile(r"[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*")

#: The dtypes that a C type holds, NumPy's name for it first.
_DTYPES = {
    "bool": ("|b1",), "char": ("|i1", "|u1", "|b1"), "signed char": ("|i1",), "unsigned char": ("|u1", "|b1"),
    "short": ("<i2",), "unsigned short": ("<u2",), "int": ("<i4",), "unsigned int": ("<u4",),
    "long": ("<i8",), "unsigned long": ("<u8",), "long long": ("<i8",), "unsigned long long": ("<u8",),
    "float": ("<f4",), "double": ("<f8",), "half": ("<f2",), "__half": ("<f2",),
    "int8_t": ("|i1",), "int16_t": ("<i2",), "int32_t": ("<i4",), "int64_t": ("<i8",),
    "uint8_t": ("|u1", "|b1"), "uint16_t": ("<u2",), "uint32_t": ("<u4",), "uint64_t": ("<u8",),
    "size_t": ("<u8",), "ssize_t": ("<i8",), "ptrdiff_t": ("<i8",), "intptr_t": ("<i8",), "uintptr_t": ("<u8",),
    "uint": ("<u4",), "ushort": ("<u2",), "uchar": ("|u1", "|b1"), "ulong": ("<u8",),
}

#: Names that stand for others, or may, keep this many steps apart at most.
_MOST_STEPS = 32


@dataclass(frozen=True)
class CudaStructure:
    """Memory layout of a structure: offset and dtype of each number in it, and its size and alignment in bytes."""

    numbers: tuple[tuple[int, str], ...]
    nbytes: int
    alignment: int

    @classmethod
    def of_members(cls, members: Sequence[tuple[CudaStructure, int]]) -> CudaStructure:
        """Lay out members one after the other as C does, each repeated ``count`` times."""
        numbers: list[tuple[int, str]] = []
        end, alignment = 0, 1
        for member, count in members:
            alignment = max(alignment, member.alignment)
            start = -(-end // member.alignment) * member.alignment
            end = start + member.nbytes * count
            numbers += [(start + number * member.nbytes + offset, dtype) for number in range(count)
                        for offset, dtype in member.numbers]
        return cls(tuple(numbers), -(-end // alignment) * alignment, alignment)

    @classmethod
    def of_dtype(cls, dtype: np.dtype) -> CudaStructure:
        """Read the layout of a NumPy dtype."""
        return cls(tuple(_numbers(dtype, 0)), dtype.itemsize, dtype.alignment)

    @property
    def elements(self) -> tuple[str, ...] | None:
        """The dtypes of arrays whose elements, side by side, are such structures; None if its numbers differ."""
        kinds = {dtype for _, dtype in self.numbers}
        if len(kinds) != 1:
            return None
        dtype, = kinds
        pair = len(self.numbers) == 2 and dtype in ("<f4", "<f8")
        return (dtype, f"<c{self.nbytes}") if pair else (dtype,)

    def __str__(self) -> str:
        numbers = ", ".join(f"{np.dtype(dtype).name} at {offset}" for offset, dtype in self.numbers)
        return f"{self.nbytes} bytes: {numbers}"


def _numbers(dtype: np.dtype, start: int) -> Iterator[tuple[int, str]]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for number in range(int(np.prod(shape))):
            yield from _numbers(base, start + number * base.itemsize)
    elif dtype.fields is not None:
        for name in dtype.names or ():
            field, offset = dtype.fields[name][:2]
            yield from _numbers(field, start + offset)
    else:
        yield start, dtype.str


def _vectors() -> dict[str, CudaStructure]:
    """Return CUDA's vector types by name."""
    aligned = {"char": (1, 2, 1, 4), "short": (2, 4, 2, 8), "int": (4, 8, 4, 16), "long": (8, 16, 8, 16),
               "longlong": (8, 16, 8, 16), "float": (4, 8, 4, 16), "double": (8, 16, 8, 16)}
    dtypes = {"char": "|i1", "short": "<i2", "int": "<i4", "long": "<i8", "longlong": "<i8", "float": "<f4",
              "double": "<f8"}
    vectors = {}
    for name, alignments in aligned.items():
        for prefix in ("", "u") if dtypes[name][1] == "i" else ("",):
            dtype = dtypes[name].replace("i", prefix or "i")
            size = np.dtype(dtype).itemsize
            for count, alignment in enumerate(alignments, 1):
                numbers = tuple((place * size, dtype) for place in range(count))
                vectors[f"{prefix}{name}{count}"] = CudaStructure(numbers, count * size, alignment)
    vectors["dim3"] = vectors["uint3"]
    vectors["cuFloatComplex"] = vectors["cuComplex"] = vectors["float2"]
    vectors["cuDoubleComplex"] = vectors["double2"]
    return vectors


_STRUCTURES = _vectors()
_POINTER = CudaStructure(((0, "<u8"),), 8, 8)


@dataclass(frozen=True)
class CudaType:
    """A parameter's or a member's type.

    Attributes
    ----------
    depth : int
        How many addresses lead to the value; 0 for the value itself.
    dtypes : tuple of str or None
        The dtypes of that value; None where it is no number, or not known.
    structure : CudaStructure or None
        Its layout where it is a structure.
    known : bool
        Whether the text says what it is; otherwise the compiler is to be asked.
    """

    depth: int
    dtypes: tuple[str, ...] | None
    structure: CudaStructure | None
    known: bool
    constant: bool


class Types:
    """The types that a source gives names to.

    Parameters
    ----------
    text : str
        The source without comments, strings and preprocessor lines.
    macros : mapping of str to str
        The bodies of its macros; one with NUL characters is not the same everywhere, one that begins with a parenthesis
        takes arguments.

    Examples
    --------
    >>> types = Types("typedef float real; using Row = real*; struct Pair { int key; real value[2]; };", {})
    >>> types.read("const real* x").dtypes, types.read("Row row").depth, types.read("Pair p").structure.nbytes
    (('<f4',), 1, 12)
    """

    def __init__(self, text: str, macros: Mapping[str, str]):
        self._macros = macros
        #: The text of a type by its other names; None where there are several.
        self._aliases: dict[str, str | None] = {}
        self._bodies: dict[str, str | None] = {}
        self._structures: dict[str, CudaStructure | None] = {}
        for name, target in _aliases(text):
            _add(self._aliases, name, target)
        for name, body in _structures(text):
            _add(self._bodies, name, body)

    def read(self, declaration: str, hidden: frozenset[str] = frozenset()) -> CudaType:
        """Read a declaration, such as ``const float* x``; ``hidden`` are a template's names for types."""
        text, constant = self._expanded(declaration, hidden)
        if text is None:
            return CudaType(0, None, None, False, False)
        plain = without_templates(_QUALIFIERS.sub(" ", text))
        depth = plain.count("*") + plain.count("[")
        name = _c_type(_words(plain))
        dtypes = _DTYPES.get(name)
        structure = None if dtypes else self._structure(name)
        is_known = bool(dtypes or structure or name == "void" or depth > 1)
        return CudaType(depth, dtypes, structure, is_known, constant)

    def _expanded(self, declaration: str, hidden: frozenset[str]) -> tuple[str | None, bool]:
        """Return a declaration with aliases of types expanded, and whether its pointer's target is ``const``.

        The text is None where a name is not the same everywhere.
        """
        text, constant = declaration, False
        for _ in range(_MOST_STEPS):
            plain = without_templates(_QUALIFIERS.sub(" ", text))
            words = _words(plain)
            if "(" in plain or "&" in plain or not hidden.isdisjoint(words):
                return None, False
            name = next((word for word in words if word in self._macros), None)
            if name is None:
                name = words[0] if words and TYPE_WORDS.isdisjoint(words) else ""
                if name not in self._aliases:
                    name = name.rpartition("::")[2]
                if name not in self._aliases:
                    return text, constant or bool(re.search(r"\bconst\b", text.rpartition("*")[0] or text))
                target = self._aliases[name]
            else:
                body = self._macros[name]
                target = body if re.fullmatch(r"[\w\s:*]*", body) and not body.strip().isdecimal() else None
            if target is None:
                return None, False
            if "*" in target:       # `const` beside such a name is of the address
                text = re.sub(r"\bconst\b", " ", text)
            text = re.sub(rf"(?:\w+\s*::\s*)*\b{re.escape(name)}\b", target.replace("\\", ""), text, count=1)
        return None, False

    def _structure(self, name: str) -> CudaStructure | None:
        """Return the layout of a structure of the source, or of CUDA's; None if it is not known."""
        if name not in self._bodies:
            name = name.rpartition("::")[2]
        if name not in self._bodies:
            return _STRUCTURES.get(name)
        if name not in self._structures:
            self._structures[name] = None       # also while it is read, should it name itself
            body = self._bodies[name]
            self._structures[name] = None if body is None else self._laid_out(body)
        return self._structures[name]

    def _laid_out(self, body: str) -> CudaStructure | None:
        members: list[tuple[CudaStructure, int]] = []
        for line in filter(None, map(str.strip, body.split(";"))):
            kind, *others = line.split(",")
            first = re.fullmatch(r"(.*?)(\**\s*\w+\s*(?:\[[^\]]*\]\s*)*)", kind.strip(), re.DOTALL)
            if first is None or not re.fullmatch(r"[\w\s:*\[\],]+", line) or re.search(r"\w:[^:]|\bstatic\b", line):
                return None
            for declarator in (first[2], *others):
                counts = re.findall(r"\[\s*(\w*)\s*\]", declarator)
                numbers = [self._macros.get(count, count).strip() for count in counts]
                read = self.read(f"{first[1]} {declarator.partition('[')[0]}")
                member = _POINTER if read.depth else _number(read.dtypes) or read.structure
                if member is None or not all(number.isdecimal() for number in numbers):
                    return None
                members.append((member, int(np.prod([int(number) for number in numbers], initial=1))))
        return CudaStructure.of_members(members) if members else None


def _number(dtypes: tuple[str, ...] | None) -> CudaStructure | None:
    return CudaStructure.of_dtype(np.dtype(dtypes[0])) if dtypes else None


def _add(table: dict[str, str | None], name: str, value: str | None) -> None:
    table[name] = value if table.setdefault(name, value) == value else None


def _words(plain: str) -> list[str]:
    return [re.sub(r"\s", "", word) for word in _WORDS.findall(re.sub(r"\[.*", "", plain, flags=re.DOTALL))]


def _c_type(words: Sequence[str]) -> str:
    """Return the canonical name of a declaration's type, from its words without qualifiers; the last may be a name."""
    builtin = [word for word in words if word in TYPE_WORDS]
    if not builtin:
        return words[0].removeprefix("std::") if words else ""
    sign = "unsigned " if "unsigned" in builtin else ("signed " if "signed" in builtin and "char" in builtin else "")
    for base in ("void", "bool", "float", "double", "char", "short"):
        if base in builtin:
            return "long double" if base == "double" and "long" in builtin else sign + base
    return sign + (" ".join(["long"] * builtin.count("long")) or "int")


def without_templates(text: str) -> str:
    """Return the text with a non-type mark in place of template arguments, so that the type is not taken for a known
    one.
    """
    before = ""
    while before != text:
        before, text = text, re.sub(r"([A-Za-z_][\w:]*)\s*<[^<>]*>", r"\1_of", text)
    return text


# -- reading a source -------------------------------------------------------------------------------------------------

_USING = re.compile(r"\busing\s+([A-Za-z_]\w*)\s*=\s*([^;{}]+);")
_TYPEDEF = re.compile(r"\btypedef\s+([^;{}]+);")
_ENUM = re.compile(r"\benum\s*(?:class\s+|struct\s+)?(\w+)?\s*(?::\s*([\w\s:]+?)\s*)?\{[^{}]*\}\s*(\w*)")
_STRUCTURE = re.compile(r"(\btypedef\s+)?\b(struct|union|class)\b([^;{}()]*)\{")


def _aliases(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield aliases and the types that they stand for; None for other than plain types."""
    for match in _USING.finditer(text):
        yield match[1], match[2]
    for match in _TYPEDEF.finditer(text):
        if re.search(r"[()<>\0]", match[1]):
            name = re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^\]]*\]\s*)*$", match[1])
            if name:
                yield name[1] or name[2], None if "(" in match[1] or "\0" in match[1] else match[1][:name.start()]
            continue
        first, *others = match[1].split(",")
        kind = re.fullmatch(r"(.*?)(\**\s*\w+\s*(?:\[[^\]]*\]\s*)*)", first.strip(), re.DOTALL)
        for declarator in (kind[2], *others) if kind else ():
            name = re.search(r"\w+", declarator)
            if kind and name:
                depth = declarator.count("*") + declarator.count("[")
                yield name[0], kind[1] + "*" * depth
    for match in _ENUM.finditer(text):
        for enumeration in filter(None, (match[1], match[3])):
            yield enumeration, match[2] or "int"


def _structures(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield names of structures with the text between their braces; None if it is more than a list of members."""
    for match in _STRUCTURE.finditer(text):
        end, depth = match.end(), 1
        while depth and end < len(text):
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        body = text[match.end():end - 1]
        head = match[3].split(":")[0]
        simple = match[2] == "struct" and not re.search(r"[:{}()=\0]|\b(?:alignas|__align__|__attribute__)\b",
                                                        match[3] + body.replace("::", ""))
        names = [re.sub(r"[^\w].*", "", head.strip())]
        if match[1]:
            names += re.findall(r"^\s*(\w+)\s*[;,]", text[end:end + 256])
        for name in filter(None, names):
            yield name, body if simple else None
