"""Search for better settings of a ported program: few runs, one knob after another, and the best is kept.

It runs nothing itself: :class:`TuneSearch` is given what measures a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from vispark.errors import OptionError
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN
from vispark.options import PREFIX, Options

#: Least share of the program's time that a part has for its knobs to be tried.
LEAST_SHARE = 0.1
#: Least change, of the whole time, that counts as one.
LEAST_GAIN = 0.02
#: Parts of a program that knobs act on.
LOAD, PASS = "load", "pass"


@dataclass(frozen=True)
class Setting:
    """Setting of all knobs of a program; None and False are as it is.

    Parameters
    ----------
    partitions : int, optional
        What sources cut their data into.
    blocks : bool
        Whether what is cached comes as one array a partition.
    float32 : bool
        Whether it is narrowed before it is cached.
    conf : tuple of (str, str)
        Options of Spark and vispark.
    """

    partitions: int | None = None
    blocks: bool = False
    float32: bool = False
    conf: tuple[tuple[str, str], ...] = ()

    def with_conf(self, **options: str) -> Setting:
        """Return the setting with options besides, whose names have "__" for a dot.

        Examples
        --------
        >>> Setting().with_conf(spark__task__cpus="2").conf
        (('spark.task.cpus', '2'),)
        """
        changed = {name.replace("__", "."): value for name, value in options.items()}
        return replace(self, conf=tuple(sorted((dict(self.conf) | changed).items())))

    def as_json(self) -> dict[str, Any]:
        """Return the knobs that are not as the program has them."""
        known = {"partitions": self.partitions, "blocks": self.blocks, "float32": self.float32, **dict(self.conf)}
        return {name: value for name, value in known.items() if value}


@dataclass(frozen=True)
class SourceCall:
    """Call of the program that makes partitions: its line, method, and how many it makes."""

    line: int
    method: str
    partitions: int


@dataclass(frozen=True)
class RunFacts:
    """Facts of one run of a program, by which knobs are chosen.

    Parameters
    ----------
    master : str
        Of Spark.
    cores : int
        Of this machine.
    parallelism : int
        Tasks at once.
    sources : tuple of SourceCall
        What makes partitions.
    cached : tuple of (int, str, bool, bool)
        Of each RDD that was sent: the line, the kind of its records, whether they have float64, and whether they come
        as blocks already.
    operations : frozenset of str
        Those of all plans.
    conf : dict
        Options of Spark and vispark in force.
    is_cut : bool
        Whether the program was ended after its passes were enough.
    """

    master: str = ""
    cores: int = 1
    parallelism: int = 1
    sources: tuple[SourceCall, ...] = ()
    cached: tuple[tuple[int, str, bool, bool], ...] = ()
    operations: frozenset[str] = frozenset()
    conf: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False


@dataclass(frozen=True)
class TuneRun:
    """Run of a program under a setting.

    Parameters
    ----------
    setting : Setting
    load : float
        Seconds until the first pass has ended, loading and compiling included.
    passes : tuple of float
        Seconds of each later pass.
    verdict : str
        That of its results against those of the program as it is; empty of the latter.
    failed : str
        Why it has none; empty where it ran.
    facts : RunFacts
    results : Any
        What the verdict is made of.
    """

    setting: Setting
    load: float = 0.0
    passes: tuple[float, ...] = ()
    verdict: str = ""
    failed: str = ""
    facts: RunFacts = RunFacts()
    results: Any = None

    @property
    def is_valid(self) -> bool:
        """Whether it ran, and its results are those of the program as it is."""
        return not self.failed and self.verdict not in (DIFFERS, NOT_KNOWN)

    def seconds(self, passes: int | None = None) -> float:
        """Return the seconds of the program with a number of passes; with those that ran where it is not given."""
        count = len(self.passes) if passes is None else max(0, passes - 1)
        return self.load + (median(self.passes) * count if self.passes else 0.0)


@dataclass(frozen=True)
class Knob:
    """Knob of a program: what it is called, the part that it acts on, and the settings to try, as changes of one.

    Parameters
    ----------
    name : str
    part : str
        :data:`LOAD` or :data:`PASS`.
    changes : tuple of (str, callable)
        What each is called, and what makes the new setting of another. They are tried in this order, until one is no
        better than the one before it.
    why_not : str
        Why there are none.
    """

    name: str
    part: str
    changes: tuple[tuple[str, Callable[[Setting], Setting]], ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one change: what it was, its run, and what came of it; None for a run where there was none."""

    knob: str
    change: str
    run: TuneRun | None
    said: str


@dataclass
class TuneAnswer:
    """Answer of a search: the runs as it is, what was tried, and the best.

    Attributes
    ----------
    base, again : TuneRun
        Two runs of the program as it is.
    best : TuneRun
        The best one, which may be the first.
    noise : float
        Seconds that two equal runs are apart.
    outcomes : list of Outcome
    stopped : str
        Why the search ended.
    """

    base: TuneRun
    again: TuneRun
    best: TuneRun
    noise: float
    outcomes: list[Outcome] = field(default_factory=list)
    stopped: str = "nothing is left to try"

    @property
    def runs(self) -> int:
        """Number of runs."""
        return 2 + sum(each.run is not None for each in self.outcomes)


class TuneSearch:
    """Descent along one knob after another.

    Parameters
    ----------
    measure : callable
        Runs the program under a setting.
    runs : int
        The most, those of the program as it is included.
    passes : int, optional
        Passes that the program has; where it is not given, those that ran count.

    Examples
    --------
    >>> cost = {None: 9.0, 4: 5.0, 8: 6.0}
    >>> search = TuneSearch(lambda setting: TuneRun(setting, cost[setting.partitions]), runs=6)
    >>> knob = Knob("partitions", LOAD, tuple((f"{n}", lambda was, n=n: replace(was, partitions=n)) for n in (4, 8)))
    >>> answer = search.run(lambda facts: [knob])
    >>> answer.best.setting.partitions, answer.runs, answer.stopped
    (4, 4, 'nothing is left to try')
    """

    def __init__(self, measure: Callable[[Setting], TuneRun], runs: int = 6, passes: int | None = None):
        self._measure, self._runs, self._passes = measure, runs, passes

    def run(self, knobs: Callable[[RunFacts], Sequence[Knob]]) -> TuneAnswer:
        """Run the program as it is twice, then its changes, and return the answer.

        Parameters
        ----------
        knobs : callable
            Gives the knobs for the facts of the first run.
        """
        base = self._measure(Setting())
        again = base if base.failed else self._measure(Setting())
        first, second = base.seconds(self._passes), again.seconds(self._passes)
        best = again if not again.failed and second < first else base
        answer = TuneAnswer(base, again, best, max(abs(first - second), LEAST_GAIN * min(first, second)))
        if base.failed or again.failed:
            answer.stopped = f"the program as it is failed: {base.failed or again.failed}"
            return answer
        chosen = sorted(knobs(base.facts), key=lambda knob: -self._share(base, knob.part))
        for knob in chosen:
            if knob.why_not:
                answer.outcomes.append(Outcome(knob.name, "", None, f"not tried: {knob.why_not}"))
            elif (share := self._share(answer.best, knob.part)) < LEAST_SHARE:
                part = "loading" if knob.part == LOAD else "passes"
                answer.outcomes.append(Outcome(knob.name, "", None, f"not tried: {part} takes {share:.0%} of the time"))
            elif not self._try_knob(knob, answer):
                answer.stopped = f"{self._runs} runs are done"
                break
        return answer

    def _share(self, run: TuneRun, part: str) -> float:
        whole = run.seconds(self._passes)
        return (run.load if part == LOAD else whole - run.load) / whole if whole > 0 else 0.0

    def _try_knob(self, knob: Knob, answer: TuneAnswer) -> bool:
        """Try a knob's changes until one is no gain; return whether the limit of runs allows another trial."""
        for name, change in knob.changes:
            setting = change(answer.best.setting)
            if problem := refused(setting.conf):
                answer.outcomes.append(Outcome(knob.name, name, None, f"not tried: {problem}"))
                continue
            if answer.runs >= self._runs:
                return False
            run = self._measure(setting)
            judgement = self._judged(run, answer)
            answer.outcomes.append(Outcome(knob.name, name, run, judgement))
            if judgement != "kept":
                return True
            answer.best = run
        return True

    def _judged(self, run: TuneRun, answer: TuneAnswer) -> str:
        if run.failed:
            return f"failed: {run.failed}"
        if not run.is_valid:
            return f"its results: {run.verdict}"
        gain = answer.best.seconds(self._passes) - run.seconds(self._passes)
        if abs(gain) <= answer.noise:
            return "within noise"
        return "kept" if gain > 0 else "slower"


def refused(conf: Iterable[tuple[str, str]]) -> str:
    """Return the reason for which Spark or vispark refuses options; empty where neither does.

    Examples
    --------
    >>> refused([("spark.vispark.snapshotShare", "0.5"), ("spark.master", "local[4]")])
    ''
    >>> print(refused([("spark.vispark.snapshotShare", "1.5")])[:54])
    spark.vispark.snapshotShare = '1.5' is not understood:
    >>> refused([("spark.executor.cores", "2"), ("spark.task.cpus", "4")])
    'spark.task.cpus=4 is above spark.executor.cores=2'
    """
    values = dict(conf)
    try:
        Options.read([(name, value) for name, value in values.items() if name.startswith(PREFIX)])
    except OptionError as error:
        return str(error)
    for name in ("spark.executor.cores", "spark.task.cpus", "spark.default.parallelism",
                 "spark.sql.files.minPartitionNum"):
        if name in values and not (values[name].isdecimal() and int(values[name]) > 0):
            return f"{name}={values[name]} is no whole number above 0"
    cores, cpus = values.get("spark.executor.cores"), values.get("spark.task.cpus", "1")
    if cores is not None and int(cpus) > int(cores):
        return f"spark.task.cpus={cpus} is above spark.executor.cores={cores}"
    return ""


def knobs_of(facts: RunFacts, allowed: frozenset[str] = frozenset()) -> list[Knob]:
    """Return the knobs of a program, by the facts of a run.

    Parameters
    ----------
    facts : RunFacts
    allowed : frozenset of str
        What changes results or safety and is allowed all the same: "float32", "no-snapshots".

    Examples
    --------
    >>> facts = RunFacts("local[2]", 8, 2, (SourceCall(3, "parallelize", 64),), ((4, "array", True, False),))
    >>> [(knob.name, [name for name, _ in knob.changes] or knob.why_not) for knob in knobs_of(facts)]
    [('partitions', ['2', '4']), ('layout', ['local[8]']), ('blocks', ['one array a partition']), \
('float32', 'it changes results: --allow float32')]
    """
    return [knob for knob in (_partitions(facts), _layout(facts), _blocks(facts), _float32(facts, allowed),
                              _snapshots(facts, allowed)) if knob is not None]


def _partitions(facts: RunFacts) -> Knob | None:
    if not facts.sources:
        return None
    now = max(source.partitions for source in facts.sources)
    wanted = [count for count in (facts.parallelism, 2 * facts.parallelism) if count != now]

    def change(count: int) -> Callable[[Setting], Setting]:
        return lambda was: replace(was, partitions=count)
    return Knob("partitions", LOAD, tuple((str(count), change(count)) for count in wanted))


def _layout(facts: RunFacts) -> Knob | None:
    if facts.master.startswith("local"):
        master = f"local[{facts.cores}]"
        if facts.parallelism == facts.cores:
            return None
        return Knob("layout", LOAD, ((master, lambda was: was.with_conf(spark__master=master)),))
    if not facts.master.startswith("spark://") or "spark.executor.cores" in facts.conf or facts.parallelism < 2:
        return None
    # Without the option an executor takes all cores of its machine.
    half = str(facts.parallelism // 2)
    return Knob("layout", LOAD, ((f"executors of {half} cores",
                                  lambda was: was.with_conf(spark__executor__cores=half)),))


def _blocks(facts: RunFacts) -> Knob | None:
    kinds = {kind for _, kind, _, is_block in facts.cached if not is_block}
    if not kinds:
        return None
    if kinds != {"array"}:
        return Knob("blocks", LOAD, (), f"records are {', '.join(sorted(kinds))}, no arrays of one shape")
    return Knob("blocks", LOAD, (("one array a partition", lambda was: replace(was, blocks=True)),))


def _float32(facts: RunFacts, allowed: frozenset[str]) -> Knob | None:
    if not any(wide for _, _, wide, _ in facts.cached):
        return None
    if "float32" not in allowed:
        return Knob("float32", PASS, (), "it changes results: --allow float32")
    return Knob("float32", PASS, (("", lambda was: replace(was, float32=True)),))


def _snapshots(facts: RunFacts, allowed: frozenset[str]) -> Knob | None:
    if not any("iterate" in each for each in facts.operations) or \
            float(facts.conf.get(f"{PREFIX}snapshotShare", "0.02")) == 0:
        return None
    if "no-snapshots" not in allowed:
        return Knob("snapshotShare", PASS, (), "a lost worker costs all passes then: --allow no-snapshots")
    return Knob("snapshotShare", PASS, (("0", lambda was: was.with_conf(spark__vispark__snapshotShare="0")),))


def recommendations(answer: TuneAnswer) -> list[str]:
    """Return the changes of the program, a line each: only those by which the best run differs from it as it is.

    Examples
    --------
    >>> base = TuneRun(Setting(), 9.0, facts=RunFacts(sources=(SourceCall(3, "parallelize", 64),)))
    >>> recommendations(TuneAnswer(base, base, TuneRun(Setting(partitions=2), 5.0), 0.1))
    ['line 3: parallelize: 2 partitions, not 64']
    >>> recommendations(TuneAnswer(base, base, base, 0.1))
    []
    """
    setting, facts, lines = answer.best.setting, answer.base.facts, []
    if setting.partitions is not None:
        lines += [f"line {source.line}: {source.method}: {setting.partitions} partitions, not {source.partitions}"
                  for source in facts.sources if source.partitions != setting.partitions]
    for line, kind, is_wide, is_block in facts.cached:
        if setting.float32 and is_wide:
            lines.append(f"line {line}: float32 records before it is cached, as in "
                         ".map(lambda x: x.astype(np.float32))")
        if setting.blocks and kind == "array" and not is_block:
            lines.append(f"line {line}: arrays before it is cached, as in "
                         ".mapPartitions(lambda rows: vispark.Rows([np.stack(list(rows))]))")
    lines += [f"--conf {name}={value}" for name, value in setting.conf if facts.conf.get(name) != value]
    return lines
