"""Functions of a unit: probes dealt to functions so that all are met equally often, or some more than others."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.property.differential import data
from tests.property.differential.functions import Drawn, draw
from tests.property.differential.probe import Probe
from tests.property.differential.probes import PROBES
from tests.property.differential.verdicts import RUNS, key_of, verdict

#: Probes in a function, and how many of them meet what a unit is steered to.
_FEWEST, _MOST, _STEERED = 2, 6, 0.8
#: Probes that are looked at for each that is dealt.
_AMONG = 6
_NUMBERS = tuple(probe for probe in PROBES if not probe.rows)
_ROWS = tuple(probe for probe in PROBES if probe.rows)
#: Probes of numbers among those that a function with rows may have.
_SOME = len(_NUMBERS) // 5
_LENGTHS = (0, 1, 1, 2, 3, 3, 4, 5, 8, 17)


@dataclass(frozen=True)
class Unit:
    """Functions that are compiled together, by what draws them.

    Attributes
    ----------
    seed : str
        The campaign's.
    number : int
        Which one of the campaign's it is.
    dtype : str
        What all of its functions are of; of any if it is empty.
    names : tuple of str
        The nodes and functions that most of its probes meet; any if there are none.
    """

    seed: str
    number: int
    dtype: str = ""
    names: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What :meth:`parse` takes."""
        steered = f"@{self.dtype}:{';'.join(self.names)}" if self.dtype else ""
        return f"{self.seed}/{self.number}{steered}"

    @classmethod
    def parse(cls, name: str) -> Unit:
        """Undo :attr:`name`."""
        head, _, steered = name.partition("@")
        seed, _, number = head.rpartition("/")
        dtype, _, names = steered.partition(":")
        return cls(seed, int(number), dtype, tuple(filter(None, names.split(";"))))

    def functions(self, count: int) -> Iterator[Drawn]:
        """Yield the first ones of the unit."""
        deck = _Deck(self)
        for number in range(count):
            one = f"{self.name}.{number}"
            random = Random(one)
            dtype = self.dtype or random.choice(data.DTYPES)
            other = random.choice(data.DTYPES) if random.random() < 0.4 else dtype
            rows, length = random.random() < 0.45, random.choice(_LENGTHS)
            yield draw(one, dtype, other, deck.deal(random, dtype, other, rows, length), rows, length,
                       names=frozenset(self.names))


class _Deck:
    """Deals a unit's probes, those met least before others."""

    def __init__(self, unit: Unit):
        self.names = frozenset(unit.names)
        self.met: Counter[tuple[str, str]] = Counter()
        self.steered: Counter[str] = Counter()

    def deal(self, random: Random, dtype: str, other: str, rows: bool, length: int) -> list[Probe]:
        """Return probes of a function."""
        wanted = random.randint(_FEWEST, _MOST)
        known = [*_ROWS, *random.sample(_NUMBERS, _SOME)] if rows else list(_NUMBERS)
        random.shuffle(known)
        dealt: list[Probe] = []

        def runs(probe: Probe) -> bool:
            return verdict(key_of(probe, dtype, other, length)).kind == RUNS

        if self.names:
            steered = sum(random.random() < _STEERED for _ in range(wanted))
            serving = {probe: served for probe in (*_ROWS * rows, *_NUMBERS)
                       if (served := _serving(probe, dtype, length) & self.names)}
            dealt = [probe for probe in self._serve(serving, steered, dtype) if runs(probe)]
        for probe in sorted(known[:_AMONG * wanted], key=lambda probe: self.met[probe.text, dtype]):
            if len(dealt) < wanted and probe not in dealt and runs(probe):
                dealt.append(probe)
        self.met.update((probe.text, dtype) for probe in dealt)
        return dealt

    def _serve(self, serving: dict[Probe, frozenset[str]], count: int, dtype: str) -> list[Probe]:
        """Return some probes, for the unit's names in turn, whether many probes meet a name or one."""
        dealt: list[Probe] = []
        while serving and len(dealt) < count:
            name = min({name for served in serving.values() for name in served},
                       key=lambda name: (self.steered[name], name))
            rarest = min((probe for probe, served in serving.items() if name in served),
                         key=lambda probe: self.met[probe.text, dtype])
            self.steered.update(serving.pop(rarest))
            dealt.append(rarest)
        return dealt


@functools.cache
def _serving(probe: Probe, dtype: str, length: int) -> frozenset[str]:
    """Return the names with which a probe meets a dtype: with operands of it alone, as that of all pairs takes long to
    judge.
    """
    return verdict(key_of(probe, dtype, dtype, length)).names
