"""Lowering of chains: operations that are one step, and what is sent of them, without Spark or a worker."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pytest

from gpu_worker.protocol import codec
from gpu_worker.protocol.messages import (
    ExecStep,
    FetchStep,
    Field,
    FoldByKeyStep,
    FoldInsideStep,
    FoldStep,
    In,
    KeepStep,
    KeysStep,
    LoadStep,
    MapFoldStep,
    Out,
    Plan,
    PutStep,
    Signature,
    ToDeviceStep,
    ToHostStep,
    ValueArgument,
    ValuesStep,
)
from vispark import IN, OUT, Kernels
from vispark.data.records import RecordLayout
from vispark.data.records.layout import RecordPart
from vispark.data.records.partition_schema import PartitionSchema
from vispark.errors import LaunchError, PlanError
from vispark.plan import ops as plan
from vispark.plan.exec_call import record_exec
from vispark.plan.fold import fold_for_kernel
from vispark.plan.fold.lowering import ByKey, Reduce, Sum
from vispark.plan.lower.executable import Executable
from vispark.plan.lower.lowering import Lowering
from vispark.plan.lower.stages import FETCH, KEEP, FusedStage, RequestedOutput, stages
from vispark.plan.map_call import record_map
from vispark.plan.ops import DatasetId, LogicalPlan, PlanNode
from vispark.runtime.driver.plan_cache import PlanCache
from vispark.runtime.identity import WorkerAddress
from vispark.translate.codegen.scalar.interface import SHARED_LIMIT

START = DatasetId(1, "points")
ADD = fold_for_kernel(operator.add, "")
K = Kernels("__global__ void twice(const float* x, float* y, float by) {}")


def doubled(x):
    return 2 * x


def scaled(x, k):
    return k * x


def squared(x):
    return x * x


def paired(x):
    return 1 if x > 0 else 0, x


def part(name: str, dtype: str, form: str = "number") -> RecordPart:
    return RecordPart(name, form, (dtype,))


def numbers(count: int, dtype: str = "<f4", keyed: bool = False) -> PartitionSchema:
    return PartitionSchema(count, 8 if keyed else 0, RecordLayout("elements", keyed, (part("", dtype),)),
                           (Signature((Field("", dtype, (count,)),)),) if count else ())


def rows(count: int, width: int, kind: str = "elements", keyed: bool = False) -> PartitionSchema:
    """Return the schema of rows, or of blocks of rows."""
    field = Field("", "<f4", (count, width))
    records = count if kind == "elements" else 1
    return PartitionSchema(records, 8 if keyed else 0, RecordLayout(kind, keyed, (part("", "<f4", "array"),)),
                           (Signature((field,)),))


def mapping(function, *arguments, of: str | None = None) -> plan.Map:
    return plan.Map(record_map(function, arguments, of))


def executing(by: float = 2.0) -> plan.Exec:
    return plan.Exec(record_exec(K.twice, (IN, OUT, by), grid=1, block=32))


def chain(*ops: plan.Op, kept: tuple[int, ...] = ()) -> LogicalPlan:
    """Return a chain from cached content; of ``ops`` those at some positions are kept."""
    nodes = tuple(PlanNode(op, DatasetId(10 + number, "kept") if number in kept else None) for number,
                  op in enumerate(ops))
    return (PlanNode(plan.Send()), PlanNode(plan.ToDevice(), START), *nodes)


def lowered(ops: LogicalPlan, *contents: PartitionSchema, requested: RequestedOutput = FETCH) -> Lowering:
    lowering = Lowering(ops, START, requested)
    for partition, content in enumerate(contents):
        lowering.add(partition, content)
    assert lowering.finish() == ""
    return lowering


def kinds(lowering: Lowering) -> list[type]:
    return [type(step) for step in lowering.steps]


# -- which operations are one step ------------------------------------------------------------------------------------

INSIDE = plan.FoldInside(ADD)


@pytest.mark.parametrize("ops, kept, fold, expected", [
    ((mapping(doubled), mapping(squared)), (), False, [FusedStage(0, 2)]),
    ((mapping(doubled), mapping(squared)), (0,), False, [FusedStage(0, 1), FusedStage(1, 2)]),
    ((mapping(doubled), plan.ToHost(), mapping(squared)), (), False, [FusedStage(0, 3)]),
    ((mapping(doubled), plan.ToHost(), mapping(squared)), (1,), False,
     [FusedStage(0, 1), FusedStage(1, 2), FusedStage(2, 3)]),
    ((mapping(doubled), plan.ToHost()), (), False, [FusedStage(0, 1), FusedStage(1, 2)]),
    ((mapping(doubled), INSIDE, plan.Values()), (), True, [FusedStage(0, 3, True)]),
    ((mapping(doubled), INSIDE, mapping(squared)), (), False, [FusedStage(0, 2), FusedStage(2, 3)]),
    ((mapping(doubled), executing(), mapping(squared)), (), True,
     [FusedStage(0, 1), FusedStage(1, 2), FusedStage(2, 3, True)]),
    ((INSIDE, mapping(squared)), (), True, [FusedStage(0, 1), FusedStage(1, 2, True)]),
    ((mapping(doubled),), (0,), True, [FusedStage(0, 1)]),
    ((mapping(doubled), plan.Keys(), mapping(squared)), (), False, [FusedStage(0, 2), FusedStage(2, 3)]),
    ((), (), True, []),
])
def test_stages(ops, kept, fold, expected):
    assert list(stages(chain(*ops, kept=kept)[2:], fold)) == expected


def test_a_loop_that_is_replayed_is_no_single_kernel():
    fused = stages(chain(*[mapping(doubled)] * 40)[2:], True)
    assert fused == (FusedStage(0, 16), FusedStage(16, 32), FusedStage(32, 40, True))


def test_what_stands_apart():
    nodes = chain(mapping(doubled), mapping(squared), INSIDE)[2:]
    assert stages(nodes, True, {1}) == (FusedStage(0, 1), FusedStage(1, 3, True))
    assert stages(nodes, True, {3}) == (FusedStage(0, 3),)
    assert stages(nodes, True, {2, 3}) == (FusedStage(0, 2), FusedStage(2, 3))
    pairs = chain(mapping(paired), plan.Values())[2:]
    assert stages(pairs, False, {1}) == (FusedStage(0, 2),)      # an item is taken of pairs as they are made


# -- steps ------------------------------------------------------------------------------------------------------------

def test_a_run_of_maps_is_one_kernel():
    lowering = lowered(chain(mapping(doubled), mapping(scaled, 3.0), mapping(squared)), numbers(5), numbers(7))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, ExecStep, FetchStep]
    assert lowering.steps[2].label == "vmap doubled, vmap scaled, vmap squared"
    first, second = (launches[0] for launches in lowering.launches)
    assert first.tile > 0 and first.arguments == (In(""), Out(""), ValueArgument(0))
    assert (first.outputs, second.outputs) == ((Field("", "<f4", (5,)),), (Field("", "<f4", (7,)),))
    assert lowering.results()[1].signatures[0].fields[0].shape == (7,)


def test_what_is_sent_goes_to_the_device_once():
    lowering = Lowering((PlanNode(plan.Send()), PlanNode(plan.ToDevice()), PlanNode(mapping(doubled))), None, FETCH)
    lowering.add(0, numbers(5))
    assert not lowering.finish() and kinds(lowering) == [PutStep, ToDeviceStep, ExecStep, FetchStep]


def test_a_kept_result_on_the_way_is_kept():
    lowering = lowered(chain(mapping(doubled), mapping(squared), kept=(0,)), numbers(5))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, ExecStep, KeepStep, ToDeviceStep, ExecStep, FetchStep]
    assert lowering.numbers() == (1, 10)
    prepared = lowering.prepare()
    assert prepared.kept == ({0: numbers(5)},)
    sent = codec.decode(prepared.encoded, Plan)
    assert sent.variants[0].layouts == (numbers(5).layout.encode(),)


def test_map_and_fold_are_one_kernel():
    lowering = lowered(chain(mapping(doubled)), numbers(5), numbers(0), numbers(3),
                       requested=RequestedOutput(fold=Reduce(ADD)))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, MapFoldStep]
    assert (lowering.steps[2].how, lowering.steps[2].label) == ("all", "vmap doubled")
    launch = lowering.launches[0][0]
    assert launch.outputs == (Field("", "<f4", ()),)
    assert [(each.field, each.operator, each.accumulator, each.width) for each in launch.partials] == [
        ("", "add", "double", 1)]


@pytest.mark.parametrize(("taken", "dtype"), [(plan.Values(), "<f4"), (plan.Keys(), "<i8")])
def test_an_item_of_pairs_and_its_fold_are_one_kernel(taken: plan.Op, dtype: str):
    lowering = lowered(chain(mapping(paired), taken), numbers(5), requested=RequestedOutput(fold=Reduce(ADD)))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, MapFoldStep]
    launch = lowering.launches[0][0]
    assert launch.outputs == (Field("", dtype, ()),)
    assert {each.field for each in launch.partials} == {""}


def test_vreduce_behind_a_map_of_blocks():
    lowering = lowered(chain(mapping(doubled), INSIDE), rows(6, 4, "blocks"), rows(2, 4, "blocks"))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, MapFoldStep, FetchStep]
    assert lowering.steps[2].how == "inside"
    assert lowering.launches[0][0].outputs == (Field("", "<f4", (4,)),)
    assert lowering.results()[0].signatures == (Signature((Field("", "<f4", (4,)),)),)


def test_vreduce_of_the_same_operator_as_the_fold_behind_it_is_that_fold():
    ops = mapping(scaled, np.ones(4, "f4")), INSIDE, plan.Values()
    blocks = rows(6, 4, "blocks", keyed=True), rows(2, 4, "blocks", keyed=True)
    lowering = lowered(chain(*ops), *blocks, requested=RequestedOutput(fold=Reduce(ADD)))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, MapFoldStep]
    assert (lowering.steps[2].how, lowering.steps[2].label) == ("all", "vmap scaled, vreduce add")
    other = lowered(chain(*ops), *blocks, requested=RequestedOutput(fold=Reduce(fold_for_kernel(np.maximum, ""))))
    assert kinds(other) == [LoadStep, ToDeviceStep, MapFoldStep, ValuesStep, FoldStep]
    # Where a worker may have no row at all, each block says what is left of none.
    empty = lowered(chain(*ops), blocks[0], rows(0, 4, "blocks", keyed=True),
                    requested=RequestedOutput(fold=Reduce(ADD)))
    assert kinds(empty) == [LoadStep, ToDeviceStep, MapFoldStep, ValuesStep, FoldStep]


def test_vreduce_of_elements_is_part_of_the_kernel_before_it():
    lowering = lowered(chain(mapping(doubled), INSIDE), rows(6, 4))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, ExecStep, FetchStep]
    assert lowering.launches[0][0].outputs == lowering.results()[0].signatures[0].fields == (Field("", "<f4", (6,)),)
    assert kinds(lowered(chain(mapping(doubled), INSIDE), rows(6, 4), requested=RequestedOutput(fold=Reduce(ADD)))) \
        == [LoadStep, ToDeviceStep, MapFoldStep]
    # Where there is no such function of a row, it is a step.
    long = PartitionSchema(6, 0, RecordLayout("elements", False, (RecordPart("", "array", ("<f8",)),)),
                           (Signature((Field("", "<f8", (6, 40)),)),))
    assert kinds(lowered(chain(mapping(doubled), INSIDE), long)) == [LoadStep, ToDeviceStep, ExecStep, ToDeviceStep,
                                                                     FoldInsideStep, FetchStep]


def test_fold_by_key():
    lowering = lowered(chain(mapping(paired)), numbers(5), requested=RequestedOutput(fold=ByKey(ADD, 2)))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, MapFoldStep]
    assert (lowering.steps[2].how, lowering.steps[2].key, lowering.steps[2].groups) == ("key", "0", 2)
    assert lowering.launches[0][0].outputs == (Field("1", "<f4", (2,)),)
    kept = lowered(chain(mapping(paired), kept=(0,)), numbers(5), requested=RequestedOutput(fold=ByKey(ADD, 2)))
    assert kinds(kept) == [LoadStep, ToDeviceStep, ExecStep, KeepStep, FoldByKeyStep]
    with pytest.raises(PlanError, match="made of blocks: the key of each is an array"):
        lowered(chain(plan.Map(record_map(lambda p: (p[0] > 3, p), (), "row"))), rows(5, 2, "blocks"),
                requested=RequestedOutput(fold=ByKey(ADD, 2)))


def test_a_fold_without_a_kernel_of_its_own_is_a_step():
    lowering = lowered(chain(mapping(doubled)), numbers(5, "<c8"), requested=RequestedOutput(fold=Sum()))
    assert kinds(lowering) == [LoadStep, ToDeviceStep, ExecStep, FoldStep]


def test_why_a_fold_is_not_lowered():
    lowering = Lowering(chain(), START, RequestedOutput(fold=Reduce(ADD)))
    lowering.add(0, rows(3, 2, keyed=True))
    assert lowering.finish() == "pairs are not folded on the device"
    nothing = Lowering(chain(), START, RequestedOutput(fold=Reduce(ADD)))
    nothing.add(0, numbers(0))
    assert nothing.finish() == "there are no records"


@pytest.mark.parametrize("op, dtype, name", [(plan.Keys(), "<i8", "0"), (plan.Values(), "<f4", "1")])
def test_of_pairs_only_the_item_that_is_wanted_is_computed(op: plan.Op, dtype: str, name: str):
    lowering = lowered(chain(mapping(paired), op), numbers(5))
    launch = lowering.launches[0][0]
    assert launch.outputs == (Field("", dtype, (5,)),) and Out("") in launch.arguments
    assert sum(isinstance(argument, Out) for argument in launch.arguments) == 1
    assert lowering.results()[0].signatures[0].fields == launch.outputs
    # And it can be computed with.
    more = lowered(chain(mapping(paired), op, mapping(squared)), numbers(5))
    assert [step.label for step in more.steps if isinstance(step, ExecStep)] == ["vmap paired", "vmap squared"]


def test_keys_alone_need_no_kernel():
    lowering = lowered(chain(mapping(doubled, of="value"), plan.Keys()), numbers(5, keyed=True))
    assert kinds(lowering) == [LoadStep, KeysStep, FetchStep] and lowering.launches == [[]]
    assert lowering.results()[0] == PartitionSchema(5, 8,
                                                    RecordLayout("elements", True, (part("", "<f4"),), only="keys"), ())


def test_pairs_that_a_map_makes_replace_the_keys():
    lowering = lowered(chain(mapping(paired)), numbers(5, keyed=True))
    assert lowering.launches[0][0].keyless and lowering.results()[0].keys == 0


def test_transfers():
    assert kinds(lowered(chain(plan.ToHost()), numbers(5))) == [LoadStep, FetchStep]
    assert kinds(lowered(chain(plan.ToHost(), kept=(0,)), numbers(5))) == [LoadStep, ToHostStep, KeepStep, FetchStep]
    assert kinds(lowered(chain(plan.ToHost(), kept=(0,)), numbers(5), requested=KEEP)) == [LoadStep, ToHostStep,
                                                                                           KeepStep]
    from_records = Lowering(chain(mapping(doubled))[:1] + chain(mapping(doubled))[2:], None, FETCH)
    from_records.add(0, numbers(5))
    from_records.finish()
    assert kinds(from_records) == [PutStep, ToDeviceStep, ExecStep, FetchStep]


def test_a_limit_is_for_partitions_that_mean_the_same_by_a_record():
    requested = RequestedOutput(limit=2)
    assert lowered(chain(), numbers(5), numbers(0), requested=requested).steps[-1] == FetchStep(2, "rows")
    assert lowered(chain(), rows(5, 2, "blocks"), requested=requested).steps[-1] == FetchStep(2, "blocks")
    assert lowered(chain(), numbers(5), rows(5, 2, "blocks"), requested=requested).steps[-1] == FetchStep(-1, "")


def test_errors_name_the_partition():
    lowering = Lowering(chain(INSIDE), START, FETCH)
    with pytest.raises(PlanError, match="a record is a number") as caught:
        lowering.add(3, numbers(5))
    assert (caught.value.place.vrdd, caught.value.place.partition) == ("1 points", 3)
    ragged = PartitionSchema(5, 0, RecordLayout("elements", False, (part("x", "<f4"), part("y", "<f4"))),
                             (Signature((Field("x", "<f4", (5,)), Field("y", "<f4", (4,)))),))
    with pytest.raises(LaunchError, match="leading axis"):
        Lowering(chain(plan.Map(record_map(lambda x, y: x + y, ()))), START, FETCH).add(0, ragged)


# -- prepared plans ---------------------------------------------------------------------------------------------------

def plan_of(plans: PlanCache, *ops: plan.Op, contents: PartitionSchema | None = None, home: WorkerAddress | None = None,
            shared_limit: int = SHARED_LIMIT) -> Executable:
    whole = chain(*ops)
    home = home or WorkerAddress("/run", "here")
    content = contents or numbers(5)
    shape = plans.shape({0: home, 1: home}, {0: content, 1: content})
    ready = plans.ready(whole, START, whole[2:], shape, FETCH, [0, 1], shared_limit)
    (at, prepared), = ready.shares
    assert at == home
    return prepared


def test_a_plan_serves_all_values():
    plans = PlanCache()
    one, other = (plan_of(plans, mapping(scaled, k), executing(k)) for k in (2.0, 3.0))
    assert one is other and plans.made == 1
    nodes = chain(mapping(scaled, 7.0), executing(5.0))[2:]
    assert [value.data for value in one.values(nodes).values] == [np.float64(7).tobytes(), np.float32(5).tobytes()]
    assert pickle.loads(pickle.dumps(one)) == one


def test_another_shape_is_another_plan():
    plans = PlanCache()
    known = plan_of(plans, mapping(scaled, 2.0))
    for other in (plan_of(plans, mapping(scaled, 2)), plan_of(plans, mapping(doubled)),
                  plan_of(plans, mapping(scaled, 2.0), contents=numbers(6)),
                  plan_of(plans, mapping(scaled, 2.0), home=WorkerAddress("/run", "there")),
                  plan_of(plans, mapping(scaled, 2.0), shared_limit=48 << 10)):
        assert other is not known
    assert plans.made == 6
    assert plan_of(plans, mapping(scaled, 4.0)) is known


def test_numbers_that_shape_a_kernel_make_a_plan_each():
    def windowed(x, n):
        values = np.zeros(n)
        for i in range(n):
            values[i] = x * i
        return values

    plans = PlanCache()
    two, three = (plan_of(plans, mapping(windowed, n)) for n in (2, 3))
    assert two is not three
    assert two.results[0].signatures[0].fields[0].shape == (5, 2)
    assert [plan_of(plans, mapping(windowed, n)) for n in (2, 3, 2)] == [two, three, two]
    assert plans.made == 2
    for n in range(4, 40):
        plan_of(plans, mapping(windowed, n))
    assert sum(len(alike) for alike, _ in plans._plans._held.values()) <= 8


def test_plans_are_bounded():
    plans = PlanCache()
    for count in range(1, 300):
        plan_of(plans, plan.ToHost(), contents=numbers(count))
    assert len(plans._plans) == len(plans._shapes) == 256
