"""Compiles CUDA C++ for this machine's CPU: a shared object per kernel, and the runtime under all of them.

A unit is ``cuda_on_host.h``, the user's text and an entry for the kernel asked for. It is compiled as one whose threads
wait for each other nowhere, which the compiler can turn into vector loops, unless it has barriers or warp operations.
g++ reads the header precompiled, which takes a third of the time; the precompiled one is in the cache of kernels.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_worker.device.base import INCLUDES, Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.host.diagnostics import ENTRY_FILE, OPTIONS_FILE, refusal
from gpu_worker.device.host.objects import undefined_symbols
from gpu_worker.device.host.options import compiler_options
from gpu_worker.device.launch_limits import SHARED_BYTES
from gpu_worker.device.source_text import kernel_names
from gpu_worker.protocol.errors import CompileError, DeviceUnavailable
from gpu_worker.protocol.system import system_call

HEADERS = Path(__file__).parent
_HEADER = "cuda_on_host.h"

_INSTALL = "install one (apt-get install g++, or dnf install gcc-c++), or name yours in CXX"
_WAITS = ("__syncthreads", "__syncwarp", "_sync(", "__activemask")

_FILES = "temporary files for the compiler"

# Floating point is as on a GPU: multiply-add fused, no traps, no errno. Pointers may alias as they do in much CUDA
# code. Everything but the exports is local, so that the compiler may inline it all, and units do not meet.
_COMMON = ("-O3", "-march=native", "-fPIC", "-fvisibility=hidden", "-w", "-ffp-contract=fast", "-fno-math-errno",
           "-fno-trapping-math", "-fno-strict-aliasing", "-fno-exceptions", "-fopenmp-simd")
# g++ 12 makes -x of 0.0 - x where x comes from an integer or is an absolute value, which is -0.0 for 0; not so where
# the rounding mode may change.
_GCC = ("-frounding-math", "-fwhole-program", "-fno-gnu-unique", "-fno-extern-tls-init",
        "-fno-diagnostics-show-caret", "-fdiagnostics-color=never", "-fmax-errors=20")
# Before each access a function of ours is called.
_BOUNDS = ("-fsanitize=kernel-address", "--param=asan-instrumentation-with-call-threshold=0", "--param=asan-stack=0",
           "--param=asan-globals=0", "-DVISPARK_BOUNDS")
_CLANG = ("-fno-caret-diagnostics", "-fno-color-diagnostics", "-ferror-limit=20")


@dataclass(frozen=True)
class Compiler:
    """The system's C++ compiler.

    Attributes
    ----------
    command : tuple of str
        How it is started.
    identity : str
        A digest of its version and of the instructions that this CPU has.
    clang : bool
        Whether it is clang++ rather than g++.
    bounds : bool
        Whether units check their accesses to memory.
    """

    command: tuple[str, ...]
    identity: str
    clang: bool
    bounds: bool = False

    @classmethod
    def find(cls, *, bounds: bool = False) -> Compiler:
        """Return the compiler that ``CXX`` names, or g++, or clang++; with ``bounds``, units check their accesses to
        memory.

        Raises
        ------
        DeviceUnavailable
            If there is none, or it does not run, or cannot make such checks.
        """
        named = os.environ.get("CXX", "")
        for candidate in [named] if named else ["g++", "clang++"]:
            command = shlex.split(candidate)
            if command and shutil.which(command[0]):
                compiler = replace(_identified(tuple(command)), bounds=bounds)
                if bounds and compiler.clang:
                    raise DeviceUnavailable(f"spark.vispark.check=bounds needs g++, and the compiler is {candidate}")
                return compiler
        missing = f"CXX names {named!r}, which was not found" if named else "neither g++ nor clang++ was found"
        raise DeviceUnavailable(f"the host device needs a C++ compiler, and {missing}: {_INSTALL}")

    def runtime(self, cache: KernelCache) -> bytes:
        """Return the shared object that runs units.

        Raises
        ------
        DeviceUnavailable
            If the compiler cannot make it.
        """
        parts = ("host runtime", self.identity, _headers_digest())
        library = cache.get(*parts)
        if library is None:
            library = self._build_runtime()
            cache.put(library, *parts)
        return library

    def _build_runtime(self) -> bytes:
        with system_call(_FILES), tempfile.TemporaryDirectory(prefix="vispark-") as directory:
            result = self._run("-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w",
                               "-U_FORTIFY_SOURCE", "-ftls-model=initial-exec", str(HEADERS / "runtime.cpp"),
                               "-o", "runtime.so", directory=directory)
            if result.returncode:
                raise DeviceUnavailable(f"{shlex.join(self.command)} cannot compile the host device's runtime, which "
                                        f"needs C++17 and the headers of Linux and the C library: {_INSTALL}",
                                        detail=result.stderr)
            return Path(directory, "runtime.so").read_bytes()

    def unit(self, source: Source, name: str, cache: KernelCache) -> bytes:
        """Return the shared object of one kernel of a source.

        Raises
        ------
        CompileError
            If the compiler refuses the source or an option, or the source has no such kernel or constant.
        """
        options, macros = compiler_options(source)
        options += _BOUNDS if self.bounds else ()
        parts = ("host unit", self.identity, _headers_digest(), name, source.file, source.text, "\0".join(options),
                 "\n".join(macros), "\0".join(constant for constant, _ in source.constants))
        # What stands in headers of the user's own is not known before it is compiled.
        is_cached = not any(option.startswith("-I") for option in options)
        library = cache.get(*parts) if is_cached else None
        if library is None:
            library = self._build(source, name, options, macros, cache)
            if is_cached:
                cache.put(library, *parts)
        return library

    def _build(self, source: Source, name: str, options: Sequence[str], macros: Sequence[str],
               cache: KernelCache) -> bytes:
        with system_call(_FILES), tempfile.TemporaryDirectory(prefix="vispark-") as directory:
            Path(directory, "unit.cpp").write_text(_unit_text(source, name, macros), errors="surrogateescape")
            # Only a guess, which spares most kernels with barriers a compilation: the unit itself tells.
            waits = len(kernel_names(source.text)) == 1 and any(word in source.text for word in _WAITS)
            symbols = self._compile(source, name, options, directory, waits, cache)
            if "vispark_waits" in symbols:
                symbols = self._compile(source, name, options, directory, True, cache)
            shared = [symbol for symbol, thread_local in symbols.items() if thread_local]
            Path(directory, "shared.s").write_text(_shared_memory(shared))
            result = self._run("-shared", "unit.o", "shared.s", "-o", "unit.so", directory=directory)
            if result.returncode:
                raise CompileError(f"the kernel {name} of {source.file} cannot be linked", detail=result.stderr)
            return Path(directory, "unit.so").read_bytes()

    def _compile(self, source: Source, name: str, options: Sequence[str], directory: str, waits: bool,
                 cache: KernelCache) -> dict[str, bool]:
        shaping = [*_COMMON, *(_CLANG if self.clang else _GCC),
                   *(option for option in options if not option.startswith("-I")),
                   *([] if waits else ["-DVISPARK_NO_WAITS"])]
        command = [*shaping, *(option for option in options if option.startswith("-I")), f"-I{HEADERS}",
                   f"-I{HEADERS / 'include'}", *(f"-I{path}" for path in INCLUDES), "-c", "unit.cpp", "-o", "unit.o"]
        precompiled = Path(directory, f"{_HEADER}.gch")
        precompiled.unlink(missing_ok=True)
        if not self.clang and (header := self._precompiled(shaping, cache)):
            precompiled.symlink_to(header)
        result = self._run(*command, directory=directory)
        if result.returncode and precompiled.is_symlink():
            # What the compiler says of a unit should not depend on it, nor whether it can be used at all.
            precompiled.unlink()
            result = self._run(*command, directory=directory)
        if result.returncode:
            raise refusal(source, name, result.stderr, HEADERS)
        return undefined_symbols(Path(directory, "unit.o").read_bytes())

    def _precompiled(self, options: Sequence[str], cache: KernelCache) -> Path | None:
        """Return our header as g++ keeps it once read, with some options; None where it cannot be made or kept."""
        parts = ("host header", self.identity, _headers_digest(), *options)
        if not (header := cache.file(*parts)):
            with system_call(_FILES), tempfile.TemporaryDirectory(prefix="vispark-") as directory:
                if not self._run(*options, "-x", "c++-header", str(HEADERS / _HEADER), "-o", "header.gch",
                                 directory=directory).returncode:
                    cache.put(Path(directory, "header.gch").read_bytes(), *parts)
            header = cache.file(*parts)
        return header

    def _run(self, *arguments: str, directory: str) -> subprocess.CompletedProcess[str]:
        with system_call(f"a process of {self.command[0]}", DeviceUnavailable):
            return subprocess.run([*self.command, *arguments], cwd=directory, capture_output=True, text=True,
                                  errors="replace", env={**os.environ, "LC_ALL": "C"}, check=False)


@functools.cache
def _identified(command: tuple[str, ...]) -> Compiler:
    # Names the version and every instruction set that -march=native stands for.
    try:
        report = subprocess.run([*command, "-march=native", "-E", "-v", "-x", "c++", os.devnull], capture_output=True,
                                text=True, errors="replace", check=False)
    except OSError as error:
        raise DeviceUnavailable(f"{command[0]} cannot be started: {error.strerror}; {_INSTALL}") from error
    if report.returncode:
        raise DeviceUnavailable(f"{shlex.join(command)} is not a C++ compiler that the host device can use: {_INSTALL}",
                                detail=report.stderr)
    identity = hashlib.sha256("\0".join([*command, platform.machine(), report.stderr]).encode()).hexdigest()
    return Compiler(command, identity, "clang version" in report.stderr)


@functools.cache
def _headers_digest() -> str:
    files = sorted(path for place in (HEADERS, *INCLUDES) for path in place.rglob("*")
                   if path.is_file() and path.suffix in ("", ".h", ".hpp", ".cpp", ".py"))
    return hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()


def _unit_text(source: Source, name: str, macros: Sequence[str]) -> str:
    # All names at the end are ours alone, as a user's macros are in force there.
    file = source.file.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    constants = [f"VISPARK_EXPORT vispark_symbol_type vispark_constant_{place}() {{ "
                 f"return vispark_symbol_of({constant}); }}"
                 for place, (constant, _) in enumerate(source.constants)]
    return "\n".join([
        f'#include "{_HEADER}"',
        f'#line 1 "{OPTIONS_FILE}"', *macros,
        f'#line 1 "{file}"', source.text,
        f'#line 1 "{ENTRY_FILE}"', f"typedef vispark_entry_of<decltype(&{name}), &{name}> vispark_entry;",
        "VISPARK_ENTRY(vispark_entry)", *constants, ""])


def _shared_memory(symbols: Sequence[str]) -> str:
    """Return the assembly that puts all ``extern __shared__`` arrays of a unit at one place, as they are in CUDA."""
    if not symbols:
        return ""
    labels = "".join(f".globl {name}\n.hidden {name}\n.type {name}, %tls_object\n{name}:\n" for name in symbols)
    return f'.section .tbss,"awT",%nobits\n.balign 256\n{labels}.zero {SHARED_BYTES}\n'
