"""Exchanges among workers whose ranks are one real MPI world: fields tell each cell by its coordinates, and every cell
sees its neighbours' and those that the boundary gives, whatever the ghost cells held before.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from gpu_worker.client.connection import Client
from gpu_worker.protocol import exchange_kinds
from gpu_worker.protocol.errors import WorkerError
from gpu_worker.protocol.grids import ExchangeStep, StencilStep, World
from gpu_worker.protocol.messages import (
    ArrayArgument,
    FetchStep,
    Field,
    Input,
    KeepStep,
    LoadStep,
    Module,
    Plan,
    PutStep,
    Release,
    Report,
    Run,
    Signature,
    StencilLaunch,
    ToDeviceStep,
    Variant,
)
from gpu_worker.protocol.payload import Payload, aligned, results
from gpu_worker.protocol.plans import sealed
from tests.grid_reference import numbered, padded
from tests.mpi.nodes import NodesApp, NodeWorker, nodes, opened
from tests.mpi.test_world import case_of
from tests.unit.test_patches_steps import REGION, stepped
from vispark import Grid
from vispark.plan.cuda_source import ArrayValue
from vispark.plan.lower.grid_stencils import Ghosts
from vispark.plan.slots import BoundArguments, SlotTable

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

C_TYPES = {"f4": "float", "f8": "double", "i8": "long long", "i1": "signed char"}
#: What grids have for fields, in turn.
FIELDS = (("f8",), ("f4", "i8"), ("i1", "f8", "f4"))
PRIME = 1099511628211


def position(*at):
    return sum((each + 5) * 100**axis for axis, each in enumerate(at)) % 101


BOUNDARIES = (("periodic", "periodic"), ("mirrored", 7), (position, "mirrored"), (9, position))


@dataclass(frozen=True)
class ExchangeCase:
    """A case: how an axis is cut and continued, of each; the fields' dtypes; whether neighbours share a node."""

    splits: tuple[int, ...]
    halo: tuple[int, ...]
    rules: tuple[tuple, ...]
    dtypes: tuple[str, ...]
    beside: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The smallest whose blocks are as wide as the halo, and not all of one size."""
        return tuple(parts * width + max(1, parts - 1) for parts, width in zip(self.splits, self.halo, strict=True))


#: In 1 to 3 dimensions, each width and each boundary on every axis.
CASES = [ExchangeCase(((5,), (3, 2), (2, 3, 2))[dimensions - 1],
                      tuple(1 + (width + axis) % 3 for axis in range(dimensions)),
                      tuple(BOUNDARIES[(boundary + axis) % 4] for axis in range(dimensions)),
                      FIELDS[(width + boundary) % 3], (width + boundary + dimensions) % 2 == 0)
         for dimensions, width, boundary in itertools.product((1, 2, 3), range(3), range(4))]

#: A cell's number is made of all cells that the halo lets it see, in a fixed order.
SEEN = """
extern "C" __global__ void NAME(POINTERS, unsigned long long* seen, const vp_region r, const int* widths)
{
    const int x = r.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    const int y = r.low[1] + blockIdx.y, z = r.low[0] + blockIdx.z;
    if (x >= r.high[2]) return;
    unsigned long long number = 0;
    for (int dz = -widths[0]; dz <= widths[0]; dz++)
        for (int dy = -widths[1]; dy <= widths[1]; dy++)
            for (int dx = -widths[2]; dx <= widths[2]; dx++) {
                const long long at = (z + dz) * r.plane + (y + dy) * r.pitch + x + dx;
                NUMBERS
            }
    seen[z * r.plane + y * r.pitch + x] = number;
}
"""


def source() -> str:
    text = REGION
    for number, dtypes in enumerate(FIELDS):
        pointers = ", ".join(f"const {C_TYPES[dtype]}* u{at}" for at, dtype in enumerate(dtypes))
        numbers = " ".join(f"number = number * {PRIME}ull + (unsigned long long)(long long)u{at}[at];"
                           for at in range(len(dtypes)))
        text += SEEN.replace("NAME", f"seen{number}").replace("POINTERS", pointers).replace("NUMBERS", numbers)
    return text


SOURCE = Module(source(), "seen.cu", (), (), ())


def expected(case: ExchangeCase, fields: dict[str, np.ndarray]) -> np.ndarray:
    """Return the numbers that the cells see, by NumPy."""
    whole = [padded(cells, case.halo, case.rules) for cells in fields.values()]
    numbers = np.zeros(case.shape, "u8")
    for start in itertools.product(*(range(2 * width + 1) for width in case.halo)):
        cells = tuple(slice(at, at + extent) for at, extent in zip(start, case.shape, strict=True))
        for field in whole:
            numbers = numbers * np.uint64(PRIME) + field[cells].astype("i8").astype("u8")
    return numbers


class Exchanges:
    """Cases on some nodes, all in one world of theirs."""

    def __init__(self, members: list[NodeWorker], exchange: str = "mpi"):
        self.clients = [node.connect(f"exchanges-{len(members)}") for node in members]
        self._key, self._vrdd = secrets.token_bytes(16), 0
        self._addresses = tuple(opened(client, self._key, exchange) for client in self.clients) \
            if exchange_kinds.kind_of(exchange).needs_addresses else ()
        self._pool = ThreadPoolExecutor(len(members))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._pool.shutdown()

    def seen(self, case: ExchangeCase) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers that the cells see, and those that they should."""
        names = [f"f{at}" for at in range(len(case.dtypes))]
        grid = Grid(case.shape, case.splits, case.halo, case.rules, dict(zip(names, case.dtypes, strict=True)))
        fields = {name: numbered(case.shape, dtype, 1 + 100 * at)
                  for at, (name, dtype) in enumerate(zip(names, case.dtypes, strict=True))}
        keys = [grid.block(*at) for at in np.ndindex(*case.splits)]
        count = len(self.clients)
        owners = [number * count // len(keys) if case.beside else number % count for number in range(len(keys))]
        work = [[key for key, owner in zip(keys, owners, strict=True) if owner == rank] for rank in range(count)]
        full = np.zeros(case.shape, "u8")
        self._vrdd += 1
        for parts in self._pool.map(lambda rank: self._on_node(rank, case, grid, work[rank], fields), range(count)):
            for key, cells in parts:
                full[key.slices] = cells
        return full, expected(case, fields)

    def _on_node(self, rank: int, case: ExchangeCase, grid: Grid, keys: list, fields: dict[str, np.ndarray]) -> list:
        """Return the numbers that the cells of a node's blocks see."""
        client = self.clients[rank]
        signatures = [Signature(tuple(Field(name, cells.dtype.str, key.shape) for name, cells in fields.items()))
                      for key in keys]
        slots = SlotTable()
        widths = slots.slot(ArrayValue.of(np.array((0,) * (3 - len(case.halo)) + case.halo, "i4"), "widths"))
        halos = Ghosts(grid.description, slots).all_fields(signatures[0])
        launch = StencilLaunch(0, f"seen{FIELDS.index(case.dtypes)}", tuple(fields), (Field("seen", "<u8", ()),),
                               (ArrayArgument(widths),), case.halo, case.halo, (32, 1, 1), (32, 1, 1), 0, False)
        constants, _ = BoundArguments(slots.origins()).constants(0)
        numbers = tuple(key.number for key in keys)

        def ask(steps: tuple, vrdds: tuple[int, ...], world: World | None = None, descriptors=()):
            keeps = sum(isinstance(step, KeepStep) for step in steps)
            variants = tuple(Variant(each, (), (b"",) * keeps, (-1,) * keeps) for each in signatures)
            part = Input(rank, len(keys), 0, 0, b"", tuple(range(len(keys))), numbers)
            plan = Plan(steps, (SOURCE,), variants, (part,), (), grid.description.grid_shape, (launch,))
            digest, encoded = sealed(plan)
            reply, sent = client.request(Run(client.next_number(), client.epoch, 60.0, digest, encoded, vrdds,
                                             constants, world), list(descriptors))
            return reply, results(reply.data, sent)

        blocks = [np.ascontiguousarray(cells[key.slices]) for key in keys for cells in fields.values()]
        with Payload.create(sum(aligned(block.nbytes) for block in blocks)) as payload:
            for start, block in zip(itertools.accumulate((aligned(block.nbytes) for block in blocks), initial=0),
                                    blocks, strict=False):
                payload.put(start, block)
            descriptor = payload.release()
            ask((PutStep(), ToDeviceStep(), KeepStep(0, "u", "device")), (self._vrdd,), None, [descriptor])
            os.close(descriptor)
        world = World(self._key, rank, tuple(each.worker for each in self.clients), addresses=self._addresses)
        steps = LoadStep(0), ExchangeStep("exchange", halos), StencilStep("seen", 0), FetchStep(-1, "blocks")
        reply, data = ask(steps, (self._vrdd,), world)
        client.request(Release(client.next_number(), (self._vrdd,)))
        starts = itertools.accumulate((aligned(8 * int(np.prod(key.shape))) for key in keys),
                                      initial=reply.outputs[0].offset)
        return [(key, data.field(Field("seen", "<u8", key.shape), start).copy())
                for key, start in zip(keys, starts, strict=False)]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeWorker]]:
    with nodes(tmp_path_factory.mktemp("n"), 4) as members:
        yield members


def sent_by(client: Client) -> int:
    return client.request(Report(client.next_number()))[0].sent


@pytest.mark.parametrize("count", [2, 4])
def test_an_exchange_restores_the_coordinates(four: list[NodeWorker], count: int):
    check_cases(four[:count], "mpi", CASES)


def check_cases(members: list[NodeWorker], exchange: str, cases: list[ExchangeCase]) -> None:
    """Check that every cell of some cases sees what it should, and that the cells went from node to node."""
    exchanges, wrong = Exchanges(members, exchange), {}
    for case in cases:
        try:
            seen, right = exchanges.seen(case)
        except WorkerError as error:
            error.add_note(f"in {case}")
            raise
        if not np.array_equal(seen, right):
            wrong[case] = np.argwhere(seen != right)[:3].tolist()
    sent = [sent_by(client) for client in exchanges.clients]
    exchanges.close()
    assert not wrong, f"{len(wrong)} of {len(CASES)} cases, and cells that see something wrong: {wrong}"
    assert all(sent)


def test_a_loop_over_64_blocks_on_four_nodes_has_the_bits_of_one_block(four: list[NodeWorker]):
    fields = []
    for count, splits in ((1, (1, 1, 1)), (4, (4, 4, 4))):
        case = case_of(count, (12, 9, 14), splits)
        full = np.random.default_rng(0).random(case.lattice.shape)
        with NodesApp(f"bits-{count}", four[:count], case) as app:
            app.put(1, full)
            app.run((1, 2), app.loop(12), KeepStep(1, "u", "device"))
            fields.append(app.fetch(2))
            assert all(app.sent()) == (count > 1)
    np.testing.assert_array_equal(*fields)
    np.testing.assert_allclose(fields[0], stepped(full, case, 12), rtol=1e-10)
