"""Frozen dataclasses of the protocol beside the standard library's, which they stand for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from gpu_worker.protocol import frozen
from gpu_worker.protocol.messages import Hello


@frozen.dataclass(frozen=True, slots=True)
class Ours:
    name: str
    secret: bytes = dataclasses.field(default=b"", repr=False)
    place: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    name: str
    secret: bytes = dataclasses.field(default=b"", repr=False)
    place: int = dataclasses.field(default=0, compare=False)


@frozen.dataclass(frozen=True, slots=True)
class NoFields:
    pass


@frozen.dataclass(frozen=True, slots=True)
class Shouted:
    name: str

    def __str__(self) -> str:
        return self.name.upper()

    def __hash__(self) -> int:
        return 7


@pytest.mark.parametrize("kind", [Ours, Standard])
def test_records_are_those_of_a_dataclass(kind: type):
    record = kind("a", place=3)
    assert repr(record) == f"{kind.__name__}(name='a', place=3)" and dataclasses.asdict(record)["secret"] == b""
    assert record == kind("a", b"", 4) != kind("a", b"x") and hash(record) == hash(kind("a"))
    assert record != "a" and record != NoFields()
    assert dataclasses.replace(record, name="b") == kind("b") and kind.__match_args__ == ("name", "secret", "place")
    for copied in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert (copied, copied.place) == (record, 3)
    for change in (lambda: setattr(record, "name", "b"), lambda: setattr(record, "other", 1),
                   lambda: delattr(record, "name")):
        # With slots, the library's own fails at what is no field by a TypeError.
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
            change()
    with pytest.raises(TypeError, match="name"):
        kind()
    assert not hasattr(record, "__dict__")


def test_classes_without_fields_and_with_methods_of_their_own():
    assert NoFields() == NoFields() and hash(NoFields()) == hash(()) and repr(NoFields()) == "NoFields()"
    assert (str(Shouted("a")), hash(Shouted("a")), Shouted("a") == Shouted("a")) == ("A", 7, True)


def test_what_it_does_not_do_is_refused_at_the_definition():
    with pytest.raises(AssertionError):
        frozen.dataclass(frozen=True, slots=False)
    with pytest.raises(AssertionError):
        @frozen.dataclass(frozen=True, slots=True)
        class ListedNames:
            names: list[str] = dataclasses.field(default_factory=list)


def test_messages_hide_their_secrets():
    assert not [field.name for field in dataclasses.fields(Hello) if field.name == "secret" and field.repr]


def test_the_definition_of_messages_compiles_nothing():
    # Six methods of each of 120 classes would cost each daemon, device process and Python worker 40 ms.
    program = ("import builtins\nexecute, texts = builtins.exec, []\n"
               "def counted(code, *rest, **named):\n"
               "    if isinstance(code, str): texts.append(code)\n"
               "    return execute(code, *rest, **named)\n"
               "import gpu_worker.protocol.errors\n"
               "builtins.exec = counted\n"
               "import gpu_worker.protocol.control, gpu_worker.protocol.messages as messages\n"
               "defined = len(texts)\n"
               "messages.Done(1), messages.Done(2)\n"
               "print(defined, len(texts))")
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.split() == ["0", "1"]
