"""The benchmarks' samples, documents and tables, without Spark."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import benchmarks
from benchmarks import (
    flow,
    flow_peers,
    generated,
    generated_rows,
    heat,
    kernel_launches,
    machine,
    measure,
    overlap,
    packing,
    plots,
    programs,
    public_programs,
    random_kills,
    text,
    transport,
    whole,
)
from benchmarks.bare import BareCopy, BareLoop
from benchmarks.halos import HaloStrips, heated
from benchmarks.measure import Case, Series, in_rounds, interleave
from benchmarks.points import FEATURES, KERNELS, Fused, Points, gradient
from benchmarks.regression import FLOOR
from benchmarks.results import Group, comparison, document, duration, read, table
from gpu_worker.device import open_devices
from gpu_worker.device.base import Device, Source
from gpu_worker.device.cuda.nvrtc import compile_cubin
from vispark.data.records.text.reader import Reader
from vispark.data.records.text.splits import TextSplit
from vispark.translate import ElementField, specialise_stencil, trace

pytestmark = pytest.mark.slow


#: Imports the modules that it is given, and asks each program among them, which starts nothing, for its help.
_HELP = """
import importlib, sys
from click.testing import CliRunner
for name in sys.argv[1:]:
    said = CliRunner().invoke(importlib.import_module(name).main, ["--help"])
    assert said.exit_code == 0 and said.output.startswith("Usage: "), (name, said.output, said.exception)
"""


def test_programs_say_what_they_take():
    programs = [f"benchmarks.{path.stem}" for path in sorted(Path(benchmarks.__path__[0]).glob("*.py"))
                if '__name__ == "__main__"' in path.read_text() and not path.stem.endswith(("__", "_rank"))]
    ended = subprocess.run([sys.executable, "-c", _HELP, *programs], capture_output=True, text=True)
    assert ended.returncode == 0 and len(programs) > 20, ended.stderr


@pytest.fixture
def host() -> Device:
    device, = open_devices("host")
    yield device
    device.close()


def test_cases_are_measured_in_turn():
    order = []
    cases = [Case(name, lambda name=name: order.append(name), repeat=False) for name in "ab"]
    series = interleave(cases, 3, warm_up=1)
    assert order == list("ab" * 4)
    assert [(each.name, len(each.samples), each.repeats) for each in series] == [("a", 3, 1), ("b", 3, 1)]


def test_what_was_measured_is_there_after_each_round_and_none_begins_when_time_is_over():
    rounds = in_rounds([Case("one", lambda: None, repeat=False)], 3, warm_up=0)
    assert [len(series.samples) for series, in rounds] == [1, 2, 3]
    late = in_rounds([Case("one", lambda: None, repeat=False)], 3, seconds=0)
    assert [len(series.samples) for series, in late] == [1]


def test_records_of_all_forms_are_unpickled_and_packed():
    group = packing.run(1 << 14, 1, lambda name: None)
    assert len(group.series) == 16 and all(series.nbytes for series in group.series)


def test_quick_cases_are_repeated_until_they_fill_a_sample():
    runs = []
    quick, = interleave([Case("quick", lambda: runs.append(None))], 1)
    assert quick.repeats > 1000
    assert len(runs) == 2 + quick.repeats
    assert quick.samples[0] < 1e-4


def test_a_case_may_time_itself():
    series, = interleave([Case("own clock", lambda: 0.5, times_itself=True)], 3)
    assert series.samples == (0.5, 0.5, 0.5)


def test_figures_of_a_series():
    series = Series("s", (5.0, 1.0, 2.0, 4.0, 3.0), nbytes=6)
    assert (series.median, series.least, series.spread, series.rate) == (3, 1, 2, 2)
    assert series.quantile(0.9) == pytest.approx(4.6)


def test_ratios_are_of_times_or_of_times_a_byte():
    way = Series("way", (4.0,), nbytes=16, against=("floor", "job"))
    group = Group("g", {}, [Series("floor", (1.0,), nbytes=8), way, Series("job", (16.0,), against=("absent",))])
    assert [(series.name, name, value) for series, name, value in group.ratios()] == [
        ("way", "floor", 2), ("way", "job", 0.25)]


def _group() -> Group:
    series = interleave([Case("floor", lambda: None, 8), Case("way", lambda: sum(range(100)), 8, ("floor",))], 5)
    return Group("tiny", {"rows": 3}, series, {"way": {"relative_error": 0.0}}, {"other": "no room"}, tail=True)


def test_a_document_is_read_back_as_it_was_written(tmp_path):
    path, groups = tmp_path / "found.json", [_group(), Group("empty", {})]
    path.write_text(json.dumps(document(groups, machine=machine.description(), **machine.commit())))
    contents, again = read(path)
    assert again == groups
    assert contents["machine"]["cores"] == machine.cores()


def test_a_document_with_other_figures_than_its_samples_is_refused(tmp_path):
    path, contents = tmp_path / "found.json", document([_group()])
    contents["benchmarks"][0]["series"][0]["median"] *= 2
    path.write_text(json.dumps(contents))
    with pytest.raises(ValueError, match=r"figures of tiny"):
        read(path)
    path.write_text(json.dumps(contents | {"schema": 0}))
    with pytest.raises(ValueError, match="schema 0"):
        read(path)


def test_the_table_shows_every_case():
    console = Console(width=200, file=io.StringIO())
    console.print(table([_group()], "here"))
    text = console.file.getvalue()
    assert all(words in text for words in ("tiny", "floor", "way", " × floor", "not run", "no room", "GB/s"))


def test_ratios_of_two_runs_stand_side_by_side():
    def run(seconds: float) -> list[Group]:
        return [Group("g", {}, [Series("floor", (1.0,)), Series("way", (seconds,), against=("floor",))])]

    console = Console(width=200, file=io.StringIO())
    console.print(comparison([*run(4.0), Group("gone", {})], [*run(5.0), Group("new", {})], "two"))
    assert [" ".join(line.split()) for line in console.file.getvalue().splitlines() if "way" in line] == [
        "│ g │ way │ floor │ 4 │ 5 │ 1.25 │"]


@pytest.mark.parametrize(("seconds", "text"), [(1e-9, "1 ns"), (0.0123, "12.3 ms"), (60, "60 s")])
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("rows", "partitions"), [(1000, 3), (129, 2), (5, 1)])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", ["cuda", "host"])
def test_the_fused_kernel_gives_the_gradient(host, rows, partitions, together, kind):
    points, w = Points(rows, partitions), np.linspace(-1, 1, FEATURES)
    exact = sum(gradient(points.block(index), w) for index in range(partitions))
    loop = BareLoop(host, points, Fused.on(kind, 1), together=together)
    computed = loop.gradient(w.astype(np.float32))
    np.testing.assert_allclose(computed, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    np.testing.assert_array_equal(loop.gradient(w.astype(np.float32)), computed)
    loop.close()
    assert host.memory().used == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["gradient_partials", "sum_partials"])
def test_the_kernels_compile_for_gpus(name, arch):
    source = Source(KERNELS.read_text(), KERNELS.name, Fused.on("cuda", 132).options)
    assert compile_cubin(source, name, arch).code.startswith(b"\x7fELF")


@pytest.mark.parametrize(("source", "name"), [
    (heat.KERNELS, "plain"), (heat.KERNELS, "marching"), (flow.KERNELS, "sweep")])
def test_the_solvers_kernels_compile_for_gpus(source, name):
    options = "-DNZ=4", "-DNY=8", "-DNX=16"
    assert compile_cubin(Source(source.read_text(), source.name, options), name, "sm_90").code.startswith(b"\x7fELF")


@pytest.mark.parametrize("name", ["best", "softmax", "length", "by_key", "differing"])
def test_the_kernels_of_a_row_a_thread_compile_for_gpus(name):
    source = Source(kernel_launches.KERNELS.read_text(), kernel_launches.KERNELS.name, ("-DCOLUMNS=64",))
    assert compile_cubin(source, name, "sm_90").code.startswith(b"\x7fELF")


def test_stencils_alone_are_numpys_and_a_cell_that_differs_is_found(host):
    shape = 9, 40, 150
    stencils = next(generated.of_stencils(host, shape, 1, lambda name: None))
    assert [each["off"] for each in stencils.checks.values()] == [0, 0]
    with kernel_launches.GridPatch(host, shape, ((1, 1),) * 3) as patch:
        one, other = patch.noisy("ab").values()
        assert patch.differing(one, one) == 0
        assert patch.differing(one, other) > 0.99 * patch.size
    assert host.memory().used == 0
    generated.check([stencils])
    with pytest.raises(AssertionError, match=r"stencil: way: .*7"):
        generated.check([stencils, Group("stencil", {}, checks={"way": {"off": 7, "allowed": 0}})])


def test_folds_by_key_alone_are_numpys(host):
    group, = generated_rows.of_keys(host, 1_100_000, 1, lambda name: None)
    assert group.checks[generated_rows.MADE]["off"] <= 1e-9
    assert host.memory().used == 0


def test_all_kernels_alone_are_launched_on_a_device_that_does_nothing(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE_SECONDS", 0.0)
    device, = open_devices("null")
    groups = [*generated.of_steps(device, (9, 40, 150), 1, lambda name: None),
              *generated_rows.of_rows(device, 5000, 1, lambda name: None)]
    launched = [name for name, *_ in device.calls].count("launch")
    # Three steps before, two kernels in each group, and each of them twice to be warm and once for its sample.
    assert launched == 3 + 2 * 3 * len(groups)
    assert all(check == {"recorded": True} for group in groups for check in group.checks.values())
    assert device.memory().used == 0


def test_what_loads_is_held_against_the_slower_of_its_copies():
    copies, alone = transport.COPIES.format(8), transport.ONE_COPY
    series = [Series(alone, (1.0,), nbytes=10), Series(copies, (1.0,), nbytes=80),
              Series("send and htod, kept, in one process", (1.0,), nbytes=3, against=(alone, transport.PINNED)),
              Series("send and htod, kept, in 8 processes", (1.0,), nbytes=24, against=(copies, transport.PINNED))]
    transport.note_bar(series)
    assert [each.notes.get("of_the_bar") for each in series] == [None, None, pytest.approx(0.5), pytest.approx(0.5)]
    transport.note_bar([*series, Series(transport.PINNED, (1.0,), nbytes=50)])
    assert series[2].notes["of_the_bar"] == pytest.approx(0.5)
    assert series[3].notes["of_the_bar"] == pytest.approx(0.8)


def test_iterations_of_the_flow_are_those_of_float64_cut_or_whole():
    plane = flow.Plane((45, 40), (1, 1), 1)
    y, x = np.ogrid[:45, :40]
    fields = {name: flow_peers.initial(name)(y, x) for name in "uv"}
    sliced = flow_peers.SlicedFlow(np, fields)
    sliced.advance(1)
    np.testing.assert_allclose(sliced.corner((slice(0, 16),) * 2), flow.expected(plane, 1), atol=flow.TOLERANCE)


def _in_blocks(whole: np.ndarray, halos: HaloStrips, step: Callable) -> np.ndarray:
    """Do a step of a field that is cut into blocks along its last axes, each with what the others give it."""
    axes = range(whole.ndim - len(halos.splits), whole.ndim)
    parts = [np.array_split(np.arange(whole.shape[axis]), count)
             for axis, count in zip(axes, halos.splits, strict=True)]
    places = {at: (..., *(slice(parts[axis][n][0], parts[axis][n][-1] + 1) for axis, n in enumerate(at)))
              for at in np.ndindex(*halos.splits)}
    strips: dict = {at: {} for at in places}
    for at, place in places.items():
        for other, (offset, strip) in halos.given(at, whole[place]):
            strips[other][offset] = strip
    result = np.empty_like(whole)
    for at, place in places.items():
        result[place] = step(whole[place], strips[at])
    return result


@pytest.mark.parametrize(("shape", "halos", "step"), [
    ((7, 9, 8), HaloStrips((2, 3, 2), 1, corners=False), partial(heated, k=0.1)),
    ((2, 45, 40), HaloStrips((3, 2), 1, corners=False), partial(flow_peers.swept, weight=0.5)),
    ((3, 90, 60), HaloStrips((3, 2), 24, corners=True), partial(flow_peers.iterated, np, width=24))])
def test_steps_of_blocks_with_what_others_give_are_those_of_the_whole(shape, halos, step):
    whole = np.random.default_rng(0).random(shape, np.float32)
    np.testing.assert_allclose(_in_blocks(whole, halos, step), step(whole, {}), rtol=0, atol=1e-6)


def test_an_iteration_of_the_flow_is_24_maps_that_few_passes_do():
    fields = [ElementField(name, dtype) for name, dtype in flow.FIELDS.items()]
    maps = [specialise_stencil(trace(function, args), fields, args, dims=2) for function, args in flow.PHASES]
    assert len(maps) == 24 and sum(len(each.fields) + len(each.outputs) for each in maps) == flow.STEP_FIELDS
    lowering = overlap.lowered(flow.solver(flow.Plane((64, 64), (2, 2), 1)))
    passes = [lowering.kernels[phase.launch].launch for phase in lowering.step.phases]
    assert all(phase.halos for phase in lowering.step.phases)
    assert 2 * sum(len(each.inputs) + len(each.outputs) for each in passes) < flow.STEP_FIELDS


def test_what_is_not_hidden_of_exchanges_is_said_for_several_devices():
    group = overlap.run(heat.solver(heat.Cube((12, 8, 8), (2, 2, 2), 2)), "host", 1, lambda name: None)
    names = [f"{name}, {count}" for count in ("1 device", "2 devices")
             for name in (overlap.LOOP, overlap.BARE, overlap.WITHOUT, overlap.ALONE)]
    assert [series.name for series in group.series] == names
    shown = io.StringIO()
    Console(file=shown, width=200).print(table([group], "t"))
    assert "share of exchange not hidden: " in shown.getvalue() and "speedup: " in shown.getvalue()


def test_points_are_the_same_each_time_and_their_labels_are_signs():
    points = Points(10, 4)
    assert [points.rows_of(index) for index in range(4)] == [3, 3, 2, 2]
    np.testing.assert_array_equal(points.block(1), points.block(1))
    assert set(np.unique(points.block(0)[:, 0])) <= {-1, 1}


def test_copies_move_what_they_say(host):
    copy = BareCopy(host, 1 << 20, 2)
    assert copy.moved == 2 << 20
    copy.run()
    copy.close()
    assert host.memory().used == 0


def test_figures_are_drawn_of_what_there_is(tmp_path):
    def program(iterations: int) -> Group:
        parts = {"parse": [1.0, 3.0], "kernel": [0.5, 0.5]}
        return Group(f"p, {iterations}", {"program": "p", "iterations": iterations, "whole": 2}, [
                     Series("vispark", (1.0, 2.0)), Series("Spark-C", (2.0, 4.0), notes={"parts": parts})])

    def sized(nbytes: int) -> Group:
        return Group(f"regression, {nbytes} rows", {"bytes": nbytes}, [
            Series("vispark: vmap", (1.0, 2.0, 3.0)), Series("CuPy", (2.0, 3.0, 4.0)), Series(FLOOR, (1.0,), nbytes=9)])

    paths = [tmp_path / name for name in ("one.json", "two.json")]
    for gpus, path in enumerate(paths, 1):
        contents = document([program(1), program(10), sized(100), sized(1000)], machine={"gpus": []}, gpus_used=gpus)
        path.write_text(json.dumps(contents))
    drawn = plots.draw(paths, tmp_path / "figures", "svg")
    assert [path.stem for path in drawn] == ["ways", "breakdown", "iterations", "sizes", "gpus"]
    assert ">CuPy<" in drawn[0].read_text() and ">kernel<" in drawn[1].read_text()
    shown = io.StringIO()
    Console(file=shown, width=200).print(plots.scaling_table([plots.results(path) for path in paths]))
    assert "regression, 100 rows: vispark: vmap" in shown.getvalue() and "2 s, 1.00 times" in shown.getvalue()
    (third := tmp_path / "three.json").write_bytes(paths[1].read_bytes())
    with pytest.raises(ValueError, match=r"is in two\.json and in three\.json with the same number of GPUs"):
        plots.scaling([plots.results(path) for path in (*paths, third)])
    again = [path.read_bytes() for path in plots.draw(paths, tmp_path / "again", "svg")]
    assert again == [path.read_bytes() for path in drawn]


def test_whole_programs_take_turns_and_long_ones_are_left_out():
    def way(seconds: float, off: float = 0.0) -> Callable[[int], programs.ProgramRun]:
        return lambda count: programs.ProgramRun(seconds * count, np.array([1.0, count + off]), {"kernel": seconds})

    ways = {programs.OURS: way(0.06), "slow": way(0.5), "wrong": way(0.02, off=1.0)}
    program = programs.Program("p", {"size": 3}, ways, 1e-3, {"absent": "no GPU"})
    met: list[str] = []
    few, more, many = whole.measured(program, (1, 4, 100), 3, met.append)
    assert met[:6] == [f"{name}{what}" for name in ways for what in (", to be warm", "")]
    assert [series.samples for series in few.series] == [(0.06,) * 3, (0.5,) * 3, (0.02,) * 3]
    assert [len(series.samples) for series in more.series] == [3, 1, 3] and "fewer_samples" in more.series[1].notes
    assert [series.name for series in many.series] == ["vispark", "wrong"]
    assert many.skipped == {"absent": "no GPU", "slow": "it would take about 50 s"}
    assert few.series[0].notes["parts"] == {"kernel": [0.06] * 3} and few.series[0].against == ("slow", "wrong")
    assert few.parameters["program"] == "p" and few.parameters["iterations"] == 1
    with pytest.raises(AssertionError, match=r"^whole program: p, iterations: 4: wrong is off by 0\.25$"):
        whole.check([more])


def test_what_tasks_say_of_their_time_is_kept_by_kind():
    times = programs.by_kind([{"parse": 1.0}, {"parse": 2.0, "kernel": 3.0}])
    assert times == {"parse": [1.0, 2.0], "kernel": [0.0, 3.0]}


def test_the_text_that_is_measured_is_what_the_reader_reads(tmp_path):
    nbytes = text.write(tmp_path / "points.txt", 1)
    split = TextSplit(str(tmp_path / "points.txt"), 0, nbytes)
    points, = Reader(text.POINTS, 0, True)([split])
    np.testing.assert_allclose(points, Points(4000, 1).block(0), rtol=1e-6)
    assert list(text._read([split])) == [nbytes]
    cut = [TextSplit(split.path, start, min(start + 50_000, nbytes)) for start in range(0, nbytes, 50_000)]
    np.testing.assert_array_equal(np.concatenate([text.numbers(each) for each in cut]), text.numbers(split))
    np.testing.assert_allclose(text.numbers(split), points, rtol=1e-6)


def test_the_table_of_public_programs_is_of_clones_and_names_those_that_are_missing(tmp_path: Path):
    one, two = (public_programs.PublicProgram("owner/name", f"src/{name}.py") for name in "ab")
    path = one.path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("data = sc.textFile(p).map(float).cache()\nfor _ in x:\n    w = data.map(lambda x: x * 2).sum()\n")
    head, _, *lines = public_programs.table([one, two], tmp_path)
    assert lines[:2] == [
        "| *`owner/name`: `a.py`* | vmap, fold | | | | | |",
        f"| `owner/name`: `b.py` | not there: a clone of owner/name belongs into {tmp_path}/owner+name | | | | | |"]
    assert {each.count("|") for each in (head, *lines[:2])} == {8} and lines[-1].startswith("0 of 0 passes")
    one.data(tmp_path / "data.txt")
    assert np.loadtxt(tmp_path / "data.txt").shape == (2000, 4)
    assert len(public_programs.programs()) > 9


def test_a_run_whose_time_was_over_before_a_kill_has_a_table():
    assert random_kills.summary([], 0).startswith("0 kills and stops\nkind ")
