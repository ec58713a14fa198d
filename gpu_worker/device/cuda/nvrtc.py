"""Compiles CUDA C++ to machine code for one architecture with NVRTC, which needs neither a GPU nor its driver.

NVRTC is reached through cuda-bindings, which comes with cuda-core; this is the one place that says what to install when
it is missing. NVRTC finds no host headers, so ``nvrtc_headers/`` beside this file stands in for those that kernel
sources include out of habit; CUDA's own headers (``cooperative_groups.h``, ``cuda_fp16.h``) are used where they are
installed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.device.base import INCLUDES, Source
from gpu_worker.device.source_text import kernel_names, refused_argument
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable
from gpu_worker.protocol.extras import install
from gpu_worker.protocol.plans import CHECKS_FILE

try:
    from cuda.bindings import nvrtc
except ImportError as _error:
    nvrtc = None
    _MISSING = str(_error)

#: What a user runs to get the ``cuda`` device's packages.
INSTALL = install("cuda")

NO_HEADERS = "CUDA's own headers are not installed; set CUDA_HOME, or: pip install 'cuda-toolkit[cccl,cudart]'"

#: Headers that stand in for the host's, and those that say what a GPU is to kernels.
HEADERS = tuple(map(Path(__file__).with_name, ("nvrtc_headers", "include")))

#: What the file of a name expression is called in NVRTC's log.
_NAME_MAP = "__nv_name_map"

_ERROR = re.compile(r"^(?P<file>[^\n]+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<words>.*)$", re.M)


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel.

    Attributes
    ----------
    code : bytes
        The cubin, as the driver loads it.
    symbol : str
        The kernel's name in it.
    constants : tuple of (str, str)
        The name of each ``__constant__`` symbol asked for, as the source has it and as the cubin has it.
    """

    code: bytes
    symbol: str
    constants: tuple[tuple[str, str], ...] = ()

    def to_bytes(self) -> bytes:
        """Return the cubin as bytes, for a file."""
        return json.dumps([self.symbol, self.constants]).encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Cubin:
        """Undo :meth:`to_bytes`."""
        head, _, code = data.partition(b"\n")
        symbol, constants = json.loads(head)
        return cls(code, symbol, tuple((name, lowered) for name, lowered in constants))


def compile_cubin(source: Source, name: str, arch: str) -> Cubin:
    """Compile one kernel of a source.

    Parameters
    ----------
    source : Source
        The compilation unit.
    name : str
        A ``__global__`` function, or an instance of a template such as ``"fold<float, 256>"``.
    arch : str
        The architecture, such as ``"sm_90"``; an ``-arch`` among the source's options goes before it.

    Returns
    -------
    Cubin

    Raises
    ------
    CompileError
        If NVRTC refuses the source or an option, or the source has no such kernel or constant.
    DeviceUnavailable
        If NVRTC is not installed.
    """
    if "\0" in source.text:
        raise CompileError(f"{source.file} contains a NUL character, which no CUDA source may")
    library = _library()
    constants = [constant for constant, _ in source.constants]
    expressions = [name, *(f"&{constant}" for constant in constants)]
    with _program(library, source) as program:
        for expression in expressions:
            _check(library, library.nvrtcAddNameExpression(program, expression.encode()))
        options = [option.encode() for option in _options(source.options, arch)]
        status, = library.nvrtcCompileProgram(program, len(options), options)
        if status != library.nvrtcResult.NVRTC_SUCCESS:
            raise _refusal(source, name, _log(library, program), _words(library, status))
        symbol, *lowered = (_check(library, library.nvrtcGetLoweredName(program, expression.encode())).decode()
                            for expression in expressions)
        code = _code(library, program, source)
    return Cubin(code, symbol, tuple(zip(constants, lowered, strict=True)))


def architecture(major: int, minor: int) -> str:
    """Return NVRTC's name of the architecture to compile for; Hopper's with its architecture-specific features.

    >>> architecture(8, 0), architecture(9, 0)
    ('sm_80', 'sm_90a')
    """
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


def cubin_key(source: Source, name: str, arch: str) -> tuple[str, ...] | None:
    """Return the values that a cubin depends on, or None if they are unknown, as for a source with includes of its own.
    """
    if any(option.startswith(("-I", "--include-path", "-include", "--pre-include")) for option in source.options):
        return None
    return ("cubin", f"NVRTC {nvrtc_version()}", arch, name, source.file, source.text, "\0".join(source.options),
            "\0".join(constant for constant, _ in source.constants), *cuda_headers(), _headers_digest())


def nvrtc_version() -> str:
    """Return the version of NVRTC, such as "13.0"; raise DeviceUnavailable if NVRTC is not installed."""
    library = _library()
    return "{}.{}".format(*_check(library, library.nvrtcVersion()))


@functools.cache
def cuda_headers() -> tuple[str, ...]:
    """Return the directories of CUDA's own headers on this machine; empty where there are none."""
    roots = [Path(os.environ[name]) for name in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += [found for wheels in _wheels() for found in sorted(wheels.glob("cu[0-9]*"), reverse=True)]
    roots += [wheels / "cuda_runtime" for wheels in _wheels()]
    roots.append(Path("/usr/local/cuda"))
    for root in roots:
        include = root / "include"
        if (include / "cooperative_groups.h").is_file():
            return tuple(str(path) for path in (include, include / "cccl") if path.is_dir())
    return ()


def _wheels() -> list[Path]:
    """Return the directories of NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


@functools.cache
def _headers_digest() -> str:
    files = sorted(path for place in (*HEADERS, *INCLUDES) for path in place.rglob("*") if path.is_file())
    return hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()


@functools.cache
def _library() -> Any:
    if nvrtc is None:
        raise DeviceUnavailable(f"the CUDA compiler NVRTC needs cuda-core ({_MISSING}): {INSTALL}")
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise DeviceUnavailable(f"the library of the CUDA compiler NVRTC was not found: {INSTALL}",
                                detail=str(error)) from error
    return nvrtc


@contextmanager
def _program(library: Any, source: Source) -> Iterator[Any]:
    quoted = source.file.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    text = f'#line 1 "{quoted}"\n{source.text}\n'.encode()
    program = _check(library, library.nvrtcCreateProgram(text, quoted.encode(), 0, [], []))
    try:
        yield program
    finally:
        library.nvrtcDestroyProgram(program)


def _options(options: Sequence[str], arch: str) -> list[str]:
    chosen = any(option.startswith(("-arch", "--gpu-architecture")) for option in options)
    return [*([] if chosen else [f"--gpu-architecture={arch}"]), *options,
            *(f"-I{path}" for path in (*HEADERS, *INCLUDES, *cuda_headers()))]


def _check(library: Any, outcome: tuple[Any, ...]) -> Any:
    """Return the values of an NVRTC call; raise CompileError unless its status is success."""
    status, *values = outcome
    if status != library.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {_words(library, status)}")
    return values[0] if len(values) == 1 else tuple(values)


def _words(library: Any, status: Any) -> str:
    return library.nvrtcGetErrorString(status)[1].decode()


def _log(library: Any, program: Any) -> str:
    log = bytes(_check(library, library.nvrtcGetProgramLogSize(program)))
    _check(library, library.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0\n").decode(errors="replace")


def _code(library: Any, program: Any, source: Source) -> bytes:
    size = _check(library, library.nvrtcGetCUBINSize(program))
    if not size:
        raise CompileError(f"the options of {source.file} name a virtual architecture; name a real one, such as sm_90")
    code = bytes(size)
    _check(library, library.nvrtcGetCUBIN(program, code))
    return code


def _refusal(source: Source, name: str, log: str, words: str) -> CompileError:
    """Return the error for NVRTC's log: one message with the user's line; the log itself is its detail."""
    errors = list(_ERROR.finditer(log))
    if errors and (refused := refused_argument(errors[0]["file"], errors[0]["words"])):
        return CompileError(f"{source.file}: {refused}", detail=log)
    written = [error for error in errors if error["file"] not in (_NAME_MAP, CHECKS_FILE)]
    if written:
        return CompileError(_at_line(source, written[0]), detail=log)
    unknown = next((error for error in errors if error["file"] == _NAME_MAP), None)
    if unknown:
        return CompileError(_no_such_name(source, name, unknown["words"]), detail=log)
    sentence = next((line for line in log.splitlines() if line.strip()), words)
    return CompileError(f"NVRTC refused {source.file}: {sentence}", detail=log)


def _at_line(source: Source, error: re.Match[str]) -> str:
    number = int(error["line"])
    message = f"{error['file']}, line {number}: {error['words']}"
    lines = source.text.splitlines()
    if error["file"] == source.file and 0 < number <= len(lines):
        message += f"\n    {lines[number - 1].strip()}"
    if "open source file" in error["words"] and not cuda_headers():
        message += f"\n    {NO_HEADERS}"
    return message


def _no_such_name(source: Source, name: str, words: str) -> str:
    kernels = kernel_names(source.text)
    missing = [constant for constant, _ in source.constants if f'"{constant}"' in words]
    if missing:
        return f"{source.file} has no __constant__ {missing[0]}: {words}"
    has = f"its kernels are {', '.join(kernels)}" if kernels else "it has no __global__ function"
    if name in kernels:
        return f"the kernel {name} of {source.file} cannot be chosen by that name: {words}"
    return f"{source.file} has no kernel {name}; {has}: {words}"
