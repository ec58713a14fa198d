"""Mistakes of users: each gives one readable error that says where, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, Accumulator, SparkContext, StorageLevel

from tests.system.topology import DEVICE_NAME, Topology
from tests.system.vrdd_tools import exact, host_context, in_partitions
from vispark import (
    IN,
    OUT,
    VRDD,
    CompileError,
    KernelFault,
    Kernels,
    LaunchError,
    PlanError,
    RecordError,
    TranslationError,
    VisparkError,
)

K = Kernels("""
extern "C" __global__ void scale(const float* x, float* y, float by, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = by * x[i]; }
""")
DOES_NOT_COMPILE = Kernels("""
extern "C" __global__ void broken(const float* x, float* y)
{
    y[0] = x[0] + undefined;
}
""", file="broken.cu")
FAULTS = Kernels('extern "C" __global__ void faults(const float* x, float* y)\n{ *(volatile float*)16 = x[0]; }')
NEVER_ENDS = Kernels('extern "C" __global__ void never_ends(const float* x, float* y)\n'
                     '{ while (*(const volatile float*)x == x[0]) {} y[0] = x[0]; }')


@dataclass
class Bystander:
    """Another VRDD of the session, to see that nothing of it is lost."""

    vrdd: VRDD
    loads: Accumulator
    expected: int = 4

    def check(self) -> None:
        assert exact(self.vrdd.collect()) == exact([np.float32(i) for i in range(4)])
        assert self.loads.value == self.expected, "it was loaded anew"

    def check_rebuilt(self) -> None:
        """Check that it comes back from its lineage, once: its process has ended."""
        self.expected = self.loads.value + 4
        self.check()


def bystander(sc: SparkContext) -> Bystander:
    loads = sc.accumulator(0)

    def load(value: int) -> np.float32:
        loads.add(1)
        return np.float32(value)
    witness = Bystander(sc.parallelize(range(4), 2).map(load).cache("GPU"), loads)
    witness.check()
    return witness


@pytest.fixture(scope="module")
def sc(local: Topology) -> Iterator[SparkContext]:
    with host_context(local) as context:
        yield context


@pytest.fixture(scope="module")
def other(sc: SparkContext) -> Bystander:
    return bystander(sc)


@pytest.fixture(autouse=True)
def untouched(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "sc" in request.fixturenames:
        request.getfixturevalue("other").check()


def floats(sc: SparkContext) -> RDD:
    return sc.parallelize(range(4), 2).map(np.float32)


def refused(action: Callable[[], object], kind: type[VisparkError], *words: str) -> VisparkError:
    """Return the error of an action, which is of this class, short, and has these words."""
    with pytest.raises(kind) as raised:
        action()
    text = str(raised.value)
    assert type(raised.value) is kind, text
    assert all(word in text for word in words), text
    assert len(text.partition("\n")[0]) < 400 and "Traceback" not in text and "org.apache" not in text, text
    return raised.value


# -- records ----------------------------------------------------------------------------------------------------------

RECORDS = [
    ("object array", [[1.5], [np.array([None, 1], object)]], ("record 0", "1-D array of object", "numeric dtype")),
    ("strings", [[], ["a", "b"]], ("record 0", "text can be a key", "partition 1")),
    ("string array", [[np.array(["a", "b"])]], ("record 0", "<U1")),
    ("ragged tuples", [[], [(1, 2, 3), (1, 2, 3, 4)]], ("record 1", "partition 1")),
    ("mixed types", [[1, 2.5], [3]], ("record 1 is a float", "record 0 is an int", "partition 0")),
    ("mixed pairs", [[(1, 2.5), 3.5]], ("record 1",)),
    ("mixed fields", [[{"x": 1.0}, {"y": 1.0}]], ("record 1",)),
    ("none", [[1.5, None]], ("record 1", "None")),
    ("lists", [[[1, 2]]], ("a list", "np.asarray")),
    ("ints too large", [[2**70]], ("record 0",)),
    ("pairs of pairs", [[(1, (2, 3))]], ("value of record 0", "pair")),
]


@pytest.mark.parametrize(("data", "words"), [pytest.param(*case[1:], id=case[0]) for case in RECORDS])
def test_records(sc: SparkContext, other: Bystander, data: list, words: tuple[str, ...]):
    refused(lambda: in_partitions(sc, data).setName("bad").cache("GPU").setName("odd").count(), RecordError, *words)
    refused(lambda: in_partitions(sc, data).send().recv().map(str).collect(), RecordError, *words)


def test_a_record_error_says_the_vrdd(sc: SparkContext, other: Bystander):
    refused(lambda: in_partitions(sc, [[], ["a"]]).send().htod().setName("words").cache().collect(), RecordError,
            "VRDD", "words", "partition 1", "operation send")


# -- plans ------------------------------------------------------------------------------------------------------------

def test_operations_of_a_vrdd_on_a_plain_rdd(sc: SparkContext, other: Bystander):
    plain = floats(sc)
    for name, action in {"exec": lambda: plain.exec(K.scale, IN, OUT, 2.0, IN.shape[0], grid=1, block=32),
                         "htod": plain.htod, "dtoh": plain.dtoh, "recv": plain.recv}.items():
        refused(action, PlanError, f"{name}() works on data in a GPU worker", "plain RDD", 'cache("GPU")')
    refused(lambda: plain.send().send(), PlanError, "in the worker already")
    refused(lambda: plain.cache("GPU").send(), PlanError, "in the worker already")


@pytest.mark.parametrize("level", ["TPU", "gpu", "", "MEMORY_ONLY"])
def test_storage_levels(sc: SparkContext, other: Bystander, level: str):
    refused(lambda: floats(sc).cache(level), PlanError, f"there is no storage level {level!r}", '"GPU"')
    refused(lambda: floats(sc).persist(level), PlanError, repr(level))
    refused(lambda: floats(sc).cache("GPU").cache(level), PlanError, repr(level))
    refused(lambda: floats(sc).cache("GPU").persist(level), PlanError, repr(level))
    assert floats(sc).persist(StorageLevel.MEMORY_ONLY).count() == 4


def test_a_kernel_that_is_not_in_the_source(sc: SparkContext, other: Bystander):
    with pytest.raises(PlanError, match=r"there is no kernel 'scales' in 'kernels.cu'; it has scale"):
        floats(sc).cache("GPU").exec(K.scales, IN, OUT, grid=1, block=1)


def test_arguments(sc: SparkContext, other: Bystander):
    cached = floats(sc).cache("GPU")
    for arguments, words in [((IN, OUT, 2.0), ("scale takes 4 arguments and is given 3",)),
                             ((IN, OUT, 2.0, 4, 5), ("takes 4 arguments and is given 5",)),
                             ((IN, OUT, np.float64(2), 4), ("float by", "float64")),
                             ((IN, OUT, 2.0, 4.5), ("int n",)),
                             ((IN, OUT, 2.0, "4"), ("type str",)),
                             ((IN, OUT, IN, 4), ("float by", "no pointer")),
                             ((IN, OUT, 2.0, np.ones(3)), ("int n", "float64 array")),
                             ((OUT, OUT, 2.0, 4), ("const",)),
                             ((2.0, OUT, 2.0, 4), ("const float* x", "is a pointer"))]:
        error = refused(lambda arguments=arguments: cached.exec(K.scale, *arguments, grid=1, block=32), LaunchError,
                        *words)
        assert "exec scale" in str(error)


def test_what_only_the_blocks_decide(sc: SparkContext, other: Bystander):
    # Without anything cached it is found in a task, on cached data in the driver; the error is the same.
    doubles = sc.parallelize([1.0, 2.0, 3.0], 2)
    for vrdd, words in ((doubles.send().htod(), ()), (doubles.cache("GPU").setName("doubles"), ("doubles",))):
        wrong = vrdd.exec(K.scale, IN, OUT, 2.0, IN.shape[0], grid=1, block=32)
        for action in (wrong.collect, wrong.map(str).collect, wrong.recv().collect):
            refused(action, LaunchError, "const float* x", "float64", "exec scale", "partition", "test_bad_input.py",
                    *words)
    launches = {
        ('there is no IN["x"] in the block', "exec scale"): {"arguments": (IN["x"], OUT, 2.0, IN.shape[0])},
        ("IN.shape[1] asks for an axis",): {"arguments": (IN, OUT, 2.0, IN.shape[1])},
        ("grid= has 0", "at least 1"): {"grid": lambda b: b.shape[0] - 2},
        ("block=", "2048"): {"block": lambda b: 2048},
        ("float* y", "int32"): {"out": lambda b: (b.shape, "i4")},
        ("out= is 5",): {"out": lambda b: 5},
        ("stack", "leading extent"): {"out": ((), "f4")},
        ("ZeroDivisionError",): {"grid": lambda b: 1 // 0},
    }
    for words, changes in launches.items():
        launch = {"arguments": (IN, OUT, 2.0, IN.shape[0]), "grid": 1, "block": 32} | changes
        arguments = launch.pop("arguments")
        for vrdd in (floats(sc).cache("GPU"), floats(sc).send()):
            error = refused(lambda vrdd=vrdd, arguments=arguments, launch=launch:
                            vrdd.exec(K.scale, *arguments, **launch).collect(), LaunchError, *words)
            assert "partition" in str(error) and "called at" in str(error) and "test_bad_input.py" in str(error), error


def test_grids_of_zero(sc: SparkContext, other: Bystander):
    cached = floats(sc).cache("GPU")
    for launch in ({"grid": 0, "block": 32}, {"grid": 1, "block": 0}, {"grid": (1, 0), "block": 32},
                   {"grid": -1, "block": 32}, {"grid": 1.5, "block": 32}, {"grid": 1, "block": 4096},
                   {"grid": (1, 1, 1, 1), "block": 1}, {"grid": 1, "block": 32, "shared": -1}):
        wrong = "shared=" if "shared" in launch else "grid=" if launch["block"] in (32, 1) else "block="
        refused(lambda launch=launch: cached.exec(K.scale, IN, OUT, 2.0, 4, **launch), LaunchError, wrong, "exec scale")


def test_pairs_whose_keys_would_be_lost(sc: SparkContext, other: Bystander):
    pairs = sc.parallelize([(1, np.float32(1)), (2, np.float32(2))], 1).cache("GPU")
    refused(lambda: pairs.exec(K.scale, IN, OUT, 2.0, 1, out=((1,), "f4"), grid=1, block=1).collect(), LaunchError,
            "1 records of 2 pairs", ".values()", "partition 0")
    refused(lambda: pairs.keys().exec(K.scale, IN, OUT, 2.0, 1, grid=1, block=1).collect(), PlanError,
            "a kernel needs blocks", "exec scale", "partition 0")


# -- kernels ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["cached", "sent", "mapped"])
def test_a_kernel_that_does_not_compile(sc: SparkContext, other: Bystander, how: str):
    vrdd = (floats(sc).send() if how == "sent" else floats(sc).cache("GPU")).setName("points")
    broken = vrdd.exec(DOES_NOT_COMPILE.broken, IN, OUT, grid=1, block=1)
    action = broken.map(str).collect if how == "mapped" else broken.collect
    error = refused(action, CompileError, "broken.cu", "undefined", "y[0] = x[0] + undefined", "4", "exec broken",
                    "partition", DEVICE_NAME)
    assert how == "sent" or "points" in str(error)


@pytest.mark.parametrize("how", ["cached", "sent", "mapped"])
def test_a_kernel_that_faults(sc: SparkContext, other: Bystander, how: str):
    vrdd = (floats(sc).send() if how == "sent" else floats(sc).cache("GPU")).setName("points")
    if how != "sent":
        assert vrdd.count() == 4
    faulty = vrdd.exec(FAULTS.faults, IN, OUT, grid=1, block=1)
    refused(faulty.map(str).collect if how == "mapped" else faulty.collect, KernelFault, "exec faults", "partition",
            DEVICE_NAME, *([] if how == "sent" else ["points"]))
    other.check_rebuilt()
    if how != "sent":
        assert vrdd.count() == 4 and vrdd.collect()[-1] == 3


def test_a_function_of_pairs_is_told_that_it_gets_the_value(sc: SparkContext, other: Bystander):
    pairs = sc.parallelize([(1, 2.0), (2, 3.0)], 1).cache("GPU")
    error = refused(pairs.vmap(lambda pair: (pair[0], pair[1] * 2)).collect, TranslationError, "float64 has no items")
    assert "The records are pairs: as with mapValues, the function gets the value, and the key stays" in str(error)


def test_an_index_that_is_out_of_range(sc: SparkContext, other: Bystander):
    rows = in_partitions(sc, [[np.array([0.0, 1.0])], [np.array([1.0, 2.0])]]).cache("GPU")
    assert rows.count() == 2
    shifted = rows.vmap(lambda p, k: p[int(p[0]) + k], 1)
    refused(shifted.collect, KernelFault, "vmap lambda", DEVICE_NAME, "index 2 is out of range for an axis of length 2",
            'test_bad_input.py", line ', "column 38, in lambda", "^" * len("p[int(p[0]) + k]"))
    other.check_rebuilt()
    assert rows.vmap(lambda p, k: p[int(p[0]) + k], 0).collect() == [0.0, 2.0]


def test_python_functions_fail_as_ever(sc: SparkContext, other: Bystander):
    with pytest.raises(Py4JJavaError, match="ZeroDivisionError"):
        floats(sc).cache("GPU").map(lambda x: 1 // 0).collect()
    with pytest.raises(Py4JJavaError, match="ZeroDivisionError"):
        floats(sc).map(lambda x: 1 // 0).cache("GPU").collect()


def test_the_whole_trace_is_kept(sc: SparkContext, other: Bystander):
    with pytest.raises(RecordError) as caught:
        sc.parallelize([1.0, None], 2).cache("GPU").count()
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert "records/columns.py" in caught.value.full_trace
