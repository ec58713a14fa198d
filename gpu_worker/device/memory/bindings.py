"""State of a session's names and the content bound to them, decided without sockets, devices or clocks.

The rules: a name (VRDD number, partition) is bound once and to complete content only; a second binding is dropped in
favour of the first, so that a retried request or a task's twin changes nothing; a request from before a recovery is
refused. Content is shared with whoever works on it, so a name can be released while a plan runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Generic, Protocol, Self, TypeVar

from gpu_worker.protocol.errors import Fenced, PartitionMissing


class RefCounted(Protocol):
    """Interface of content that is bound to a name: counted by reference, and freed by its last close."""

    index: int

    def share(self) -> Self: ...
    def close(self) -> None: ...


C = TypeVar("C", bound=RefCounted)
D = TypeVar("D")


class Binding(Protocol[D]):
    """Binding of all partitions of a VRDD at once."""

    name: str
    version: int

    @property
    def contents(self) -> dict[int, D]: ...
    def enter(self) -> None: ...
    def close(self) -> None: ...


class Closable(Protocol):
    """Interface of content that is closed when its name is released."""

    def close(self) -> None: ...


class Numbers:
    """Growing set of numbers, stored as ranges: consecutive numbers, as those of a loop, take no more memory.

    Examples
    --------
    >>> numbers = Numbers()
    >>> for number in (1, 2, 5, 3, 4):
    ...     numbers.add(number)
    >>> 5 in numbers, 6 in numbers, len(numbers.ranges)
    (True, False, 1)
    """

    def __init__(self) -> None:
        #: From and to, without the last; in order, and none next to another.
        self.ranges: list[tuple[int, int]] = []

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.ranges, number, key=itemgetter(0)) - 1
        return place >= 0 and number < self.ranges[place][1]

    def add(self, number: int) -> None:
        """Add a number."""
        if number in self:
            return
        place = bisect_right(self.ranges, number, key=itemgetter(0))
        start, stop = number, number + 1
        if place < len(self.ranges) and self.ranges[place][0] == stop:
            stop = self.ranges.pop(place)[1]
        if place and self.ranges[place - 1][1] == start:
            place -= 1
            start = self.ranges.pop(place)[0]
        self.ranges.insert(place, (start, stop))


class Bindings(Generic[C]):
    """The names of one session on one node, in the life of one device process.

    Parameters
    ----------
    epoch : int
        Counts the session's device processes on this node.
    """

    def __init__(self, epoch: int):
        self.epoch = epoch
        self.names: dict[int, str] = {}
        self._held: dict[int, dict[int, C]] = {}
        self._released = Numbers()
        self._only: dict[int, frozenset[int]] = {}
        self._versions: dict[int, int] = {}
        self._changes = 0
        self._borrowed: dict[int, int] = {}
        self._parting: dict[int, list[Closable]] = {}
        #: Those VRDDs that are held in one; what they have in ``_held`` is the binding's.
        self._bindings: dict[int, Binding[C]] = {}

    def admit(self, epoch: int) -> None:
        """Let a request of an epoch pass.

        Raises
        ------
        Fenced
            If the request was made for another process than this one.
        """
        if epoch != self.epoch:
            raise Fenced(f"the request is of epoch {epoch}, the worker is in epoch {self.epoch}: "
                         "its process was started anew in between")

    def lookup(self, vrdd: int, partition: int) -> C:
        """Return the content of a name, shared with the caller.

        Raises
        ------
        PartitionMissing
            If nothing is bound to it.
        """
        content = self._held.get(vrdd, {}).get(partition)
        if content is None:
            raise PartitionMissing(f"partition {partition} of VRDD {vrdd} is not held here").at(
                vrdd=str(vrdd), partition=partition)
        return content.share()

    def version(self, vrdd: int) -> int:
        """Return a number that differs whenever something else is held of a VRDD; 0 for nothing."""
        return self._versions.get(vrdd, 0)

    def borrow(self, versions: Mapping[int, int]) -> bool:
        """Keep the content of some VRDDs open until it is given back; return False if its versions are others."""
        if any(self.version(vrdd) != version for vrdd, version in versions.items()):
            return False
        for vrdd in versions:
            self._borrowed[vrdd] = self._borrowed.get(vrdd, 0) + 1
        return True

    def give_back(self, vrdds: Iterable[int]) -> None:
        """End a use that :meth:`borrow` began; content that was unbound meanwhile is closed after the last use."""
        for vrdd in vrdds:
            self._borrowed[vrdd] -= 1
            if not self._borrowed[vrdd]:
                del self._borrowed[vrdd]
                for content in self._parting.pop(vrdd, ()):
                    content.close()

    def has(self, vrdd: int, partition: int) -> bool:
        return partition in self._held.get(vrdd, {})

    def bind(self, vrdd: int, name: str, content: C) -> bool:
        """Bind complete content to its name. False, and ``content`` closed, where the name is bound or unwanted."""
        unwanted = vrdd in self._released or content.index not in self._only.get(vrdd, (content.index,))
        if unwanted or self.has(vrdd, content.index):
            content.close()
            return False
        self._unpack(vrdd)
        self.names[vrdd] = name
        self._held.setdefault(vrdd, {})[content.index] = content
        self._change(vrdd)
        return True

    def bind_all(self, vrdd: int, binding: Binding[C]) -> None:
        """Bind all that a binding has, complete, as :meth:`bind` does one by one."""
        if vrdd in self._held or vrdd in self._only or vrdd in self._released:
            for content in binding.contents.values():
                self.bind(vrdd, binding.name, content.share())
            return
        binding.enter()
        self.names[vrdd], self._held[vrdd], self._bindings[vrdd] = binding.name, binding.contents, binding
        if not binding.version:
            self._changes += 1
            binding.version = self._changes
        self._versions[vrdd] = binding.version

    def replace(self, vrdd: int, contents: Iterable[C]) -> None:
        """Replace a VRDD's partitions, other than those in a buffer set, by copies of equal content elsewhere."""
        gone, self._held[vrdd] = self._held[vrdd], {content.index: content for content in contents}
        self._change(vrdd)
        self._part(vrdd, list(gone.values()))

    def exchange(self, vrdd: int, content: C) -> bool:
        """Replace a partition by a copy of equal content elsewhere; False, and the copy closed, where it is not held.
        """
        if not self.has(vrdd, content.index):
            content.close()
            return False
        self._unpack(vrdd)
        gone, self._held[vrdd][content.index] = self._held[vrdd][content.index], content
        self._change(vrdd)
        self._part(vrdd, [gone])
        return True

    def binding(self, vrdd: int) -> Binding[C] | None:
        """Return the binding that holds all of a VRDD; None if there is none."""
        return self._bindings.get(vrdd)

    def _unpack(self, vrdd: int) -> None:
        """Hold what a binding has one by one."""
        binding = self._bindings.pop(vrdd, None)
        if binding is not None:
            self._held[vrdd] = {index: content.share() for index, content in binding.contents.items()}
            self._part(vrdd, [binding])

    def release(self, vrdds: Iterable[int]) -> None:
        """Unbind whole VRDDs for good: content that a late task brings is dropped."""
        for vrdd in vrdds:
            self._released.add(vrdd)
            self._only.pop(vrdd, None)
            self._drop(vrdd, list(self._held.get(vrdd, {})))

    def retain(self, vrdd: int, partitions: Iterable[int], *, only: bool = True) -> None:
        """Unbind all partitions of a VRDD but these, and refuse others, which late tasks may bring, until the next
        call.

        Where it is not told of those that are coming, others are bound: not ``only`` these.
        """
        keep = frozenset(partitions)
        if only:
            self._only[vrdd] = keep
        self._drop(vrdd, [index for index in self._held.get(vrdd, {}) if index not in keep])

    def held(self, vrdd: int, partitions: Iterable[int] = ()) -> list[C]:
        """Return the content of a VRDD in the order of its partitions, all of it if none are named; not shared."""
        bound = self._held.get(vrdd, {})
        indexes = sorted(bound) if not partitions else [index for index in partitions if index in bound]
        return [bound[index] for index in indexes]

    def vrdds(self) -> Iterator[int]:
        """Return the numbers of the VRDDs that something is held of."""
        return iter(list(self._held))

    def _drop(self, vrdd: int, partitions: list[int]) -> None:
        gone: list[Closable]
        if vrdd in self._bindings and len(partitions) == len(self._held[vrdd]):
            gone = [self._bindings.pop(vrdd)]
            bound = {}
        else:
            if partitions:
                self._unpack(vrdd)
            bound = self._held.get(vrdd, {})
            gone = [bound.pop(index) for index in partitions]
            if gone:
                self._change(vrdd)
        if not bound:
            self._held.pop(vrdd, None)
            self.names.pop(vrdd, None)
            self._versions.pop(vrdd, None)
        self._part(vrdd, gone)

    def _part(self, vrdd: int, gone: Sequence[Closable]) -> None:
        """Close unbound content, after its last borrower is done."""
        if vrdd in self._borrowed:
            self._parting.setdefault(vrdd, []).extend(gone)
            return
        for content in gone:
            content.close()

    def _change(self, vrdd: int) -> None:
        self._changes += 1
        self._versions[vrdd] = self._changes

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert all(self._held.values()), "a VRDD without partitions is listed"
        assert self._held.keys() == self.names.keys(), "names and content differ"
        assert not any(vrdd in self._released for vrdd in self._held), "a released VRDD is held"
        assert all(self._held[vrdd] is binding.contents for vrdd,
                   binding in self._bindings.items()), "a binding was opened"
