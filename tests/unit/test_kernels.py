"""Facts of kernels that are read off a CUDA source without a compiler."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.protocol.errors import LaunchError, PlanError
from vispark.plan.cuda_source import ArrayValue, Kernel, Kernels, UnknownKernel

SOURCE = """
// __global__ void in_a_line_comment(int n) {}
/* __global__ void in_a_comment(int n) {} */
const char* text = "__global__ void in_a_string(int n) {}"; // it's "unbalanced
const char* raw = R"x(__global__ void in_a_raw_string(int n) {} ")x";
const int big = 1'000'000; const char quote = '"';
__constant__ float table[40];
extern "C" __global__ void plain(const float* x, float* y, int n) {}
extern "C" { __global__ void __launch_bounds__(256, (2)) bounded(float x[], const int n = (3 < 4), double d = 1.0) {} }
template <typename T, int N = 4>
__global__
void fold(
    const T* __restrict__ x,   // the input, with a comma
    T* y)
{ }
static __global__ void none(void);
void __global__ reversed() {}
"""


def types_of(parameters: str, before: str = ""):
    kernel = Kernels(f"{before}\n__global__ void k({parameters}) {{}}").k
    return None if kernel.parameters is None else [
        (one.pointer, None if one.dtypes is None else one.dtypes[0]) for one in kernel.parameters]


def test_kernels_of_a_source():
    kernels = Kernels(SOURCE)
    assert repr(kernels) == "Kernels('kernels.cu': bounded, fold<...>, none, plain, reversed)"
    assert {"plain", "bounded", "fold", "none", "reversed", "source"} <= set(dir(kernels))
    assert kernels.plain == Kernel(kernels, "plain") == kernels["plain"]
    assert str(kernels.plain.declaration) == "__global__ void plain(const float* x, float* y, int n)"
    assert str(kernels["fold<float, 256>"].declaration) == "__global__ void fold(const T* __restrict__ x, T* y)"
    assert kernels.none.parameters == kernels.reversed.parameters == ()
    assert [one.text for one in kernels.bounded.parameters] == ["float x[]", "const int n", "double d"]


@pytest.mark.parametrize("name", ["in_a_comment", "in_a_line_comment", "in_a_string", "in_a_raw_string", "Plain"])
def test_a_name_that_is_no_kernel(name):
    kernels = Kernels(SOURCE)
    with pytest.raises(PlanError, match=f"no kernel '{name}' in 'kernels.cu'; it has bounded, fold<...>, none, plain"):
        kernels[name]
    with pytest.raises(AttributeError):
        getattr(kernels, name)
    assert not hasattr(kernels, name)
    assert hasattr(kernels, "plain")


def test_special_names_are_no_kernels():
    with pytest.raises(AttributeError) as caught:
        Kernels(SOURCE).__wrapped__  # noqa: B018
    assert not isinstance(caught.value, PlanError)


def test_templates_are_named_with_arguments_and_others_without():
    kernels = Kernels(SOURCE)
    with pytest.raises(UnknownKernel, match=r'fold in .* is a template: .* such as kernels\["fold<float>'):
        kernels.fold  # noqa: B018
    with pytest.raises(UnknownKernel, match=r"plain in 'kernels\.cu' is no template"):
        kernels["plain<float>"]
    assert Kernels("namespace a { __global__ void k(int) {} }")["a::k"].parameters[0].dtypes == ("<i4",)
    with pytest.raises(PlanError, match="named by a string"):
        kernels[3]
    with pytest.raises(TypeError):
        iter(kernels)


@pytest.mark.parametrize("declared, expected", [
    ("const float* __restrict__ x", (True, "<f4")),
    ("float const *const x", (True, "<f4")),
    ("volatile double x[]", (True, "<f8")),
    ("float x[N][3]", (True, None)),
    ("void* x", (True, None)),
    ("float** x", (True, None)),
    ("const bool flag", (False, "|b1")),
    ("char c", (False, "|i1")),
    ("unsigned char c", (False, "|u1")),
    ("short int s", (False, "<i2")),
    ("unsigned", (False, "<u4")),
    ("unsigned int n", (False, "<u4")),
    ("long n", (False, "<i8")),
    ("unsigned long long int n", (False, "<u8")),
    ("long long", (False, "<i8")),
    ("size_t n", (False, "<u8")),
    ("std::size_t n", (False, "<u8")),
    ("int32_t n", (False, "<i4")),
    ("const uint64_t* n", (True, "<u8")),
    ("__half h", (False, "<f2")),
    ("long double x", (None, None)),
    ("real r", (None, None)),
    ("real* r", (True, None)),
    ("thrust::complex<float> c", (None, None)),
    ("const Pair<int, float>* p", (True, None)),
    ("float4* v", (True, "<f4")),
    ("dim3 v", (False, None)),
    ("void (*f)(float)", (None, None)),
    ("int& n", (None, None)),
    ("const __grid_constant__ int n", (False, "<i4")),
])
def test_types_of_parameters(declared, expected):
    assert types_of(declared) == [expected]


def test_const_is_of_what_is_pointed_to():
    kernels = Kernels("__global__ void k(const float* a, float const* b, float* const c, const float d[]) {}")
    assert [one.constant for one in kernels.k.parameters] == [True, True, False, True]


@pytest.mark.parametrize("parameters, before", [
    ("ARGS, int n", "#define ARGS int a, int b"),
    ("int ARGS(a)", "#define ARGS(x) x, int b"),
    ("Ts... xs", "template <typename... Ts>"),
    ("\n#ifdef X\nint a,\n#endif\nint b", ""),
    ("int a = 1 < 2, int b", ""),
])
def test_parameter_lists_that_the_text_does_not_settle(parameters, before):
    kernels = Kernels(f"{before}\n__global__ void k({parameters}) {{}}")
    assert kernels["k<int>" if "template" in before else "k"].parameters is None


@pytest.mark.parametrize("before, declared, expected", [
    ("typedef float real;", "const real* x", (True, "<f4")),
    ("typedef float real;", "real a", (False, "<f4")),
    ("typedef unsigned long long count, *counts;", "counts c", (True, "<u8")),
    ("typedef double row[4];", "row r", (True, "<f8")),
    ("typedef float real; typedef real scalar; using number = scalar;", "number x", (False, "<f4")),
    ("namespace a { using real = double; }", "a::real x", (False, "<f8")),
    ("#define real double", "real* x", (True, "<f8")),
    ("#define REAL float\ntypedef REAL real;", "real x", (False, "<f4")),
    ("#define RESTRICT", "float* RESTRICT x", (True, "<f4")),
    ("#define N 40", "float x[N]", (True, "<f4")),
    ("enum class Mode : unsigned char { A, B };", "Mode m", (False, "|u1")),
    ("typedef enum { A, B } mode;", "mode m", (False, "<i4")),
    ("struct Cell { float x, y, z; };", "const Cell* c", (True, "<f4")),
    ("struct Pair { float a; int b; };", "Pair* p", (True, None)),
    ("#ifdef X\ntypedef double real;\n#else\ntypedef float real;\n#endif", "real x", (None, None)),
    ("#ifdef X\n#define real double\n#else\n#define real float\n#endif", "real x", (None, None)),
    ("struct A { typedef double real; }; typedef float real;", "real x", (None, None)),
    ("typedef float (*function)(float);", "function f", (None, None)),
    ("typedef real real;", "real x", (None, None)),
    ("typedef float real; template <class real>", "real x", (None, None)),
    ("template <int N, typename T = float>", "int n", (False, "<i4")),
])
def test_other_names_for_types(before, declared, expected):
    kernels = Kernels(f"{before}\n__global__ void k({declared}) {{}}")
    parameter, = kernels["k<int>" if "template" in before else "k"].parameters
    assert (parameter.pointer, parameter.dtypes and parameter.dtypes[0]) == expected
    assert parameter.settled == (expected[1] is not None or "Pair" in declared)


def test_options_define_types():
    source = "#ifndef real\n#define real float\n#endif\n__global__ void k(real x) {}"
    assert Kernels(source).k.parameters[0].dtypes == ("<f4",)
    assert Kernels(source, ["-Dreal=float"]).k.parameters[0].dtypes == ("<f4",)
    assert Kernels(source, ["-Dreal=double"]).k.parameters[0].dtypes is None
    assert Kernels("__global__ void k(float x) {}", ["-Dfloat=double"]).k.parameters[0].dtypes == ("<f8",)


@pytest.mark.parametrize("source, layout", [
    ("struct S { int a; double b; };", "16 bytes: int32 at 0, float64 at 8"),
    ("typedef struct { float x, y[2]; char c; } S;", "16 bytes: float32 at 0, float32 at 4, float32 at 8, int8 at 12"),
    ("#define N 2\nstruct T { short a; }; struct S { T t[N]; float* p; };",
     "16 bytes: int16 at 0, int16 at 2, uint64 at 8"),
    ("typedef float fp; typedef struct { fp v, x; float4 q; } S;",
     "32 bytes: float32 at 0, float32 at 4, float32 at 16, float32 at 20, float32 at 24, float32 at 28"),
])
def test_layouts_of_structures(source, layout):
    parameter, = Kernels(f"{source}\n__global__ void k(S s) {{}}").k.parameters
    assert str(parameter.structure) == layout


@pytest.mark.parametrize("source", ["struct S { int a : 3; };", "struct __align__(16) S { int a; };", "struct S;",
                                    "struct S { S(); int a; };", "struct B { int b; }; struct S : B { int a; };",
                                    "union S { int a; float b; };", "struct S { S* next; unknown x; };"])
def test_structures_that_are_more_than_members(source):
    parameter, = Kernels(f"{source}\n__global__ void k(S s) {{}}").k.parameters
    assert (parameter.structure, parameter.settled) == (None, False)


def test_declarations_that_disagree_are_left_to_the_compiler():
    both = Kernels("#ifdef A\n__global__ void k(int n) {}\n#else\n__global__ void k(float x, int n) {}\n#endif")
    assert both.k.parameters is None
    twice = Kernels("__global__ void k(int);\n__global__ void k(int n) {}")
    assert len(twice.k.parameters) == 1


@pytest.mark.parametrize("source", [
    "#define MAKE(name) __global__ void name(int n) {}\nMAKE(foo)",
    "#define NAME(x) x##_kernel\n__global__ void NAME(foo)(int n) {}",
    "#define KERNEL extern \"C\" \\\n  __global__ void\nKERNEL foo(int n) {}",
    "#define it foo\n__global__ void it(int n) {}",
])
def test_kernels_that_macros_make_are_left_to_the_compiler(source):
    kernel = Kernels(source).foo
    assert kernel.declaration is None
    assert kernel.parameters is None


def test_attributes_and_macros_before_the_name():
    kernels = Kernels("#define BOUNDS __launch_bounds__(256)\n#define FAST(n) __launch_bounds__(n)\n"
                      "__global__ BOUNDS void a(int) {}\n__global__ void FAST(32) b() {}\n"
                      "[[nodiscard]] __global__ [[gnu::hot]] __cluster_dims__(2, 1, 1) void c(float) {}")
    assert [len(kernels[name].parameters) for name in "abc"] == [1, 0, 1]
    assert kernels.a.declaration.name == "a"


def test_specialisations_and_instantiations_are_of_their_template():
    kernels = Kernels("template <class T> __global__ void k(T* x) {}\ntemplate <> __global__ void k<int>(int* x) {}\n"
                      "template __global__ void k<float>(float*);")
    assert kernels["k<float>"].parameters is None


@pytest.mark.parametrize("source, words", [
    ("lr.cu", r"write Kernels.from_file\('lr.cu'\)"),
    ("  path/to/lr.cuh\n", "name of a file"),
    ("__device__ int f() { return 1; }", "no __global__ function in 'kernels.cu'"),
    (b"__global__ void k() {}", "not bytes"),
])
def test_sources_that_are_none(source, words):
    with pytest.raises(PlanError, match=words):
        Kernels(source)


def test_from_file(tmp_path: Path):
    path = tmp_path / "own.cu"
    path.write_text(SOURCE, encoding="utf-8")
    kernels = Kernels.from_file(path, ["-DD=40"])
    assert (kernels.file, kernels.options, kernels.source) == ("own.cu", ("-DD=40",), SOURCE)


@pytest.mark.parametrize("options, kept", [
    (["-DD=40", "-U", "X", "-D N=1", "-D", "F(x)=x + 1"], ("-DD=40", "-UX", "-DN=1", "-DF(x)=x + 1")),
    (["-std=c++17", "--std=c++20", "--use_fast_math", "-lineinfo"],) * 2,
    (["--maxrregcount=32", "--fmad=false", "-ftz=true"],) * 2,
])
def test_options_that_pass(options, kept):
    assert Kernels(SOURCE, options).options == tuple(kept)


@pytest.mark.parametrize("option, reason", [
    ("-I/usr/include", "put the text of the header into the source"),
    ("--include-path=x", "put the text of the header"),
    ("-arch=sm_90", "compiles for the device that it has"),
    ("-O3", "known are -D, -U"),
    ("--maxrregcount=all", "known are"),
    ("-D", "refused"),
    ("-D1=2", "refused"),
])
def test_options_that_are_refused(option, reason):
    with pytest.raises(PlanError, match=reason) as caught:
        Kernels(SOURCE, [option])
    assert repr(option) in str(caught.value)


@pytest.mark.parametrize("options", ["-DD=40", [40]])
def test_options_are_a_list_of_strings(options):
    with pytest.raises(PlanError, match="list of strings"):
        Kernels(SOURCE, options)


def test_constants_are_copied_and_checked():
    table = np.arange(40, dtype=">f4")[::-1]
    kernels = Kernels(SOURCE, constants={"table": table})
    table[:] = 0
    (name, value), = kernels.constants
    assert (name, value.dtype, value.shape) == ("table", "<f4", (40,))
    assert np.array_equal(np.frombuffer(value.data, "<f4"), np.arange(40)[::-1])
    with pytest.raises(PlanError, match="no __constant__ tabel in"):
        Kernels(SOURCE, constants={"tabel": table})
    with pytest.raises(PlanError, match="constant table is to be a NumPy array, not list"):
        Kernels(SOURCE, constants={"table": [1.0]})
    with pytest.raises(LaunchError, match="constant table has dtype object"):
        Kernels(SOURCE, constants={"table": np.array([None])})


def test_equal_content_makes_equal_kernels():
    one, other = (Kernels(SOURCE, ["-DD=40"], constants={"table": np.ones(40, "f4")}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one.plain == other.plain
    assert len({one.plain, other.plain, one["fold<int>"]}) == 2
    assert one != Kernels(SOURCE, ["-DD=41"], constants={"table": np.ones(40, "f4")})
    assert one != Kernels(SOURCE, ["-DD=40"], constants={"table": np.zeros(40, "f4")})
    with pytest.raises(AttributeError):
        one.source = ""


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k)),
                                     lambda k: cloudpickle.loads(cloudpickle.dumps(k))])
def test_kernels_travel(through):
    kernels = Kernels(SOURCE, ["-DD=40"], constants={"table": np.ones(40, "f4")})
    assert through(kernels) == kernels
    assert through(kernels.plain) == kernels.plain
    assert through(kernels).plain.parameters == kernels.plain.parameters


def test_the_error_travels():
    with pytest.raises(UnknownKernel) as caught:
        Kernels(SOURCE)["nothing"]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_fold_kernels_of_the_worker_are_read():
    source = (Path(__file__).parents[2] / "gpu_worker" / "execution" / "folds" / "fold.cu").read_text(encoding="utf-8")
    assert [one.dtypes for one in Kernels(source)["fold_into<Add, Value, float, double>"].parameters] == [
        None, None, ("<i8",), ("<i4",)]


@given(st.text(alphabet="_aA0 <>()[]{},;:*&=\"'/\\\n#-", max_size=60))
def test_no_text_makes_the_reader_fail_otherwise(text):
    try:
        Kernels("__global__ " + text)
    except PlanError as error:
        assert "__global__" in str(error)


def test_array_values_are_equal_by_content():
    assert ArrayValue.of(np.ones((2, 3), order="F"), "x") == ArrayValue.of(np.ones((2, 3)), "x")
    assert ArrayValue.of(np.ones((2, 3)), "x") != ArrayValue.of(np.ones((3, 2)), "x")
    assert repr(ArrayValue.of(np.ones((2, 3)), "x")) == "float64 array (2, 3)"
