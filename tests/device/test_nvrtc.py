"""Every kernel of the repository compiles for real GPUs, and what NVRTC refuses is said in the user's words."""

from __future__ import annotations

import math
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpu_worker.device.base import Source
from gpu_worker.device.cache import KernelCache
from gpu_worker.device.cuda import nvrtc
from gpu_worker.device.cuda.nvrtc import Cubin, compile_cubin, cubin_key
from gpu_worker.device.host.compiler import Compiler
from gpu_worker.device.source_text import kernel_names
from gpu_worker.execution.steps import check_finite
from gpu_worker.protocol.errors import CompileError
from gpu_worker.protocol.messages import Field, FieldFold, Signature
from tests.golden.harness import record_of
from tests.unit.test_translate_groups import network
from vispark.plan.cuda_source import Kernels
from vispark.plan.exec_call import record_exec
from vispark.plan.exec_launch import compiler_checks
from vispark.plan.symbols import IN, OUT
from vispark.translate import ElementField, ElementSpec, Folding, TracedCall, fuse, trace

ROOT = Path(__file__).parents[2]
ARCHITECTURES = ("sm_80", "sm_90")

#: The options that a file's users give.
OPTIONS = {"examples/logistic_regression.cu": ("-DD=40",)}
HEADERS = ("cuda_runtime.h", "stdio.h", "stdlib.h", "math.h", "cmath", "stdint.h", "cstdint", "float.h", "limits.h",
           "assert.h", "string.h", "device_launch_parameters.h", "cuda.h", "stddef.h", "cstddef", "cstdio", "cstdlib",
           "cstring", "cassert", "cfloat", "climits", "cuda_runtime_api.h", "time.h", "ctime", "sys/time.h", "unistd.h",
           "stdbool.h", "iostream", "algorithm", "vector")

MIXED = """
#define SCALE 3
__constant__ float weights[4];
namespace inner { __constant__ int shift; }
extern "C" __global__ void plain(float* x) { x[threadIdx.x] *= SCALE; }
__global__ void __launch_bounds__(256, 2) mangled(float* x, int n) { if (n > 0) x[0] = weights[1] + inner::shift; }
template <typename T, int N> __global__ void fold(T* x) { __shared__ T part[N]; part[threadIdx.x % N] = x[0];
    __syncthreads(); x[0] = part[0]; }
"""


def sources() -> list[tuple[Path, list[str]]]:
    """Return each .cu file with the kernels to compile: those its first comment names, or all it has."""
    files = []
    for file in sorted(path for part in ("tests", "examples", "gpu_worker") for path in (ROOT / part).rglob("*.cu")):
        text = file.read_text()
        first = re.match(r"// kernels: ((?:.*,\n// )*.*)", text)
        # A comma inside <...> belongs to a template's arguments.
        names = re.split(r",\s*(?![^<>]*>)", first[1].replace("\n//", "")) if first else kernel_names(text)
        files.append((file, [name.strip() for name in names]))
    return files


def compilations() -> list:
    """Return each file for each architecture; what the translator writes is the same text for all of them, and once
    enough.
    """
    return [pytest.param(file, names, arch, id=f"{file.relative_to(ROOT)}-{arch}") for file, names in sources()
            for arch in (ARCHITECTURES[-1:] if "golden" in file.parts else ARCHITECTURES)]


@pytest.mark.parametrize(("file", "names", "arch"), compilations())
def test_every_kernel_file_compiles(file: Path, names: list[str], arch: str):
    path = str(file.relative_to(ROOT))
    # Names of constants make NVRTC compile the kernels that they are, so once is enough for all.
    others = tuple((name, b"") for name in names[1:])
    cubin = compile_cubin(Source(file.read_text(), path, OPTIONS.get(path, ()), constants=others), names[0], arch)
    assert cubin.code.startswith(b"\x7fELF")
    assert all(symbol.encode() in cubin.code for symbol in (cubin.symbol, *dict(cubin.constants).values()))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("folding", [None, Folding((FieldFold("", "add"),)),
                                     Folding((FieldFold("1", "add"),), "0", 40), Folding((FieldFold("1", "add"),), "0",
                                                                                         10**6)])
def test_functions_of_rows_of_several_lengths_compile(folding: Folding | None, arch: str):
    def product(indices, values, w):
        return np.dot(w[indices], values) + values.max()

    def keyed(x, indices, values, w):
        return len(indices) % 7, x.dot(w) + values.sum()

    fields = (ElementField("indices", "int32", (), "ragged"), ElementField("values", "float32", (), "ragged"),
              ElementField("x", "float64", (), "sparse"))
    function = keyed if folding is not None and folding.key else product
    kernel = fuse([TracedCall(trace(function), (np.ones(50, "f4"),))], ElementSpec(fields), folding=folding)
    assert compile_cubin(Source(kernel.source, "ragged.cu"), kernel.name, arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("width", "dtype"), [(64, "f4"), (600, "f4"), (40, "f8"), (40, "i8")])
def test_matrix_folds_compile(width: int, dtype: str, arch: str):
    calls = (TracedCall(trace(lambda p: (p.sum(), np.outer(p, p), np.outer(p[1:], p)))),)
    kernel = fuse(calls, record_of(np.zeros((1, width), dtype)), folding=Folding((FieldFold("", "add"),)))
    assert compile_cubin(Source(kernel.source, "fold.cu"), kernel.name, arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize(("function", "width", "in_memory"), [
    (lambda p: np.outer(p, p), 64, False), (lambda p: np.outer(p, p), 512, False),
    (lambda p: p[:, None] - p, 64, True)], ids=["64", "512", "no matrix fold"])
def test_a_sum_of_outer_products_needs_no_memory_of_its_threads(function: Callable, width: int, in_memory: bool):
    """Compare the memory of threads: where one adds whole matrices up, they lie in memory of its own: 2.7 KB of 64
    columns, and more of more. A few registers that are spilled (32 bytes of 512 columns) are no matrix.
    """
    kernel = fuse((TracedCall(trace(function)),), record_of(np.zeros((1, width), "f4")),
                  folding=Folding((FieldFold("", "add"),)))
    frames = stack_frames(compile_cubin(Source(kernel.source, "fold.cu"), kernel.name, "sm_90").code)
    assert frames and (max(frames) >= 256) == in_memory


def stack_frames(cubin: bytes) -> list[int]:
    """Return the bytes of local memory that a thread of each function of a cubin takes, as its sections named
    ``.nv.info`` have them: entries of a format, an attribute (0x11 is EIATTR_FRAME_SIZE) and a size or a value.
    """
    start, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3a)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + number * size) for number in range(count)]
    sizes = []
    for name, _, _, _, offset, length in sections:
        title = sections[names][4] + name
        at = offset
        while cubin[title:title + 8] == b".nv.info" and at < offset + length:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            if (form, attribute) == (4, 0x11):
                sizes.append(struct.unpack_from("<I", cubin, at + 8)[0])
            at += 4 + (value if form == 4 else 0)
    return sizes


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_matrices_by_roles_compile(width: int, arch: str):
    kernel = fuse((TracedCall(trace(lambda p: np.outer(p, p))),), record_of(np.zeros((1, width), "f4")),
                  folding=Folding((FieldFold("", "add"),)))
    assert "rows::fold_by_roles" in kernel.source
    assert compile_cubin(Source(kernel.source, "blocks.cu"), kernel.name, arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_gradients_by_groups_compile(arch: str):
    calls = (TracedCall(trace(network), (np.ones((128, 64), "f4"), np.ones((64, 20), "f4"))),)
    kernel = fuse(calls, record_of(np.zeros((1, 129), "f4")), folding=Folding((FieldFold("", "add"),)))
    assert "rows::GroupOuter<" in kernel.source
    assert compile_cubin(Source(kernel.source, "groups.cu"), kernel.name, arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("word", [word for word, _ in check_finite._WORDS.values()])
def test_kernels_beside_a_steps_handler_compile(word: str, arch: str):
    assert compile_cubin(check_finite._SOURCE, f"left_from_first<{word}>", arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("name", "symbol"), [("plain", "plain"), ("mangled", "_Z7mangledPfi"),
                                              ("fold<float, 256>", "_Z4foldIfLi256EEvPT_")])
def test_kernels_of_all_kinds_are_found_by_name(name: str, symbol: str, arch: str):
    cubin = compile_cubin(Source(MIXED), name, arch)
    assert cubin.symbol == symbol
    assert cubin.code.startswith(b"\x7fELF") and symbol.encode() in cubin.code


def test_constants_are_found_by_name():
    source = Source(MIXED, constants=(("weights", b"1234"), ("inner::shift", b"")))
    cubin = compile_cubin(source, "mangled", "sm_90")
    assert cubin.constants == (("weights", "weights"), ("inner::shift", "_ZN5inner5shiftE"))
    assert Cubin.from_bytes(cubin.to_bytes()) == cubin


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_sources_include_out_of_habit(header: str):
    text = f"#include <{header}>\n__global__ void k(float* x) {{ x[0] = sqrtf(x[1]); }}"
    assert compile_cubin(Source(text), "k", "sm_80").symbol == "_Z1kPf"


def _sums(a, b, n):
    return (bool(a + b), (b - a) >> 1, a * -1 == b, -a + b == 0, (~a) + 1 == b, (a ^ -1) + 1 > b, max(0 - a, b),
            a // -1, np.int16(n + n) != 0, np.uint16(-n) == b, float(n.astype(np.int16)))


def _sums_unsigned(a, b, n):
    return (bool(a + b), (b - a) >> 1, a * 65535 == b, -a + b == 0, (~a) + 1 == b, (a ^ 65535) + 1 > b, max(0 - a, b))


def _of_rows(p, q):
    return np.all(p + p), (q + q).any(), np.count_nonzero(p - q), (p @ q) != 0, np.diff(p) // 2, sum(p, p[0]) == 0


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_nothing_of_16_bits_is_negated_in_16(dtype: str):
    # The assembler of CUDA 13.0 gives 32768 for -32768.
    sums, numbers, rows = _sums if dtype == "int16" else _sums_unsigned, np.zeros(3, dtype), np.zeros((3, 5), dtype)
    for fn, data in ((sums, {"a": numbers, "b": numbers, "n": np.zeros(3, int)}), (_of_rows, {"p": rows, "q": rows})):
        text = _assembly(fuse((TracedCall(trace(fn)),), record_of(data)).source)
        assert ".s16" in text and not re.search(r"(neg|sub)\.s16", text)


def _sizes(a, b):
    bits = b >> 31
    return (math.exp(abs(a)), (-a if a < 0 else a) < 0, (0 - a if a < 0 else a) < 0, (a * -1 if a < 0 else a) < 0,
            (~a + 1 if a < 0 else a) < 0, (b ^ bits) - bits < 0, (b + bits) ^ bits < 0)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_no_size_is_taken_for_never_negative(dtype: str):
    # The assembler takes what abs gives for that, and that of the least integer is negative.
    numbers = np.zeros(3, dtype)
    text = _assembly(fuse((TracedCall(trace(_sizes)),), record_of({"a": numbers, "b": numbers.astype("int32")})).source)
    assert not re.search(r"abs\.s\d", text)
    assert re.search(r"neg\.s64" if dtype == "int64" else r"inverse, 1;", text)


def _beyond(a, b, s, t):
    return (max(np.maximum(a, -b), a), not np.maximum(s, t), s if s > t else t, abs(t) if t < 3 else t, min(a - a, t))


def test_nothing_is_chosen_as_the_assembler_chooses_wrongly():
    # It loses the sign in max(max(a, -b), c), takes the wrong half of a max of 16 bits that is compared, and of NaN
    # that it is at least -1 where no other size is less. The compiler makes min(b, 0) of b if b < 0 else 0.
    whole = record_of({"a": np.zeros(3, "int32"), "b": np.zeros(3, "int32"), "s": np.zeros(3, "int16"),
                       "t": np.zeros(3, "int16")})
    text = _assembly(fuse((TracedCall(trace(_beyond)),), whole).source)
    assert not re.search(r"max\.[su]16|min\.[su]16|neg\.s(16|32)", text)
    for kind, letters in (("float32", "f32"), ("float64", "f64")):
        data = record_of({"a": np.zeros(3, "int32"), "b": np.zeros(3, kind)})
        text = _assembly(fuse((TracedCall(trace(_of_floats)),), data).source)
        assert not re.search(rf"(min|max)\.{letters}", text)
    text = _assembly(fuse((TracedCall(trace(_size)),), record_of(np.zeros(3, "float32"))).source)
    assert re.search(r"setp\.(num|nan)\.f32", text)


def _of_floats(a, b):
    return min(a ^ a, b), b if b < 0 else 0.0, 0.0 if not b < 0 else b


def _size(b):
    return abs(b) >= -1



def _assembly(text: str) -> str:
    """Return the PTX of a source as one thread goes over its rows."""
    source = Source(text, options=("-DVISPARK_ALONE=1",))
    with nvrtc._program(nvrtc.nvrtc, source) as program:
        options = [option.encode() for option in nvrtc._options(source.options, "compute_90")]
        nvrtc._check(nvrtc.nvrtc, nvrtc.nvrtc.nvrtcCompileProgram(program, len(options), options))
        ptx = bytes(nvrtc._check(nvrtc.nvrtc, nvrtc.nvrtc.nvrtcGetPTXSize(program)))
        nvrtc._check(nvrtc.nvrtc, nvrtc.nvrtc.nvrtcGetPTX(program, ptx))
    return ptx.decode()


def test_headers_declare_what_kernels_use():
    text = "".join(f"#include <{header}>\n" for header in HEADERS) + """
    __global__ void k(float* x, double* y, int* i, int64_t* z) {
        x[0] = std::sqrt(x[1]) + INFINITY + NAN + FLT_MAX + FLT_EPSILON;
        y[0] = std::abs(y[1]) * M_PI + DBL_MIN + HUGE_VAL;
        std::size_t n = sizeof(int64_t); std::uint32_t bits = UINT32_MAX; uint8_t small = 255;
        i[0] = INT_MAX + CHAR_BIT + n + bits + small + std::isnan(x[0]);
        z[0] = LLONG_MIN + INT64_MAX;
        atomicAdd((uint64_t*)z, (uint64_t)1);
        void* none = NULL; assert(none == 0); std::memset(x, 0, sizeof(float)); printf("%d\\n", i[0]);
    }"""
    for arch in ARCHITECTURES:
        assert compile_cubin(Source(text), "k", arch).code


def test_cuda_headers_where_they_are_installed():
    if not nvrtc.cuda_headers():
        pytest.skip("CUDA's own headers are not installed here")
    text = """#include <cooperative_groups.h>
    #include <cuda_fp16.h>
    #include <stdint.h>
    __global__ void k(__half* x) { auto block = cooperative_groups::this_thread_block(); block.sync(); x[0] = x[1]; }"""
    assert compile_cubin(Source(text), "k", "sm_90").code


def test_syntax_error_carries_file_line_and_source_line():
    text = "__global__ void k(float* x) {\n    x[0] = 1;\n    x[1] = y;\n}"
    with pytest.raises(CompileError) as caught:
        compile_cubin(Source(text, "mine.cu"), "k", "sm_80")
    assert caught.value.message == 'mine.cu, line 3: identifier "y" is undefined\n    x[1] = y;'
    assert "1 error detected" in caught.value.detail


@pytest.mark.parametrize(("name", "message"), [
    ("nope", r"mine.cu has no kernel nope; its kernels are plain, mangled, fold"),
    ("fold", r"the kernel fold of mine.cu cannot be chosen by that name: .*which instance of function template"),
])
def test_missing_kernel_lists_those_there_are(name: str, message: str):
    with pytest.raises(CompileError, match=message):
        compile_cubin(Source(MIXED, "mine.cu"), name, "sm_80")


def test_missing_constant_is_named():
    with pytest.raises(CompileError, match=r"mine.cu has no __constant__ absent"):
        compile_cubin(Source(MIXED, "mine.cu", constants=(("absent", b""),)), "plain", "sm_80")


def test_missing_header_and_nul():
    with pytest.raises(CompileError, match=r'kernels.cu, line 1: (could not|cannot) open source file "absent.h"'):
        compile_cubin(Source("#include <absent.h>\n"), "k", "sm_80")
    with pytest.raises(CompileError, match="NUL"):
        compile_cubin(Source("\0"), "k", "sm_80")


def test_options_reach_the_compiler(tmp_path: Path):
    (tmp_path / "mine.h").write_text("#define VALUE 5\n")
    text = ('#include "mine.h"\n__global__ void k(float* x) { x[0] = __expf(VALUE + W) / x[1]; }\n'
            "#ifdef GONE\n#error no\n#endif")
    options = (f"-I{tmp_path}", "-DW=2", "-DGONE", "-UGONE", "--use_fast_math", "-lineinfo", "-std=c++20")
    assert compile_cubin(Source(text, options=options), "k", "sm_90").code
    with pytest.raises(CompileError, match=r"NVRTC refused kernels.cu: .*unrecognized option --bogus"):
        compile_cubin(Source(text, options=("--bogus",)), "k", "sm_90")
    with pytest.raises(CompileError, match="virtual architecture"):
        compile_cubin(Source("__global__ void k() {}", options=("-arch=compute_90",)), "k", "sm_90")


def test_key_is_that_of_the_content():
    base = cubin_key(Source(MIXED), "plain", "sm_90")
    assert base == cubin_key(Source(MIXED), "plain", "sm_90")
    others = [cubin_key(Source(MIXED + " "), "plain", "sm_90"), cubin_key(Source(MIXED), "mangled", "sm_90"),
              cubin_key(Source(MIXED), "plain", "sm_80"), cubin_key(Source(MIXED, options=("-DA",)), "plain", "sm_90"),
              cubin_key(Source(MIXED, constants=(("weights", b""),)), "plain", "sm_90")]
    assert len({base, *others}) == 6
    assert cubin_key(Source(MIXED, options=("-I/there",)), "plain", "sm_90") is None


def test_kernel_names():
    assert kernel_names(MIXED) == ("plain", "mangled", "fold")
    text = """/* __global__ void a() */ static __global__ __launch_bounds__(N * (2 + 1)) void
    b(int x); const char* s = "__global__ void c()"; __global__ void b(int x) {}  // __global__ void d()
    __attribute__((device)) int e(); template <int N> __global__ void __cluster_dims__(2, 1, 1) f() {}"""
    assert kernel_names(text) == ("b", "f")


def test_absence_of_nvrtc_is_one_sentence():
    code = """if True:
        import sys
        sys.modules["cuda.bindings"] = None
        from gpu_worker.device.base import Source
        from gpu_worker.device.cuda.nvrtc import compile_cubin
        from gpu_worker.protocol.errors import DeviceUnavailable
        try:
            compile_cubin(Source(""), "k", "sm_80")
        except DeviceUnavailable as error:
            print(error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"NVRTC needs cuda-core .*pip install '[.a-z]+\[cuda\]'", done.stdout)


# -- headers, on both -------------------------------------------------------------------------------------------------

HABITS = "".join(f"#include <{header}>\n" for header in HEADERS)


def test_headers_mean_the_same_on_both(compiled):
    compiled(Source(f"""{HABITS}
        using namespace std;
        #if CUDART_VERSION < 12000 || CUDA_VERSION != CUDART_VERSION
        #error no version
        #endif
        __global__ void k(int* x, bool wanted) {{
            x[0] = std::min(x[1], 3) + std::max(1, x[2]) + min(x[3], 1) + (wanted == true);
            std::swap(x[3], x[4]);
            clock_t before = clock();
            x[5] = clock() - before;
        }}"""), "k")


@pytest.mark.parametrize(("statement", "words"), [
    ("std::cout << x[0];", "cannot write to std::cout or std::cerr: use printf"),
    ("std::vector<int> v; x[0] = v[1];", "cannot have a std::vector: use an array"),
    ("std::vector<int> v(3);", "cannot have a std::vector: use an array"),
    ("std::sort(x, x + 3);", "sort"),
    ("usleep(3);", "usleep"),
    ("gettimeofday(0, 0);", "gettimeofday"),
])
def test_what_has_no_place_in_a_kernel_is_refused_on_both(compiled, statement: str, words: str):
    with pytest.raises(CompileError, match=words):
        compiled(Source(f"{HABITS}__global__ void k(int* x) {{ {statement} }}"), "k")


# -- assertions about arguments ---------------------------------------------------------------------------------------

UNSETTLED = Kernels("""
#define type int
#define fits true
#ifdef TWICE
typedef double real;
#else
typedef float real;
#endif
struct Point { __device__ Point() {} float x; int n; };
__global__ void plain(real a, real* x) { x[0] = a; }
template <class T> __global__ void fold(const T* x, T* y, T by, void* z, char c) { y[0] = by; }
template <class T> __global__ void points(T p, Point* all, T** far) {}
#define MAKE(name) __global__ void name##_made(const float* x, unsigned n)
MAKE(own) {}
""")
STRUCTURE = np.void(bytes(8))


def assertions(name: str, *arguments, dtype: str = "<f4", options: tuple[str, ...] = ()) -> Source:
    kernels = Kernels(UNSETTLED.source, options)
    spec = record_exec(kernels[name], arguments, grid=1, block=1)
    signature = Signature((Field("", dtype, (5,)),))
    return Source(kernels.source + compiler_checks(spec, signature), kernels.file, options)


@pytest.fixture(scope="module", params=["host", "nvrtc"])
def compiled(request, tmp_path_factory):
    """Return a compiler for a device, without one."""
    if request.param == "nvrtc":
        return lambda source, name: compile_cubin(source, name, "sm_90")
    compiler, cache = Compiler.find(), KernelCache(tmp_path_factory.mktemp("cache"))
    return lambda source, name: compiler.unit(source, name, cache)


@pytest.mark.parametrize(("name", "arguments", "dtype"), [
    ("plain", (3.0, IN), "<f4"),
    ("fold<double>", (IN, OUT, np.float64(3), OUT, np.uint8(3)), "<f8"),
    ("fold<unsigned>", (IN, OUT, 3, OUT, True), "<u4"),
    ("fold<float2>", (IN, OUT, np.complex64(3), OUT, np.int8(3)), "<c8"),
    ("points<Point>", (STRUCTURE, OUT, np.zeros(1, "u8")), "<f4"),
    ("own_made", (OUT, 3), "<f4"),
])
def test_arguments_that_fit_compile(compiled, name: str, arguments: tuple, dtype: str):
    source = assertions(name, *arguments, dtype=dtype)
    assert source.text != UNSETTLED.source
    compiled(source, name)


@pytest.mark.parametrize(("name", "arguments", "dtype", "words"), [
    ("plain", (np.int32(3), IN), "<f4", r"argument 1 of plain is of dtype int32, which its parameter \(real a\)"),
    ("plain", (3.0, IN), "<f8", r"argument 2 of plain is the address of float64, which its parameter \(real\* x\)"),
    ("fold<double>", (IN, OUT, 3.0, OUT, np.int8(3)), "<f8", "argument 3 of fold<double> is of dtype float32"),
    ("fold<int>", (IN, OUT, 3, OUT, np.int8(3)), "<u4", "argument 1 of fold<int> is the address of uint32"),
    ("fold<float*>", (IN, OUT, 3.0, OUT, np.int8(3)), "<f4", "argument 3 of fold<float.> is of dtype float32"),
    ("points<float>", (STRUCTURE, OUT, OUT), "<f4", "argument 1 of points<float> is a structure"),
    ("points<int>", (OUT, OUT, OUT), "<f4", "argument 1 of points<int> is the address of float32"),
    ("own_made", (OUT,), "<f4", "own_made is given 1 arguments, and has another number of parameters"),
    ("own_made", (OUT, 3.0), "<f4", "argument 2 of own_made is of dtype float32, which its parameter does not take"),
    ("its_made", (OUT, 3.0), "<f4", "kernels.cu has no kernel its_made"),
])
def test_arguments_that_do_not_fit_are_named(compiled, name: str, arguments: tuple, dtype: str, words: str):
    with pytest.raises(CompileError, match=words):
        compiled(assertions(name, *arguments, dtype=dtype), name)


def test_options_decide_what_fits(compiled):
    compiled(assertions("plain", np.float64(3), IN, dtype="<f8", options=("-DTWICE",)), "plain")
    with pytest.raises(CompileError, match="the address of float32"):
        compiled(assertions("plain", np.float64(3), IN, options=("-DTWICE",)), "plain")


def test_a_fault_of_the_source_goes_before(compiled):
    source = assertions("plain", np.int32(3), IN)
    with pytest.raises(CompileError, match=r"kernels.cu, line 10: .*\n.*undeclared"):
        compiled(Source(source.text.replace("x[0] = a;", "x[0] = undeclared;")), "plain")


@pytest.mark.parametrize("width", [2000, 100_000])
def test_wide_results_are_folded_by_loops(width: int):
    """Written out, 100,000 columns took 87 s to compile to 700 KB."""
    arguments = (np.ones(width),)
    kernel = fuse((TracedCall(trace(lambda p, many: many * p[0], arguments), arguments),), record_of(np.ones((8, 4))),
                  folding=Folding((FieldFold("", "add"),)))
    assert len(compile_cubin(Source(kernel.source, "wide.cu"), kernel.name, "sm_90").code) < 50_000
