"""CUDA C++ sources of the user's, and declarations read from their text without a compiler.

The ``__global__`` functions and their parameter lists are found in the text, so that a misspelt kernel or a wrong
argument is an error where it is written. What the text does not settle (kernels that macros make, parameters whose type
is a template's) is left to the compiler, see :mod:`vispark.plan.argument_checks`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpu_worker.protocol.errors import LaunchError, PlanError
from gpu_worker.protocol.frozen import dataclass
from gpu_worker.protocol.shared import Shared
from vispark._utils.boundary import brief
from vispark.plan.cuda_types import TYPE_WORDS, CudaStructure, Types
from vispark.plan.references import HeldValue
from vispark.translate.ir.references import Reference


class UnknownKernel(PlanError, AttributeError):
    """Error of a name that is no kernel of its source; an ``AttributeError`` too, so that ``hasattr`` works."""


# -- arrays by value --------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class ArrayValue:
    """An array's content at one moment: hashable, equal by content.

    ``dtype`` is NumPy's string for it, ``data`` its elements in C order and native byte order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | Shared | Reference | HeldValue

    @classmethod
    def of(cls, array: np.ndarray | np.generic, what: str) -> ArrayValue:
        """Copy an array; ``what`` names it in errors.

        Raises
        ------
        LaunchError
            If its dtype is none that a kernel can read: objects, strings, dates, structures.
        """
        dtype = device_dtype(array.dtype, what)
        return cls(dtype, array.shape, np.asarray(array, dtype=dtype).tobytes())

    @classmethod
    def of_structures(cls, array: np.ndarray, what: str) -> ArrayValue:
        """Copy an array of structures, whose elements are so many bytes from here on; ``what`` names it in errors.

        Raises
        ------
        LaunchError
            If its structures hold Python objects, or nothing.
        """
        dtype = array.dtype.newbyteorder("=")
        if dtype.hasobject:
            raise LaunchError(f"{what} has dtype {dtype}, with Python objects, which no kernel reads")
        if not dtype.itemsize:
            raise LaunchError(f"{what} has structures of 0 bytes")
        return cls(f"|V{dtype.itemsize}", array.shape, array.astype(dtype, copy=False).tobytes())

    def __repr__(self) -> str:
        dtype = np.dtype(self.dtype)
        kind = f"structure of {dtype.itemsize} bytes," if dtype.kind == "V" else dtype.name
        return f"{kind} array {self.shape}"


def device_dtype(dtype: Any, what: str) -> str:
    """Return NumPy's string for a dtype in native byte order.

    Raises
    ------
    LaunchError
        If it is not bool, integer, float or complex of a size that kernels know.
    """
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        raise LaunchError(f"{what} has {dtype!r} for a dtype, which NumPy does not know") from error
    if parsed.kind not in "biufc" or parsed.itemsize > (16 if parsed.kind == "c" else 8) or parsed.shape:
        raise LaunchError(f"{what} has dtype {parsed}; a kernel takes bool, integers, floats and complex numbers of at"
                          " most 64 bits a part")
    return str(parsed.newbyteorder("=").str)


# -- parameters -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True)
class DeclaredParameter:
    """One parameter of a kernel as declared.

    Attributes
    ----------
    text : str
        The declaration, such as ``"const float* x"``.
    pointer : bool or None
        Whether it takes an address; None where the text does not say.
    constant : bool
        Whether what it points to is ``const``.
    dtypes : tuple of str or None
        The dtypes of the value or of the elements pointed to; None where any may be right.
    structure : CudaStructure or None
        The layout of a structure by value, where the text shows it.
    settled : bool
        Whether the text says the type; otherwise the compiler is asked whether an argument fits.
    target : CudaStructure or None
        The layout of the structures that a pointer points to, where the text shows it.
    """

    text: str
    pointer: bool | None
    constant: bool
    dtypes: tuple[str, ...] | None
    structure: CudaStructure | None
    settled: bool
    target: CudaStructure | None = None

    @classmethod
    def parse(cls, text: str, types: Types, hidden: frozenset[str] = frozenset()) -> DeclaredParameter:
        """Read a declaration with a source's types; ``hidden`` are a template's names, which may stand for any type."""
        declared = " ".join(_without_default(text).split())
        read = types.read(declared, hidden)
        value = bool(read.dtypes or read.structure)
        if read.depth:
            dtypes = read.structure.elements if read.structure and read.depth == 1 else read.dtypes
            target = read.structure if read.depth == 1 else None
            return cls(declared, True, read.constant, dtypes if read.depth == 1 else None, None, read.known, target)
        return cls(declared, False if value else None, read.constant, read.dtypes, read.structure, value)


def _without_default(text: str) -> str:
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "=" and depth == 0:
            return text[:position]
    return text


@dataclass(frozen=True, slots=True)
class Declaration:
    """Kernel as its source declares it; ``parameters`` is None if the text does not settle them."""

    name: str
    template: bool
    parameters: tuple[DeclaredParameter, ...] | None

    def __str__(self) -> str:
        shown = "..." if self.parameters is None else ", ".join(parameter.text for parameter in self.parameters)
        return f"__global__ void {self.name}({shown})"


# -- reading a source -------------------------------------------------------------------------------------------------

#: Stands for a preprocessor line that was taken out.
_DIRECTIVE = "\0"
_NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/"""
                    r"""|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\""""
                    r"""|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_LINE = re.compile(r"^[ \t]*#[ \t]*(.*)$", re.MULTILINE)
_DEFINE = re.compile(r"define\s+([A-Za-z_]\w*)(\()?(.*)")
_WORD = re.compile(r'(?:\s|\0|"")*([A-Za-z_]\w*)\s*(?=(\S))')
_ATTRIBUTES = frozenset({"__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__",
                         "__declspec", "alignas", "__align__"})
_CLOSING = {"(": ")", "[": "]", "<": ">"}


@dataclass(frozen=True, slots=True)
class _Scan:
    """Names that the text of a source declares. ``complete`` is false if macros may make kernels that the text does not
    show.
    """

    declarations: Mapping[str, Declaration]
    constants: frozenset[str]
    complete: bool
    #: What constants that are structures, or arrays of them, consist of.
    layouts: Mapping[str, CudaStructure]


@functools.lru_cache(maxsize=256)
def _scan(source: str, options: tuple[str, ...]) -> _Scan:
    macros: dict[str, str] = {}
    text = _without_directives(source, macros)
    for option in options:
        if option.startswith("-D"):
            name, _, body = option[2:].partition("=")
            _define(macros, name.partition("(")[0], ("(" if "(" in name else "") + (body or "1"))
    complete = not any("__global__" in body or "##" in body for body in macros.values())
    declarations: dict[str, list[Declaration]] = {}
    types = Types(text, macros)
    for match in re.finditer(r"\b__global__\b", text):
        declaration = _declaration(text, match, macros, types)
        if declaration is None:
            complete = False
        else:
            declarations.setdefault(declaration.name, []).append(declaration)
    symbols = re.findall(r"\b__constant__\b([^;{=]*)", text)
    return _Scan({name: _merged(several) for name, several in declarations.items()},
                 frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(symbols))), complete, _layouts(symbols, types))


def _layouts(symbols: Sequence[str], types: Types) -> dict[str, CudaStructure]:
    """Return the layouts of constants that are structures, by name, from declarations such as ``Box box, more[2]``."""
    structures = {}
    for text in symbols:
        match = re.match(r"\s*(.*?[\s])\s*([A-Za-z_]\w*\s*(?:\[.*|,.*|$))", text, re.DOTALL)
        read = types.read(match[1].replace("static", "").replace("extern", "").strip()) if match else None
        if match and read is not None and read.structure is not None and not read.depth:
            structures.update(dict.fromkeys(re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)", match[2]), read.structure))
    return structures


def _without_directives(source: str, macros: dict[str, str]) -> str:
    """Return the source without comments, strings and preprocessor lines, whose macros are added to ``macros``."""
    text = source.replace("\r\n", "\n").replace("\\\n", "")
    text = _NOISE.sub(lambda match: " " if match[0].startswith("/") else '""', text)

    def directive(match: re.Match[str]) -> str:
        define = _DEFINE.match(match[1])
        if define:
            _define(macros, define[1], (define[2] or "") + define[3])
        return _DIRECTIVE

    return _LINE.sub(directive, text)


def _define(macros: dict[str, str], name: str, body: str) -> None:
    """Record a macro; different bodies are joined, with a mark between them."""
    before = macros.setdefault(name, body)
    if before.strip() != body.strip():
        macros[name] = before + _DIRECTIVE + body


def _declaration(text: str, match: re.Match[str], macros: Mapping[str, str], types: Types) -> Declaration | None:
    """Return the kernel declared at a ``__global__``; None if a macro hides it."""
    head = re.split(r"[;{}]", text[:match.start()])[-1]
    position = match.end()
    while True:
        while text[position:position + 64].lstrip().startswith("[["):
            position = _closing(text, text.index("[", position))
        word = _WORD.match(text, position)
        if word is None or position < 0:
            return None
        name, following, position = word[1], word[2], word.end()
        if following == "(" and (name in _ATTRIBUTES or macros.get(name, "").startswith("(")):
            position = _closing(text, position)
        elif following == "(" or following == "<":
            break
    special = following == "<"
    if special:
        position = text.find("(", _closing(text, position))
    end = _closing(text, position)
    if name in macros or position < 0 or end < 0:
        return None
    template = special or "template" in head.split("<")[0].split()
    hidden = frozenset(re.findall(r"([A-Za-z_]\w*)\s*(?=[,=>])", head)) - TYPE_WORDS
    return Declaration(name, template, _parameters(text[position + 1:end - 1], macros, types, hidden))


def _closing(text: str, start: int) -> int:
    """Return the position behind the bracket that closes the one at ``start``; -1 without one."""
    opening = text[start] if 0 <= start < len(text) else ""
    depth = 0
    for position in range(start, len(text) if opening in _CLOSING else start):
        depth += (text[position] == opening) - (text[position] == _CLOSING[opening])
        if depth == 0:
            return position + 1
    return -1


def _parameters(text: str, macros: Mapping[str, str], types: Types,
                hidden: frozenset[str]) -> tuple[DeclaredParameter, ...] | None:
    """Return a parameter list; None if preprocessor lines, packs or macros keep its length open."""
    used = set(re.findall(r"[A-Za-z_]\w*", text)) & macros.keys()
    if _DIRECTIVE in text or "..." in text or any(re.search(r"[,(]", macros[name]) for name in used):
        return None
    if text.strip() in ("", "void"):
        return ()
    parts = _split(text)
    return None if parts is None else tuple(DeclaredParameter.parse(part, types, hidden) for part in parts)


def _split(text: str) -> list[str] | None:
    """Return the parts between the commas that stand outside all brackets; None if a ``<`` is no bracket."""
    parts = [""]
    angles = position = 0
    while position < len(text):
        character = text[position]
        end = _closing(text, position) if character in "([" else position + 1
        angles += (character == "<") - (character == ">")
        if character == "," and angles == 0:
            parts.append("")
        else:
            parts[-1] += text[position:end]
        position = max(end, position + 1)
    return parts if angles == 0 else None


def _merged(several: Sequence[Declaration]) -> Declaration:
    """Merge all declarations of a name into one; its parameters are unknown if the declarations disagree."""
    kinds = {None if one.parameters is None else
             tuple((each.pointer, each.dtypes, each.structure) for each in one.parameters) for one in several}
    template = all(one.template for one in several)
    return Declaration(several[0].name, template, several[0].parameters if len(kinds) == 1 else None)


# -- compiler options -------------------------------------------------------------------------------------------------

_MACRO = r"[A-Za-z_]\w*(?:\([^)]*\))?"
_ALLOWED = tuple(re.compile(pattern, re.DOTALL) for pattern in (
    rf"-D{_MACRO}(?:=.*)?", r"-U[A-Za-z_]\w*", r"-{1,2}std=c\+\+(?:11|14|17|20)", r"-{1,2}use_fast_math",
    r"-lineinfo|--generate-line-info", r"-{1,2}maxrregcount=\d+",
    r"-{1,2}(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)"))
_REFUSED = {
    "-I": "its folder is not there on the workers; put the text of the header into the source",
    "--include-path": "its folder is not there on the workers; put the text of the header into the source",
    "-arch": "a worker compiles for the device that it has",
    "--gpu-architecture": "a worker compiles for the device that it has",
}


def _checked_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options, each as one word (``"-D", "N=1"`` and ``"-D N=1"`` become ``"-DN=1"``)."""
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise PlanError(f"options is a list of strings such as [\"-DD=40\"], not {options!r}")
    checked: list[str] = []
    for option in options:
        if checked and checked[-1] in ("-D", "-U"):
            checked[-1] += option.strip()
        else:
            checked.append(re.sub(r"^(-[DU])\s+", r"\1", option.strip()))
    for option in checked:
        if not any(pattern.fullmatch(option) for pattern in _ALLOWED):
            reason = next((reason for prefix, reason in _REFUSED.items() if option.startswith(prefix)),
                          "known are -D, -U, -std=c++NN, --use_fast_math, -lineinfo, --maxrregcount=N, --fmad=, --ftz=,"
                          " --prec-div= and --prec-sqrt= (true or false)")
            raise PlanError(f"the compiler option {option!r} is refused: {reason}")
    return tuple(checked)


# -- what the user holds ----------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Kernels:
    """The kernels of one CUDA C++ source; each is an attribute, or an item under its full name.

    Parameters
    ----------
    source : str
        CUDA C++, as a compiler takes it.
    options : sequence of str
        Compiler options: ``-D``, ``-U``, ``-std=c++NN``, ``--use_fast_math``, ``-lineinfo``, ``--maxrregcount=N``,
        ``--fmad=``, ``--ftz=``, ``--prec-div=`` and ``--prec-sqrt=``.
    constants : mapping of str to numpy.ndarray, optional
        What the source's ``__constant__`` symbols hold: arrays and scalars, also structured ones, which are copied.
    file : str
        What the compiler's messages call the source.

    Raises
    ------
    PlanError
        If the source has no kernel, an option is not among those above, or a constant not in the source.

    Examples
    --------
    >>> scaling = Kernels('''
    ... extern "C" __global__ void scale(float* x, float by, int n) {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) x[i] *= by;
    ... }
    ... template <typename T> __global__ void fill(T* x, T with) { x[threadIdx.x] = with; }''')
    >>> scaling
    Kernels('kernels.cu': fill<...>, scale)
    >>> scaling.scale
    Kernel(scale)
    >>> scaling["fill<double>"]
    Kernel(fill<double>)
    """

    source: str
    options: tuple[str, ...]
    constants: tuple[tuple[str, ArrayValue], ...]
    file: str

    @brief
    def __init__(self, source: str, options: Sequence[str] = (), *,
                 constants: Mapping[str, np.ndarray] | None = None, file: str = "kernels.cu"):
        if not isinstance(source, str):
            raise PlanError(f"source is the text of a CUDA C++ source, not {type(source).__name__}")
        path = source.strip()
        if "\n" not in path and path.endswith((".cu", ".cuh")):
            raise PlanError(f"source is the name of a file, {path!r}, not its text: write Kernels.from_file({path!r})")
        values = {"source": source, "options": _checked_options(options), "file": file,
                  "constants": tuple((name, _constant(name, value))
                                     for name, value in sorted((constants or {}).items()))}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check(constants or {})

    @classmethod
    def from_file(cls, path: str | Path, options: Sequence[str] = (), *,
                  constants: Mapping[str, np.ndarray] | None = None) -> Kernels:
        """Read the source from a file, whose name the compiler's messages then show.

        Parameters
        ----------
        path : str or Path
            Of a file of CUDA C++ in UTF-8.
        options, constants
            As of :class:`Kernels`.

        Returns
        -------
        Kernels
            Of the file's text.

        Raises
        ------
        OSError
            If the file cannot be read.
        PlanError
            As of :class:`Kernels`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "twice.cu")
        ...     _ = path.write_text('extern "C" __global__ void twice(float *x) { x[0] *= 2; }')
        ...     Kernels.from_file(path).twice.name
        'twice'
        """
        return cls(Path(path).read_text(encoding="utf-8"), options, constants=constants, file=Path(path).name)

    def _check(self, constants: Mapping[str, np.ndarray | np.generic]) -> None:
        scan = _scan(self.source, self.options)
        if not scan.complete:
            return
        if not scan.declarations:
            raise PlanError(f"there is no __global__ function in {self.file!r}")
        for name, _ in self.constants:
            if name not in scan.constants:
                raise PlanError(f"there is no __constant__ {name} in {self.file!r}")
        for name, value in constants.items():
            declared, dtype = scan.layouts.get(name), value.dtype.newbyteorder("=")
            if declared is not None and dtype.fields and CudaStructure.of_dtype(dtype).numbers != declared.numbers:
                raise PlanError(f"the constant {name} consists of structures of {declared}; it is given "
                                f"{CudaStructure.of_dtype(dtype)} (np.dtype(..., align=True) lays fields out as C)")

    def declaration(self, name: str) -> Declaration | None:
        """Return the declaration of a kernel or of the template it is an instance of; None if macros hide it.

        Raises
        ------
        UnknownKernel
            If the source cannot have such a kernel.
        """
        scan = _scan(self.source, self.options)
        match = re.fullmatch(r"(?:[A-Za-z_]\w*::|::)*([A-Za-z_]\w*)\s*(<.*>)?", name.strip(), re.DOTALL)
        kernel = scan.declarations.get(match[1]) if match else None
        if match is None or (kernel is None and scan.complete):
            raise UnknownKernel(f"there is no kernel {name!r} in {self.file!r}; it has {', '.join(self._shown())}")
        if kernel is not None and scan.complete and kernel.template != bool(match[2]):
            problem = (f"is a template: name an instance, such as kernels[\"{kernel.name}<float>\"]" if kernel.template
                       else "is no template")
            raise UnknownKernel(f"{kernel.name} in {self.file!r} {problem}")
        return kernel

    def _shown(self) -> list[str]:
        declarations = _scan(self.source, self.options).declarations
        return [name + "<...>" * declarations[name].template for name in sorted(declarations)]

    @brief
    def __getitem__(self, name: str) -> Kernel:
        if not isinstance(name, str):
            raise PlanError(f"a kernel is named by a string, not by {name!r}")
        return Kernel(self, name.strip())

    @brief
    def __getattr__(self, name: str) -> Kernel:
        # Protocols such as copy and pickle ask for special names, also before an instance has its attributes.
        if name.startswith("__") or name in type(self).__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self[name]

    # Items are looked up by name: there is nothing to iterate over.
    __iter__ = None

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_scan(self.source, self.options).declarations})

    def __repr__(self) -> str:
        return f"Kernels({self.file!r}: {', '.join(self._shown())})"


def _constant(name: str, value: object) -> ArrayValue:
    if not isinstance(value, np.ndarray | np.generic):
        hint = ": for a structure write np.array((1, 2.5), np.dtype([(\"a\", \"i4\"), (\"b\", \"f4\")], align=True))" \
            if isinstance(value, dict | tuple) else ""
        raise PlanError(f"the constant {name} is to be a NumPy array, not {type(value).__name__}{hint}")
    if value.dtype.kind == "V":
        return ArrayValue.of_structures(np.asarray(value), f"the constant {name}")
    return ArrayValue.of(value, f"the constant {name}")


@dataclasses.dataclass(frozen=True, repr=False)
class Kernel:
    """Kernel of a source, or an instance of one of its templates.

    Raises
    ------
    UnknownKernel
        If the source has no such kernel.

    Examples
    --------
    >>> twice = Kernels('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }').twice
    >>> type(twice).__name__, twice.name
    ('Kernel', 'twice')
    """

    kernels: Kernels
    name: str

    def __post_init__(self) -> None:
        self.kernels.declaration(self.name)

    @property
    def declaration(self) -> Declaration | None:
        """The kernel, or its template, as declared; None if the text of the source does not show it."""
        return self.kernels.declaration(self.name)

    @property
    def parameters(self) -> tuple[DeclaredParameter, ...] | None:
        """The kernel's parameters; None if the text of the source does not settle them."""
        return None if self.declaration is None else self.declaration.parameters

    def __repr__(self) -> str:
        return f"Kernel({self.name})"
