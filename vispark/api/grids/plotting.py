"""Pictures and animations of a grid by matplotlib, of so many cells that few bytes come to the driver."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from pyspark import RDD

from gpu_worker.protocol.errors import PlanError
from gpu_worker.protocol.extras import install
from vispark.api.grids import gather as gathering
from vispark.data.grid.selection import CellSelection
from vispark.data.grid.spec import GridSpec

try:
    from matplotlib import pyplot
    from matplotlib.animation import FuncAnimation
except ImportError:
    plt: Any = None
else:
    plt = pyplot

#: The most cells along each axis of a picture, of a frame, and of a line.
_PICTURE, _FRAME, _LINE = 1000, 300, 10_000
#: The most bytes of cells, of all fields, that a picture brings to the driver.
MOST_BYTES = 8_000_000


def plot(blocks: RDD[Any], cells: Any, field: str | None, axes: Any, options: dict[str, Any]) -> Any:
    """See :meth:`vispark.Grid.plot`."""
    picture = _Shown(blocks, cells, field, "Grid.plot", _PICTURE)
    axes = plt.subplots()[1] if axes is None else axes
    picture.draw(axes, picture.values(blocks), options)
    return axes


def animate(blocks: RDD[Any], advance: Callable[[Any], RDD[Any]], frames: int, cells: Any, field: str | None,
            axes: Any, interval: float, options: dict[str, Any]) -> Any:
    """See :meth:`vispark.Grid.animate`."""
    if not isinstance(frames, int) or frames < 1:
        raise PlanError(f"frames={frames!r}; an animation has a whole number of frames, 1 or more")
    picture = _Shown(blocks, cells, field, "Grid.animate", _FRAME)
    axes = plt.subplots()[1] if axes is None else axes
    first = picture.values(blocks)
    artist = picture.draw(axes, first, options)

    def states() -> Generator[np.ndarray, None, None]:
        # Called anew each time that the animation is shown or saved.
        yield first
        now = blocks
        for _ in itertools.repeat(None, frames - 1):
            now = advance(now)
            yield picture.values(now)

    def draw(values: np.ndarray) -> list[Any]:
        artist.set_ydata(values) if values.ndim == 1 else artist.set_data(values)
        return [artist]

    return FuncAnimation(axes.figure, draw, frames=states, init_func=lambda: [artist], interval=interval,
                         save_count=frames, repeat=False, cache_frame_data=False)


class _Shown:
    """The cells of a grid that are drawn: a part of what was asked for, by steps, along one or two axes.

    Parameters
    ----------
    blocks : RDD
        All blocks of the grid.
    cells : index
        What of the grid is asked for.
    field : str or None
        One of several fields.
    what : str
        Who asks, for errors.
    most : int
        The most cells along each of two axes.
    """

    def __init__(self, blocks: RDD[Any], cells: Any, field: str | None, what: str, most: int):
        if plt is None:
            raise PlanError(f"{what} needs matplotlib: {install('plot')}")
        description, example = gathering.described(blocks)
        self._field = _field(example, field, what)
        self._asked = CellSelection.of(cells, description.shape)
        self._along = [axis for axis in range(len(description.shape)) if axis not in self._asked.dropped]
        _check(self._asked, self._along, description, example if self._field is None else example[self._field], what)
        fields = example.values() if isinstance(example, dict) else [example]
        count = MOST_BYTES // sum(each.dtype.itemsize for each in fields)
        most_cells = min(_LINE, count) if len(self._along) == 1 else min(most, math.isqrt(count))
        self._steps = tuple(step * -(-extent // most_cells) if axis in self._along else step for axis, (step, extent)
                            in enumerate(zip(self._asked.steps, self._asked.shape, strict=True)))
        self._index = tuple(start if axis in self._asked.dropped else slice(start, stop, step)
                            for axis, (start, stop, step) in enumerate(zip(self._asked.starts, self._asked.stops,
                                                                           self._steps, strict=True)))

    def values(self, blocks: RDD[Any]) -> np.ndarray:
        """Return the cells that are drawn."""
        cells = gathering.gather(blocks, self._index)
        return np.asarray(cells if self._field is None else cells[self._field])

    def draw(self, axes: Any, values: np.ndarray, options: dict[str, Any]) -> Any:
        """Draw the cells, by their numbers in the grid, and return what draws them."""
        where = [range(self._asked.starts[axis], self._asked.stops[axis], self._steps[axis]) for axis in self._along]
        names = [f"axis {axis}" for axis in self._along]
        if len(self._along) == 1:
            axes.set(xlabel=names[0], ylabel=self._field or "")
            return axes.plot(where[0], values, **options)[0]
        rows, columns = [(each.start - each.step / 2, each.start + (len(each) - 0.5) * each.step) for each in where]
        axes.set(xlabel=names[1], ylabel=names[0])
        return axes.imshow(values, **{"origin": "lower", "extent": (*columns, *rows)} | options)


def _field(example: Any, field: str | None, what: str) -> str | None:
    """Return the field that is drawn; None where the cells have no names."""
    if not isinstance(example, dict):
        if field is not None:
            raise PlanError(f"{what}: field={field!r}, and the grid's cells have no fields")
        return None
    if field is None and len(example) == 1:
        only: str = next(iter(example))
        return only
    if field not in example:
        raise PlanError(f"{what}: field={field!r}; the grid's fields are {', '.join(example)}, and one is drawn")
    return field


def _check(selection: CellSelection, along: list[int], description: GridSpec, example: np.ndarray, what: str) -> None:
    if len(along) not in (1, 2):
        shape = tuple(selection.shape[axis] for axis in along)
        raise PlanError(f"{what} draws a line or a picture, and cells= leaves {shape} of {description.shape} cells; "
                        f"np.s_[{', '.join(['0'] * max(len(along) - 2, 0) + [':'] * 2)}] leaves two axes")
    if not all(selection.shape):
        raise PlanError(f"{what}: cells= leaves no cell of {description.shape}")
    if example.dtype.kind == "c":
        raise PlanError(f"{what} draws real numbers, and the cells are {example.dtype}: map np.real, np.imag or abs "
                        "over the blocks first")
