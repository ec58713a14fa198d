"""Qualification of a program by its source alone."""

from __future__ import annotations

from collections.abc import Callable

from vispark.migrate.qualify.dataframes import answers
from vispark.migrate.rules.advice import Advice, LoopAdvice, Qualification
from vispark.migrate.rules.functions import FOLDS, FunctionMaker, Verdict
from vispark.migrate.rules.loop_rules import MAPS, LoopRules, written
from vispark.migrate.source.modules_beside import called_in_loops, modules_beside
from vispark.migrate.source.notebooks import SUFFIX, cell_lines
from vispark.migrate.source.program import RddCall, SourceProgram


def qualify_source(program: SourceProgram, imports: bool = True) -> Qualification:
    """Return the verdicts on a program's loops, without running it.

    Parameters
    ----------
    program : SourceProgram
    imports : bool
        Whether its imports and definitions may be executed, which the translator needs.

    Examples
    --------
    >>> text = '''
    ... data = sc.textFile(path).map(float).cache()
    ... for _ in range(9):
    ...     w -= data.map(lambda x: x * w).reduce(lambda a, b: a + b)
    ... '''
    >>> answer = qualify_source(SourceProgram("job.py", text))
    >>> [(each.line, each.verdict) for each in answer.loops[0].advice]
    [(2, 'read_text'), (2, 'read_text'), (2, 'cache'), (4, 'vmap'), (4, 'fold')]
    """
    maker = FunctionMaker(program, imports)
    ask = asking(maker)
    loops = [LoopRules(program, loop, calls, ask).advice() for loop, calls in program.loops().items()]
    modules = list(modules_beside(program))
    for module in modules:
        of_module = asking(FunctionMaker(module, imports))
        loops += [LoopRules(module, loop, calls, of_module).advice() for loop, calls in module.loops().items()]
    notes = [*_notes(program, maker, tuple(loops), modules), *called_in_loops(program, modules)]
    return Qualification("source", program.file, tuple(loops), tuple(notes))


#: Names of the arguments that are functions; an aggregation's are in this order.
_FUNCTIONS = ("f", "func", "seqOp", "combOp")


def asking(maker: FunctionMaker) -> Callable[[RddCall], Verdict | None]:
    """Return a function that asks the translator about an operation's function, each once."""
    known: dict[RddCall, Verdict | None] = {}

    def ask(call: RddCall) -> Verdict | None:
        if call not in known:
            functions = [*call.node.args, *[each.value for each in call.node.keywords if each.arg in _FUNCTIONS]]
            # The zero value of a fold comes before its function, and of an aggregation its step, too.
            number = {"fold": 1, "foldByKey": 1, "aggregate": 2, "treeAggregate": 2}.get(call.method, 0)
            known[call] = maker.verdict(functions[number], call.method) if len(functions) > number else None
        return known[call]

    return ask


def _notes(program: SourceProgram, maker: FunctionMaker, loops: tuple[LoopAdvice, ...],
           modules: list[SourceProgram]) -> list[str]:
    notes = [f"{program.file}, {each}" for each in maker.failed]
    if program.file.endswith(SUFFIX):
        cells = ", ".join(f"cell {number} from line {line} on" for number, line in cell_lines(program.source).items())
        notes.append(f"lines are those of the notebook as a script: {cells or 'it has no cell of code'}")
    if not maker.imports:
        notes.append("the translator was not asked, as the program's imports are not executed (--no-import)")
    if not program.calls and not any(module.calls for module in modules):
        notes += answers(program)
    elif not loops:
        notes.append("no loop over RDDs was found: what is read once gains nothing")
        notes += [f"  {each.line:>4}  {each.call}: {each.detail}" for each in _once(program, maker)]
    return notes


def _once(program: SourceProgram, maker: FunctionMaker) -> list[Advice]:
    ask = asking(maker)
    advice = []
    for call in program.calls:
        verdict = ask(call) if call.method in MAPS | FOLDS else None
        if verdict is not None:
            advice.append(Advice(call.line, call.column, written(program, call), "stays",
                                 "the translator reads it, but it runs once" if verdict.is_read else verdict.reason))
    return advice
