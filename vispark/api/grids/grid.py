"""A grid of cells cut into blocks, and the keys of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import RDD, SparkContext

from gpu_worker.protocol.errors import PlanError
from vispark._utils import displays
from vispark._utils.boundary import brief, brief_errors
from vispark._utils.lazy import LazyModule
from vispark.api.grids import gather as gathering
from vispark.api.grids import grid_files
from vispark.api.grids import scatter as scattering
from vispark.api.rdds.derived_rdd import adopted
from vispark.data.grid.boundary import boundary_words, check_boundary, functions_of, learn, read_boundary
from vispark.data.grid.key import BlockKey
from vispark.data.grid.spec import GridSpec

if TYPE_CHECKING:
    from vispark.api.grids import grid_totals as totals
    from vispark.api.grids import plotting
else:
    totals = LazyModule("vispark.api.grids.grid_totals")
    plotting = LazyModule("vispark.api.grids.plotting")

#: The most cells along an axis: kernels number them in 32 bits, and go a little beyond the last.
MOST_CELLS = 2**31 - 2**16
#: The widest halo: rows of cells in a device's memory have so much room before them.
MOST_HALO = 32

_NUMERIC = frozenset("?bhilqBHILQfdFD")


@brief_errors
@dataclass(frozen=True, init=False)
class Grid:
    """Cells in 1 to 3 dimensions, cut into blocks that devices hold with a halo of their neighbours' cells.

    Parameters
    ----------
    shape : int or tuple of int
        Cells along each axis; the last one is contiguous in memory.
    splits : int or tuple of int, optional
        Blocks along each axis, for all or for each, which need not divide it: as :func:`numpy.array_split`, the first
        ones are longer. One block, if left out.
    halo : int or tuple of int
        How many of the neighbours' cells each block has around it: for all axes, or for each.
    boundary : "periodic", "mirrored", number, function, or a tuple or dict of them
        What lies outside of the grid: its other end; the cells before the side once more, in reverse; a fixed value;
        or what a function gives for the position, one integer array for each axis. One for all, or a tuple with one
        for each axis, where a pair stands for its sides below and above; or a dict of these by field, where fields
        that are not named have 0.
    fields : dict of str to dtype, optional
        The names and dtypes of the fields. Numbers, functions' results and files are converted to these dtypes as they
        are scattered; arrays have to have them.
    nan_outside : bool
        Whether the boundary may be NaN, as where a stencil tells by it what lies outside. Infinities always may.

    Raises
    ------
    PlanError
        If the splits are more than the cells, the halo is wider than a block or than 32 cells, an axis has 2**31 cells
        or about as many, something is not of its kind, or a value of the boundary is NaN or, of a field of ``fields``,
        one that its dtype cannot hold. Functions are called for all cells outside.

    Examples
    --------
    >>> grid = Grid((100, 60), splits=(4, 2), halo=1, boundary=("periodic", (0.0, "mirrored")))
    >>> grid.block(3, 1)
    BlockKey(3, 1)
    >>> grid.block(3, 1).slices
    (slice(75, 100, None), slice(30, 60, None))
    """

    description: GridSpec
    fields: tuple[tuple[str, str], ...]

    @brief
    def __init__(self, shape: int | tuple[int, ...], splits: int | tuple[int, ...] | None = None,
                 halo: int | tuple[int, ...] = 1, boundary: Any = 0.0,
                 fields: Mapping[str, Any] | None = None, *, nan_outside: bool = False) -> None:
        extents = _extents("shape", shape, 1)
        ndim = len(extents)
        if not 1 <= ndim <= 3:
            raise PlanError(f"shape={shape!r} has {ndim} axes; a grid has 1 to 3")
        parts = _for_axes("splits", 1 if splits is None else splits, 1, ndim)
        widths = _for_axes("halo", halo, 0, ndim)
        for axis in range(ndim):
            _check_axis(axis, extents[axis], parts[axis], widths[axis])
        description = GridSpec(extents, parts, widths, read_boundary(boundary, ndim))
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "fields", _fields(fields))
        unknown = {each.field for each in description.edges} - {name for name, _ in self.fields} - {""}
        if self.fields and unknown:
            raise PlanError(f"boundary= is given for {', '.join(sorted(unknown))}; the grid's fields are "
                            + ", ".join(name for name, _ in self.fields))
        check_boundary(description, self.fields, nan_outside)

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self.description, self.fields, functions_of(self.description))

    def __hash__(self) -> int:
        # Of numbers alone, which hash alike in every process.
        return hash((self.shape, self.splits, self.halo))

    def __repr__(self) -> str:
        (_, shape), *others = self._facts()
        return f"Grid({shape}, " + ", ".join(f"{name}={words}" for name, words in others) + ")"

    def _repr_mimebundle_(self, include: Container[str] | None = None,
                          exclude: Container[str] | None = None) -> dict[str, Any]:
        """Return the repr, and the same as an HTML table, which notebooks show."""
        (_, shape), *others = self._facts()
        return displays.bundle(repr(self), displays.table(f"Grid {shape}", others), include, exclude)

    def _facts(self) -> list[tuple[str, str]]:
        """Return the parameters of the grid with their values, as text."""
        fields = {name: np.dtype(dtype).name for name, dtype in self.fields}
        facts = [("shape", str(self.shape)), ("splits", str(self.splits)), ("halo", str(self.halo)),
                 ("boundary", str(boundary_words(self.description)))]
        return [*facts, ("fields", str(fields))] if fields else facts

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return self.description.shape

    @property
    def splits(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return self.description.splits

    @property
    def halo(self) -> tuple[int, ...]:
        """The halo's width along each axis, on both sides."""
        return self.description.halo

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def block(self, *position: int) -> BlockKey:
        """Return the key of a block, by its place among the blocks along each axis.

        Parameters
        ----------
        *position : int
            One for each axis, from 0 on.

        Returns
        -------
        BlockKey
            Of this grid.

        Raises
        ------
        PlanError
            If there is no such block.

        Examples
        --------
        >>> Grid((4, 6), splits=(2, 2)).block(1, 0).position
        (1, 0)
        """
        inside = len(position) == self.ndim and all(0 <= at < most for at, most in zip(position, self.splits,
                                                                                     strict=True))
        if not inside:
            raise PlanError(f"there is no block {position}; the grid has {self.splits} blocks")
        return BlockKey(self, tuple(map(int, position)))

    def blocks(self) -> Iterator[BlockKey]:
        """Return the keys of all blocks, in C order.

        Returns
        -------
        iterator of BlockKey
            As many as the product of ``splits``.

        Examples
        --------
        >>> [key.position for key in Grid((4, 6), splits=(2, 1)).blocks()]
        [(0, 0), (1, 0)]
        """
        return (BlockKey(self, position) for position in self.description.positions())

    @classmethod
    def open(cls, path: Any, splits: int | tuple[int, ...] | None = None, halo: int | tuple[int, ...] | None = None,
             boundary: Any = None) -> Grid:
        """Return the grid that a file describes.

        Parameters
        ----------
        path : str or path
            A Zarr file that :meth:`save` wrote, which has all that a grid is made of; or a ``.npy`` file, a Zarr group
            or array, an HDF5 or a NetCDF4 file, whose shapes count; or one of its arrays, as ``u.zarr/pressure``. A URL
            too.
        splits, halo, boundary : optional
            As of :class:`Grid`, and instead of those in the file. Left out where a file says nothing: as many blocks
            as its chunks allow, a halo of 1, and 0 outside.

        Returns
        -------
        Grid
            Of the file's shape; with the names and dtypes of its fields, where they have names.

        Raises
        ------
        PlanError
            If the file is not there or not readable, has no arrays of 1 to 3 axes, or was saved with a function as its
            boundary, which has to be given again.

        Examples
        --------
        >>> from tempfile import mkdtemp
        >>> path = f"{mkdtemp()}/u.npy"
        >>> np.save(path, np.zeros((4, 6)))
        >>> Grid.open(path, splits=(2, 2))
        Grid((4, 6), splits=(2, 2), halo=(1, 1), boundary=0.0)
        """
        return cls(**grid_files.arguments(path, {"splits": splits, "halo": halo, "boundary": boundary}))

    def scatter(self, sc: SparkContext, what: Any, partitions: int | None = None, *, check: bool = False) -> RDD[Any]:
        """Make an RDD of the grid's blocks.

        Parameters
        ----------
        sc : SparkContext
            Whose RDD it is.
        what : array, function, number, path, or dict of them by field
            The cells' values: an array of the grid's shape; a function of the coordinates, called for each block with
            one integer array for each axis, which broadcast against each other; a number for all; a ``.npy``, Zarr,
            HDF5 or NetCDF4 file of the grid's shape; or a directory with a ``.npy`` file for each block, as
            :meth:`save` writes them; paths, or URLs such as ``s3://bucket/u.npy``. Files are read by the tasks, each
            block its part, so that every node must see them.
        partitions : int, optional
            Of the RDD, each a box of neighbouring blocks. Left out: as many as Spark runs tasks at once, and no more
            than blocks.
        check : bool
            Whether to look for NaN and infinities.

        Returns
        -------
        RDD of (BlockKey, array or dict of arrays)
            Of each block's cells without halos, in the dtype of the array, the number, what the function gives or the
            file; where ``fields`` says one, in that.

        Raises
        ------
        PlanError
            If an array or a file is not of the grid's shape, an array not of a field's dtype, a number none of that
            dtype, or a file missing, not readable or too short. Files without a URL are looked at here where tasks run
            on this machine alone (a master ``local``). Where a function is at fault, or a file has changed since, at
            the action, of the RDD itself too.
        NotFinite
            If ``check`` finds a cell that is NaN or infinite: at once in an array or a number, and in what functions
            and files give as above. The message names field, cell and block.

        Examples
        --------
        >>> blocks = Grid((4, 6), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x)
        >>> blocks.count()
        4
        >>> dict(blocks.collect())[Grid((4, 6), splits=(2, 2)).block(1, 1)]
        array([[23, 24, 25],
               [33, 34, 35]])
        """
        blocks: RDD[Any] = adopted(scattering.scatter(self, sc, what, partitions, check))
        return blocks

    @staticmethod
    def gather(blocks: RDD[Any], cells: Any = ...) -> Any:
        """Put a grid together in the driver.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        cells : index, optional
            Only these cells, as one would index the whole array: ``np.s_[:, 500]``, ``np.s_[::4, ::4]``. No other
            cells leave the workers. Steps are positive.

        Returns
        -------
        ndarray or dict of ndarray
            Of the grid's shape or, with ``cells``, of that which the index gives, in the blocks' dtype; a NumPy scalar
            of one cell.

        Raises
        ------
        PlanError
            If a block is missing, there twice or of another shape than its grid says.

        Examples
        --------
        >>> blocks = Grid((4, 6), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x)
        >>> Grid.gather(blocks, np.s_[1, ::2])
        array([10, 12, 14])
        """
        return gathering.gather(blocks, cells)

    @staticmethod
    def save(blocks: RDD[Any], path: Any, *, per_block: bool = False, compress: bool = False) -> None:
        """Save a grid as Zarr or ``.npy``.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        path : str or path
            One ``.npy`` file for the whole grid; a name that ends in ``.zarr`` for a Zarr 3 group with an array for
            each field, called ``cells`` where it has no name; or a directory with a ``.npy`` file for each field or,
            with ``per_block``, for each block, below a directory for each field; or a URL such as
            ``s3://bucket/u.npy``. Files, groups and directories of blocks appear and are replaced as a whole.
        per_block : bool
            Whether Spark's tasks write a file for each block, rather than the driver one file in pieces. They always
            write Zarr files, each block as a chunk.
        compress : bool
            Whether the chunks of a Zarr file are compressed, by zstd.

        Raises
        ------
        PlanError
            As for :meth:`gather`, if the name of a file does not end in ``.npy`` or ``.zarr``, or that of a directory
            ends in ``.npy``, if a group or a directory of blocks would take the place of something else, or if
            compressed blocks of a Zarr file are of several lengths along an axis, since its chunks have one: the error
            names splits that fit.

        Examples
        --------
        >>> import tempfile
        >>> blocks = Grid((2, 3), splits=(2, 1)).scatter(sc, lambda y, x: 1.0 * y + x).cache("GPU")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Grid.save(blocks, f"{folder}/u.npy")
        ...     np.load(f"{folder}/u.npy")
        array([[0., 1., 2.],
               [1., 2., 3.]])
        """
        gathering.save(blocks, path, per_block=per_block, compress=compress)

    @staticmethod
    def plot(blocks: RDD[Any], cells: Any = ..., *, field: str | None = None, axes: Any = None, **options: Any) -> Any:
        """Draw a grid, or a part of it, by matplotlib: two axes as a picture, one as a line.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        cells : index, optional
            What of the grid, as for :meth:`gather`: ``np.s_[:, 500]``. Of more than 1,000 x 1,000 cells, or 10,000 in a
            line, every second or n-th is drawn; the others stay in the workers, so that at most 8 MB come to the
            driver.
        field : str, optional
            The field of several that is drawn.
        axes : matplotlib.axes.Axes, optional
            Where to draw; a figure of its own, if left out.
        **options
            For ``Axes.imshow`` or ``Axes.plot``: ``cmap="inferno"``.

        Returns
        -------
        matplotlib.axes.Axes
            Whose ticks are the cells' numbers in the grid. Of a picture, ``axes.images[0]`` is what a colour bar takes.

        Raises
        ------
        PlanError
            If matplotlib is not installed (extra ``plot``), three axes or no cells are left, there is no such field, or
            the cells are complex.

        Examples
        --------
        >>> blocks = Grid((40, 60), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x)
        >>> axes = Grid.plot(blocks, np.s_[:, 30], color="black")
        >>> axes.lines[0].get_ydata()[:3]
        array([30, 40, 50])
        """
        return plotting.plot(blocks, cells, field, axes, options)

    @staticmethod
    def animate(blocks: RDD[Any], advance: Callable[[Any], RDD[Any]], *, frames: int, cells: Any = ...,
                field: str | None = None, axes: Any = None, interval: float = 100.0, **options: Any) -> Any:
        """Animate a grid by matplotlib: each frame shows what ``advance`` makes of the blocks of the one before.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid, which the first frame shows.
        advance : callable
            Takes the blocks of a frame and returns those of the next: ``lambda u: u.iterate(heat, 0.1, steps=50)``.
            Called as the animation is shown or saved, each time from the first frame on.
        frames : int
            How many.
        cells : index, optional
            What of the grid, as for :meth:`plot`; a frame has at most 300 x 300 cells, or 10,000 in a line.
        field, axes, **options
            As for :meth:`plot`. Colours and the range of a line stay those of the first frame, or by ``vmin=``,
            ``vmax=`` and ``axes.set_ylim``.
        interval : float
            Milliseconds from frame to frame.

        Returns
        -------
        matplotlib.animation.FuncAnimation
            Which notebooks show by ``HTML(animation.to_jshtml())``, and ``animation.save("u.gif")`` writes.

        Raises
        ------
        PlanError
            As for :meth:`plot`, or if ``frames`` is not 1 or more.

        Examples
        --------
        >>> blocks = Grid((40, 60), splits=(2, 2)).scatter(sc, lambda y, x: 10.0 * y + x).cache("GPU")
        >>> animation = Grid.animate(blocks, lambda u: u.vmap(lambda cell: cell / 2), frames=3)
        >>> animation.to_jshtml().count("data:image/png")
        3
        """
        return plotting.animate(blocks, advance, frames, cells, field, axes, interval, options)

    @staticmethod
    def sum(blocks: RDD[Any], field: str | None = None) -> Any:
        """Return the sum of all cells, added up on the device.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid; an RDD is cached for it.
        field : str, optional
            One field of several. Left out, of a grid with named fields: a dict with each field's sum.

        Returns
        -------
        int, float, complex, or dict of them
            Integers and bools are added as 64-bit integers, floats as float64, complex numbers as complex128.

        Raises
        ------
        PlanError
            If these are no blocks of a grid, or there is no such field.

        Examples
        --------
        >>> blocks = Grid((4, 6), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x).cache("GPU")
        >>> Grid.sum(blocks), Grid.min(blocks), Grid.max(blocks)
        (420, np.int64(0), np.int64(35))
        """
        return totals.total(blocks, field, "sum")

    @staticmethod
    def min(blocks: RDD[Any], field: str | None = None) -> Any:
        """Return the least cell, in the cells' dtype, as :meth:`sum` does; NaN where a cell is NaN.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        field : str, optional
            Of blocks that are dicts of arrays; without it blocks are arrays.

        Returns
        -------
        NumPy scalar, or dict of them by field
            Of the cells' dtype.

        Raises
        ------
        PlanError
            As for :meth:`sum`, or if the cells are complex.

        Examples
        --------
        >>> blocks = Grid((4, 6), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x).cache("GPU")
        >>> int(Grid.min(blocks))
        0
        """
        return totals.extreme(blocks, field, "min")

    @staticmethod
    def max(blocks: RDD[Any], field: str | None = None) -> Any:
        """Return the greatest cell, in the cells' dtype, as :meth:`sum` does; NaN where a cell is NaN.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        field : str, optional
            Of blocks that are dicts of arrays; without it blocks are arrays.

        Returns
        -------
        NumPy scalar, or dict of them by field
            Of the cells' dtype.

        Raises
        ------
        PlanError
            As for :meth:`sum`, or if the cells are complex.

        Examples
        --------
        >>> blocks = Grid((4, 6), splits=(2, 2)).scatter(sc, lambda y, x: 10 * y + x).cache("GPU")
        >>> int(Grid.max(blocks))
        35
        """
        return totals.extreme(blocks, field, "max")

    @staticmethod
    def norm(blocks: RDD[Any], field: str | None = None, ord: float = 2) -> Any:
        """Return the norm of the cells as one vector: 2, 1 or ``numpy.inf``; a float, as :meth:`sum` gives its sums.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        field : str, optional
            Of blocks that are dicts of arrays; without it blocks are arrays.
        ord : 1, 2 or numpy.inf, optional
            Which norm.

        Returns
        -------
        float, or dict of them by field
            Computed in float64 for 2, and for 1 as :meth:`sum` adds; the greatest size, in the cells' dtype, for
            ``numpy.inf``.

        Raises
        ------
        PlanError
            As for :meth:`sum`, or if ``ord`` is another number.

        Examples
        --------
        >>> blocks = Grid((2, 2)).scatter(sc, np.array([[3.0, 0.0], [0.0, -4.0]])).cache("GPU")
        >>> Grid.norm(blocks), Grid.norm(blocks, ord=1), Grid.norm(blocks, ord=np.inf)
        (5.0, 7.0, 4.0)
        """
        return totals.norm(blocks, field, ord)

    @staticmethod
    def dot(blocks: RDD[Any], *others: Any, field: str | None = None) -> Any:
        """Return an inner product: of two fields of a grid, on the device, or of two grids, in the driver.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        *others
            The names of two fields, ``Grid.dot(blocks, "p", "q")``; or the blocks of another grid of the same shape,
            whose cells come to the driver with those of the first.
        field : str, optional
            Of two grids with named fields, the field.

        Returns
        -------
        int, float or complex
            In the types that :meth:`sum` adds in; of complex cells the first ones are conjugated, as by ``numpy.vdot``.

        Raises
        ------
        PlanError
            As for :meth:`sum`, or if the grids' shapes differ.

        Examples
        --------
        >>> blocks = Grid((2, 2), fields={"p": "f8", "q": "f8"}).scatter(sc, {"p": 2.0, "q": 3.0}).cache("GPU")
        >>> float(Grid.dot(blocks, "p", "q"))
        24.0
        """
        if len(others) == 2 and all(isinstance(each, str) for each in others):
            return totals.dot(blocks, others[1], others[0])
        if len(others) != 1 or isinstance(others[0], str):
            raise PlanError('dot takes the names of two fields, Grid.dot(blocks, "p", "q"), or another grid, '
                            "Grid.dot(blocks, other)")
        return totals.dot(blocks, others[0], field)

    @staticmethod
    def coarsen(blocks: RDD[Any], factor: int | tuple[int, ...] = 2, grid: Grid | None = None) -> RDD[Any]:
        """Average ``factor`` cells along each axis to one, as from one level of a multigrid to the next; by the driver.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid; the driver gathers them.
        factor : int or tuple of int
            How many cells become one, along all axes or each; it divides the grid's cells.
        grid : Grid, optional
            What the result is scattered over; left out, a grid with the same splits, halo and boundary.

        Returns
        -------
        RDD of (BlockKey, array or dict of arrays)
            As of :meth:`scatter`; means of integers are float64.

        Raises
        ------
        PlanError
            If the factor does not divide the cells, ``grid`` has another shape or fields of integers, or there is none
            and the grid has such fields by ``fields``, the boundary is a function of the position, or the halo is wider
            than the blocks that would be.

        Examples
        --------
        >>> fine = Grid((4, 4), splits=(2, 1)).scatter(sc, np.arange(16.0).reshape(4, 4)).cache("GPU")
        >>> Grid.gather(Grid.coarsen(fine))
        array([[ 2.5,  4.5],
               [10.5, 12.5]])
        >>> Grid.gather(Grid.refine(Grid.coarsen(fine)))[0]
        array([2.5, 2.5, 4.5, 4.5])
        """
        return totals.resized(blocks, factor, grid, finer=False)

    @staticmethod
    def refine(blocks: RDD[Any], factor: int | tuple[int, ...] = 2, grid: Grid | None = None) -> RDD[Any]:
        """Repeat each cell ``factor`` times along each axis; otherwise as :meth:`coarsen`.

        Parameters
        ----------
        blocks : RDD or VRDD of (BlockKey, array or dict of arrays)
            All blocks of a grid.
        factor : int or tuple of int, optional
            How many cells each becomes, along all axes or each.
        grid : Grid, optional
            What the result is scattered over; left out, a grid with the same splits, halo and boundary.

        Returns
        -------
        RDD of (BlockKey, array or dict of arrays)
            As of :meth:`scatter`, in the cells' dtype.

        Raises
        ------
        PlanError
            If ``factor`` is no whole number from 1 on, ``grid`` has another shape, there is none and the boundary is a
            function of the position, or these are no blocks of a grid.

        Examples
        --------
        >>> coarse = Grid(2).scatter(sc, np.array([1.0, 2.0])).cache("GPU")
        >>> Grid.gather(Grid.refine(coarse, 3))
        array([1., 1., 1., 2., 2., 2.])
        """
        return totals.resized(blocks, factor, grid, finer=True)

    @classmethod
    def _of(cls, description: GridSpec, fields: tuple[tuple[str, str], ...]) -> Grid:
        """Return the grid of a description that is checked."""
        return restored(description, fields, {})


def restored(description: GridSpec, fields: tuple[tuple[str, str], ...], functions: dict[str, Any]) -> Grid:
    """Return the grid of a description that is checked; for keys."""
    learn(functions)
    grid = object.__new__(Grid)
    object.__setattr__(grid, "description", description)
    object.__setattr__(grid, "fields", fields)
    return grid


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise PlanError(f"{name}= has {value!r}, which is no whole number")
    if value < least:
        raise PlanError(f"{name}= has {value}; the least is {least}")
    return int(value)


def _extents(name: str, extents: Any, least: int) -> tuple[int, ...]:
    items = tuple(extents) if isinstance(extents, tuple | list | np.ndarray) else (extents,)
    return tuple(_whole(name, item, least) for item in items)


def _for_axes(name: str, value: Any, least: int, ndim: int) -> tuple[int, ...]:
    """Return one number for each axis, from one number for all axes or one for each."""
    if isinstance(value, Integral):
        return (_whole(name, value, least),) * ndim
    extents = _extents(name, value, least)
    if len(extents) != ndim:
        raise PlanError(f"{name}={extents} has {len(extents)} items for a grid of {ndim} axes; give one for each, or "
                        "one number for all")
    return extents


def _check_axis(axis: int, extent: int, parts: int, width: int) -> None:
    if extent > MOST_CELLS:
        raise PlanError(f"shape= has {extent:,} cells along axis {axis}; {MOST_CELLS:,} at most are possible")
    if width > MOST_HALO:
        raise PlanError(f"halo= is {width} wide along axis {axis}; {MOST_HALO} at most is possible")
    if parts > extent:
        raise PlanError(f"splits= has {parts} blocks along axis {axis}, which has {extent} cells; at most that many "
                        "blocks are possible")
    if width > extent // parts:
        raise PlanError(f"halo= is {width} wide along axis {axis}, where the smallest block has {extent // parts} "
                        "cells; a halo is no wider than a block: use fewer splits")


def _fields(fields: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    if fields is None:
        return ()
    if not isinstance(fields, Mapping) or not fields:
        raise PlanError(f"fields={fields!r}; it is a dict of names to dtypes, such as {{'u': 'f4', 'solid': bool}}")
    dtypes = []
    for name, dtype in fields.items():
        if not isinstance(name, str) or not name:
            raise PlanError(f"fields= names a field {name!r}; a name is a string that is not empty")
        try:
            described = np.dtype(dtype)
        except TypeError as error:
            raise PlanError(f"fields= has {dtype!r} for the dtype of {name}, which NumPy does not know") from error
        if described.char not in _NUMERIC:
            raise PlanError(f"fields= has dtype {described} for {name}; cells hold bool, integers of at most 64 "
                            "bits, or floats and complex numbers of 32 or 64 bits a part")
        dtypes.append((name, described.newbyteorder("=").str))
    return tuple(dtypes)
