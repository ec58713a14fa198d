"""Chains that begin with lines of text: which ``vispark.read_text`` gives the same records, or why none is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from vispark.migrate.source.line_parsers import LineParser, LineValue, NotNumbers
from vispark.migrate.source.program import RddCall, SourceProgram

#: What else there is for text that is not provably lines of numbers.
OTHERWISE = "where loading counts, write it once as Parquet, which vispark.read_parquet reads"


@dataclass(frozen=True)
class TextReader:
    """Call of ``vispark.read_text`` that stands for a source of text and the maps behind it.

    Attributes
    ----------
    source : RddCall or None
        The ``textFile``; None where a DataFrame reads the text.
    maps : tuple of RddCall
        Those that fall away.
    context, path : str
        As the program writes them.
    value : LineValue
        What the last map gives.
    partitions : str
        ``minPartitions`` as the program writes it; empty where it leaves it out.
    """

    source: RddCall | None
    maps: tuple[RddCall, ...]
    context: str
    path: str
    value: LineValue
    partitions: str = ""

    @property
    def text(self) -> str:
        """The call."""
        arguments = [self.context, self.path, *self.value.arguments()]
        arguments += [f"minPartitions={self.partitions}"] if self.partitions else []
        return f"vispark.read_text({', '.join(arguments)})" + self.behind

    @property
    def behind(self) -> str:
        """What is left behind the call: a map that makes tuples of rows."""
        return ".map(tuple)" if self.value.kind == "tuple" else ""


def readers_of(program: SourceProgram) -> dict[RddCall, TextReader | str]:
    """Return the reader of each ``map`` of lines of text, or the reason for which none is known.

    Of several maps one behind another that together make numbers of a line, it is under the last one.

    Examples
    --------
    >>> program = SourceProgram("job.py", "x = sc.textFile(p).map(lambda s: np.array(s.split(), dtype=float)).cache()")
    >>> [each.text for each in readers_of(program).values()]
    ['vispark.read_text(sc, p, "float64")']
    >>> program = SourceProgram("job.py", "x = sc.textFile(p).map(lambda s: s.lower()).cache()")
    >>> list(readers_of(program).values())
    ["s.lower() is not known to be numbers of a line's fields"]
    """
    readers: dict[RddCall, TextReader | str] = {}
    for call in program.calls:
        if call.method == "map" and (start := _start(program, call)) is not None:
            readers[_last(program, call)] = _reader(program, call, start)
    return readers


def _start(program: SourceProgram, call: RddCall) -> LineValue | None:
    """Return the value that a map is of, if that is text or rows of it."""
    before = program.before(call)
    if before is not None and before.method == "textFile":
        return LineValue("line")
    if before is None and _frame_text(call) is not None:
        return LineValue("row")
    return None


def _frame_text(call: RddCall) -> ast.Call | None:
    """Return the ``spark.read.text(path)`` in ``spark.read.text(path).rdd.map(f)``."""
    match call.attribute.value:
        case ast.Attribute(attr="rdd", value=ast.Call(func=ast.Attribute(attr="text", value=ast.Attribute(attr="read")),
                                                      args=[_]) as read):
            return read
    return None


def _after(program: SourceProgram, call: RddCall) -> list[RddCall]:
    return [each for each in program.calls if program.before(each) is call]


def _chain(program: SourceProgram, call: RddCall) -> Iterator[RddCall]:
    """Yield a map and the maps behind it, as long as each has only one operation behind it."""
    yield call
    while len(behind := _after(program, call)) == 1 and behind[0].method == "map" and len(behind[0].node.args) == 1:
        call = behind[0]
        yield call


def _last(program: SourceProgram, call: RddCall) -> RddCall:
    """Return the map at which a line has become numbers, or at which that is given up."""
    value, parser = _start(program, call), LineParser(program)
    assert value is not None
    for mapped in _chain(program, call):
        call = mapped
        try:
            value = parser.result(mapped.node.args[0], value)
        except (NotNumbers, IndexError):
            return call
        if value.kind in ("number", "array", "tuple", "list"):
            return call
    return call


def _reader(program: SourceProgram, call: RddCall, start: LineValue) -> TextReader | str:
    last, maps, value, parser = _last(program, call), list[RddCall](), start, LineParser(program)
    try:
        for mapped in _chain(program, call):
            value = parser.result(mapped.node.args[0], value)
            maps.append(mapped)
            if mapped is last:
                break
        _check_records(program, value, last)
        return _located(program, tuple(maps), value)
    except NotNumbers as why:
        return str(why)
    except IndexError:
        return "its function is given by a name"


def _check_records(program: SourceProgram, value: LineValue, last: RddCall) -> None:
    """Check that ``read_text`` gives such records.

    Raises
    ------
    NotNumbers
        If it does not.
    """
    if value.kind == "list":
        raise NotNumbers("its records are lists, of which a device has arrays: np.array(...) of them is what "
                         "vispark.read_text gives")
    if value.kind == "line" and any(each.method == "mapPartitions" for each in _after(program, last)):
        raise NotNumbers("what .mapPartitions makes of its lines is not known; of lines of numbers vispark.read_text("
                         "sc, path, blocks=True) makes an array a partition")
    if value.kind not in ("number", "array", "tuple"):
        raise NotNumbers("it does not make numbers of a line")
    if value.kind == "array":
        return
    if not value.dtype.startswith("float"):
        raise NotNumbers("Python's whole numbers have any size, those of vispark.read_text 64 bits: name its dtype by "
                         "hand where that is enough")
    if value.kind == "tuple" and value.columns is not None and len(value.columns) == 2:
        raise NotNumbers("its records are pairs, whose keys stay in Spark")
    if not program.is_cached(last) and not all(each.method in ("cache", "persist") for each in _after(program, last)):
        raise NotNumbers("Python's numbers go on to what is behind it, and vispark.read_text gives NumPy's")


def _located(program: SourceProgram, maps: tuple[RddCall, ...], value: LineValue) -> TextReader:
    source = program.before(maps[0])
    if source is None:
        read = _frame_text(maps[0])
        match read:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=session)), args=[name]):
                return TextReader(None, maps, f"{program.text_of(session)}.sparkContext", program.text_of(name), value)
        raise NotNumbers("its lines come from somewhere else")
    if not source.node.args or source.node.keywords or len(source.node.args) > 2:
        raise NotNumbers("textFile is given arguments by name")
    for call, behind in zip((source, *maps), maps, strict=False):
        _check_alone(program, call, behind)
    path, *partitions = map(program.text_of, source.node.args)
    return TextReader(source, maps, program.text_of(source.attribute.value), path, value, "".join(partitions))


def _check_alone(program: SourceProgram, call: RddCall, behind: RddCall) -> None:
    """Check that what a call gives goes to the map behind it and nowhere else.

    Raises
    ------
    NotNumbers
        If it goes elsewhere, too.
    """
    on = behind.attribute.value
    others = [each for each in _after(program, call) if each is not behind]
    if others:
        raise NotNumbers(f"its lines go to {program.where(others[0].line)}, .{others[0].method}, too")
    if on is call.node:
        return
    loads = [node for node in ast.walk(program.tree) if isinstance(on, ast.Name) and isinstance(node, ast.Name)
             and node.id == on.id and isinstance(node.ctx, ast.Load)]
    if len(loads) != 1 or not isinstance(on, ast.Name) or program.values_of(on) != [call.node]:
        raise NotNumbers("its lines have a name that stands for more than these, or is used elsewhere, too")
