"""Results that threads work out while the ones before them are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The most results that are worked out at once.
_THREADS = 4


def ahead(function: Callable[[Item], Result], items: Iterable[Item], size: Callable[[Item], int],
          most: int) -> Iterator[Result]:
    """Yield a function's results in order, and work out the next ones meanwhile.

    Parameters
    ----------
    function : callable
        Of one item. It runs in threads.
    items : iterable
        What it is called with.
    size : callable
        Gives the bytes of an item's result.
    most : int
        Bytes that results which nobody has taken may have together, those in the making among them; there is always
        one.

    Examples
    --------
    >>> list(ahead(str, range(4), size=lambda item: 1, most=2))
    ['0', '1', '2', '3']
    """
    waiting: deque[tuple[Future[Result], int]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="vispark ahead") as pool:
        try:
            for item in items:
                nbytes = size(item)
                while waiting and (len(waiting) == _THREADS or sum(each for _, each in waiting) + nbytes > most):
                    yield waiting.popleft()[0].result()
                waiting.append((pool.submit(function, item), nbytes))
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()
