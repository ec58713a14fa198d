"""Shapes of values in a function of a block of rows: how many axes they have, and which one goes along the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace


class NotRows(Exception):
    """Reason for which a function of a block is not made one of a row."""


@dataclass(frozen=True)
class BlockShape:
    """Shape of a value in a function of a block.

    Attributes
    ----------
    ndim : int
        Axes that the value has in the block's function.
    rows : int or None
        The axis along the rows, from the end (-1 is the last one); None where there is none.
    is_sum : bool
        Whether it is a sum over the rows, of which a row's function has its own term.
    is_column : bool
        Whether it is numbers of rows with one more axis of length 1, as ``y[:, None]``; a row has the number.
    is_bool : bool
        Whether it is of bools, which NumPy counts when it sums them and joins by "or" when it adds two.
    """

    ndim: int
    rows: int | None = None
    is_sum: bool = False
    is_column: bool = False
    is_bool: bool = False

    @property
    def of_row(self) -> int:
        """Axes that the value has in the row's function."""
        return 0 if self.is_column else self.ndim - (self.rows is not None)

    @property
    def is_constant(self) -> bool:
        """Whether it is the same for all rows."""
        return self.rows is None and not self.is_sum


def elementwise(first: BlockShape, second: BlockShape, sign: str) -> BlockShape:
    """Return the shape of two values joined element by element.

    Parameters
    ----------
    sign : str
        The operator, as errors call it: sums may be added to sums, multiplied and divided by constants.

    Raises
    ------
    NotRows
        If the axes along the rows do not meet, or a row's terms do not add up to the result.
    """
    if first.is_sum or second.is_sum:
        return _of_sums(first, second, sign)
    if first.is_bool and second.is_bool:
        raise NotRows("two arrays of bools")
    for one, other in ((first, second), (second, first)):
        if one.rows is not None and other.rows is None and other.ndim >= -one.rows:
            raise NotRows("an array without rows meets the axis along the rows")
    if first.rows is not None and second.rows is not None and first.rows != second.rows:
        raise NotRows("the axes along the rows do not meet")
    rows = first.rows if first.rows is not None else second.rows
    is_column = any(each.is_column for each in (first, second)) and all(
        each.is_column or each.ndim == 0 for each in (first, second))
    return BlockShape(max(first.ndim, second.ndim), rows, False, is_column)


def _of_sums(first: BlockShape, second: BlockShape, sign: str) -> BlockShape:
    if first.is_sum and second.is_sum and sign in "+-":
        return BlockShape(max(first.ndim, second.ndim), None, True)
    if (sign == "*" and (first.is_constant or second.is_constant)) or (sign == "/" and second.is_constant):
        return BlockShape(max(first.ndim, second.ndim), None, True)
    if sign in "+-" and (first.is_constant or second.is_constant):
        raise NotRows("what is added to a sum over the rows would be added for each row; add it where the sums are "
                      "brought together")
    raise NotRows("a sum over the rows is used before it is complete; only multiples of it and other sums are sums of "
                  "the rows' terms")


def product(first: BlockShape, second: BlockShape) -> tuple[BlockShape, str]:
    """Return the shape of a matrix product, and how a row's function writes it: "*", "@" or "outer".

    Raises
    ------
    NotRows
        If rows are summed with something that has none, or each row meets each other one.
    """
    if not (first.ndim and second.ndim):
        return elementwise(first, second, "*"), "*"
    if any(each.is_sum or each.is_column or each.is_bool or each.ndim > 2 for each in (first, second)):
        raise NotRows("a matrix product of a sum over the rows, of bools, or of more than two axes")
    inner = -1 if second.ndim == 1 else -2
    over_first, over_second = first.rows == -1, second.rows == inner and second.rows is not None
    if over_first and over_second:
        axes = first.ndim + second.ndim - 2
        return BlockShape(axes, None, True), "outer" if axes == 2 else "*"
    if over_first or over_second:
        raise NotRows("a matrix product that sums over the rows with something that has none")
    if first.rows is not None and second.rows is not None:
        raise NotRows("a matrix product in which each row meets each other one")
    ndim = first.ndim + second.ndim - 2
    if first.rows is not None:
        return BlockShape(ndim, -ndim), "@"
    return BlockShape(ndim, None if second.rows is None else -1), "@"


def reduced(shape: BlockShape, axis: int | None, name: str) -> tuple[BlockShape, int | None, bool]:
    """Return the shape of a reduction, the axis that a row's function reduces, and whether it reduces anything there.

    Parameters
    ----------
    axis : int or None
        As given; None for all.
    name : str
        The reduction; over the rows there are sums alone.

    Raises
    ------
    NotRows
        If another one goes over the rows.
    """
    if shape.is_sum:
        raise NotRows(f"{name} of a sum over the rows")
    if shape.rows is None:
        return BlockShape(0 if axis is None else shape.ndim - 1, is_bool=shape.is_bool), axis, True
    place = None if axis is None else axis - shape.ndim if axis >= 0 else axis
    if place is None or place == shape.rows:
        if name != "sum":
            raise NotRows(f"{name} over the rows is no sum of the rows' terms; fold it where the blocks' results are "
                          "brought together")
        return BlockShape(0 if place is None else shape.ndim - 1, None, True), None, place is None and shape.of_row > 0
    if shape.is_column:
        if name not in ("sum", "mean", "min", "max", "prod") or shape.is_bool:
            raise NotRows(f"{name} of a column")
        return BlockShape(1, -1), None, False
    inside = place if place > shape.rows else place + 1
    rows = shape.rows + 1 if place > shape.rows else shape.rows
    is_bool = name in ("any", "all") or (shape.is_bool and name in ("min", "max"))
    return BlockShape(shape.ndim - 1, rows, is_bool=is_bool), None if shape.of_row == 1 else inside, True


def transposed(shape: BlockShape) -> BlockShape:
    """Return the shape of ``.T``.

    Raises
    ------
    NotRows
        If it has three axes and more.
    """
    if shape.ndim < 2 or shape.rows is None:
        return shape
    if shape.ndim > 2 or shape.is_column:
        raise NotRows(".T of more than two axes, or of a column")
    return replace(shape, rows=-3 - shape.rows)
