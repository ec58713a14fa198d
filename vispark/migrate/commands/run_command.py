"""Command ``vispark run``: a program recorded, qualified, ported, validated and reported, by one command."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from gpu_worker.commands.deployment.output import emit, json_option
from vispark.errors import VisparkError
from vispark.migrate.capture.run_capture import RunCapture, is_capture, remove_capture
from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.clusters.on_cluster import running_on, settings_of
from vispark.migrate.commands import script_argument
from vispark.migrate.commands.port_command import surroundings
from vispark.migrate.commands.prediction_options import prediction_options
from vispark.migrate.commands.validate_command import run_seconds, statement_results, validate
from vispark.migrate.errors import NO, UNKNOWN, YES, HistoryError, MissingPackage, OutputError, ValidationError
from vispark.migrate.port.ported_program import PortedProgram, port
from vispark.migrate.predict.loop_prediction import PredictionTarget
from vispark.migrate.qualify.from_capture import qualify_capture
from vispark.migrate.record.shared_jvm import FirstRun, process_with_jvm, with_python
from vispark.migrate.report.job_page import page
from vispark.migrate.rules.advice import Qualification
from vispark.migrate.source.joined_modules import with_modules
from vispark.migrate.source.notebooks import SUFFIX, notebook_with, write_script
from vispark.migrate.source.program import SourceProgram
from vispark.migrate.store.history import NOT_PORTED, History
from vispark.migrate.store.predictions import keep_predictions, predicted_passes
from vispark.migrate.store.qualifications import keep_port, keep_qualification
from vispark.migrate.store.run_store import RunStore
from vispark.migrate.store.validations import keep_first_run, keep_validation
from vispark.migrate.validate.compare import DIFFERS, NOT_KNOWN
from vispark.migrate.validate.unrepeatable import unrepeatable
from vispark.migrate.written_files import check_file, write_file


@dataclass
class RunAnswer:
    """Answer of ``vispark run``, which grows from step to step; the texts are what the terminal shows.

    Attributes
    ----------
    log : Path, optional
        File of the texts.
    shown : callable
        Called with each text when its step ends.
    status : int
        Exit status.
    stopped : str
        Why it went no further; empty where it came to its end.
    seconds : dict
        Of each step.
    """

    log: Path | None = None
    shown: Callable[[str], Any] = lambda text: None
    status: int = UNKNOWN
    stopped: str = ""
    texts: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def say(self, step: str, text: str, since: float) -> None:
        """Add the text of a step that began at ``since``, by ``time.monotonic``."""
        self.seconds[step] = time.monotonic() - since
        self.add(f"== {step}: {self.seconds[step]:.1f} s\n{text}")

    def add(self, text: str) -> None:
        """Add a text, show it, and write it to the log, of which it says once that it cannot be written."""
        self.texts.append(text)
        self.shown(text)
        if self.log is not None:
            try:
                write_file(self.log, "\n".join(self.texts) + "\n")
            except OutputError as error:
                self.log = None
                self.add(str(error))



@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of the recording, the port and the report. [default: SCRIPT.vispark]")
@click.option("--device", default="auto", show_default=True, help="As spark.vispark.device, for the port.")
@click.option("--cluster", default="", help="A cluster that vispark cluster made, on which all runs are.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's or vispark's for all runs.")
@click.option("--noise/--no-noise", default=True, help="Run the program once more, with other partitions, to see its "
                                                       "own noise. [default: noise]")
@click.option("--probe/--no-probe", default=True, help="Run actions of loops on few records on the device, for "
                                                       "predictions, as long as that takes about two seconds. "
                                                       "[default: probe]")
@click.option("--timeout", type=click.FloatRange(1), default=None, help="Seconds for each run.")
@prediction_options
@json_option
@script_argument.script
@script_argument.arguments
@click.pass_context
def command(ctx: click.Context, script: Path, arguments: tuple[str, ...], out: Path | None, device: str, cluster: str,
            conf: tuple[str, ...], noise: bool, probe: bool, timeout: float | None, target: PredictionTarget,
            as_json: bool) -> None:
    """Record, qualify, predict, port and validate a program, and write the report; stop where that would need a guess.

    Options of vispark come before SCRIPT; everything behind it is the program's. It runs twice, once
    recorded and once ported, and once more with --noise. Exit status: 0 if the port computes the same;
    3 if nothing is ported, or it differs; 4 if that is not known, as of a program that fails: what it
    did until then is qualified and ported, and the port is not run.
    """
    if cluster and device != "auto":
        raise click.UsageError(f"--device is that of the cluster: vispark cluster show {cluster}")
    folder = out or Path(f"{script.stem}.vispark")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}; --out names another folder") from error
    check_file(folder / "run.txt")
    path = write_script(script, folder.resolve()) if script.suffix == SUFFIX else script
    with surroundings(script.resolve(), os.getcwd(), device) if path is not script else nullcontext():
        way = migrate_program(path, arguments, folder, device, noise, timeout, cluster, conf,
                              target if cluster or not probe else target.probing(device),
                              (lambda text: None) if as_json else click.echo)
    if path is not script and "port" in way.document:
        _write_notebook(way, script, Path(way.document["port"]))
    if as_json:
        emit(way.document | {"stopped": way.stopped, "seconds": way.seconds}, True, str)
    ctx.exit(way.status)


def _write_notebook(way: RunAnswer, notebook: Path, port_: Path) -> None:
    """Write the port of a notebook as a notebook beside the script that ran."""
    path = port_.with_suffix(SUFFIX)
    write_file(path, notebook_with(notebook, port_.read_text(encoding="utf-8")))
    way.document["notebook"] = str(path)
    way.add(f"as a notebook: {path}")


def migrate_program(script: Path, arguments: tuple[str, ...], folder: Path, device: str = "auto", noise: bool = True,
                    timeout: float | None = None, cluster: str = "", conf: Sequence[str] = (),
                    target: PredictionTarget | None = None,
                    show: Callable[[str], Any] = lambda text: None) -> RunAnswer:
    """Take a program from nothing to a validated port, as far as that needs no guess.

    Parameters
    ----------
    script, arguments : Path and tuple of str
        The program.
    folder : Path
        What is written goes there: ``capture``, the port ``NAME_gpu.py`` and ``report.html``.
    device : str
        ``spark.vispark.device`` of the port's run.
    noise : bool
        Whether the program is run once more with its partitions dealt anew.
    timeout : float, optional
        Seconds for each run.
    cluster : str
        On which the runs are; empty where the program and Spark's own settings say.
    conf : sequence of str
        Settings of Spark's and vispark's for all runs, ``NAME=VALUE``.
    target : PredictionTarget, optional
        Devices on which passes are predicted; the recorded run probes actions where it says so.
    shown : callable
        Called with the text of each step when it ends.

    Returns
    -------
    RunAnswer
        As far as it came: an error behind the recording, as of a port's run that fails or of a full disk, is why it
        stopped.

    Raises
    ------
    ClusterError
        If there is no such cluster, or its drivers are elsewhere.
    ValidationError
        If the program's run fails before any operation; the message has the last line that it wrote. If the program
        names a master of its own.
    """
    settings = settings_of(cluster, conf)
    request = _Asked(script, arguments, folder, device, noise, timeout, cluster, settings.master,
                     target)
    way = RunAnswer(folder.resolve() / "run.txt", show)
    with running_on(settings), surroundings(script.resolve(), os.getcwd(), device), tempfile.TemporaryDirectory(
            prefix="vispark-traces-") as traces:
        _timed_steps(way, request, Path(traces))
    return way


@dataclass(frozen=True)
class _Asked:
    """Arguments of :func:`migrate_program`, and the only master on which the program may run, if there is one."""

    script: Path
    arguments: tuple[str, ...]
    folder: Path
    device: str
    noise: bool
    timeout: float | None
    cluster: str
    master: str
    target: PredictionTarget | None

    def job_in(self, history: History) -> int:
        """Return the id of the script's job in a store."""
        return history.job(str(self.script.resolve()))


def _timed_steps(way: RunAnswer, request: _Asked, traces: Path) -> None:
    store, began = RunStore(History(), request.folder.resolve() / "history.db"), time.monotonic()
    with recorded(request.script, request.arguments, request.folder / "capture", traces, request.timeout,
                  request.master, request.target.probed if request.target else "") as (capture, first):
        way.say("record", "\n".join([f"{len(capture.calls)} operations: {request.folder / 'capture'}", *(
            [first.failed] if first.failed else [])]), began)
        way.document |= {"recording": str(request.folder / "capture"), "failed": first.failed}
        _from_recording(way, request, capture, first, traces, store)
    _report(way, request, store)
    if way.stopped:
        way.add(f"stopped: {way.stopped}")


def _from_recording(way: RunAnswer, request: _Asked, capture: RunCapture, first: FirstRun, traces: Path,
                    store: RunStore) -> None:
    """Qualify, port and validate a recorded program, as far as that needs no guess."""
    began = time.monotonic()
    program, answer = with_modules(SourceProgram.read(request.script)), qualify_capture(capture, request.target)
    source = program.parts[-1].source
    way.document |= {"qualification": answer.document()}
    way.say("qualify", answer.text(), began)
    store.keep(lambda history: keep_qualification(history, request.script, source, answer))
    began = time.monotonic()
    ported = port(program, capture)
    way.document |= {"ported": list(ported.loops), "refused": list(ported.refused), "diff": ported.diff}
    way.say("port", "\n".join([*([ported.diff.rstrip("\n")] if ported.loops else []), *ported.refused]), began)
    if first.failed:
        way.stopped = f"{first.failed}; what it did until then is recorded, and no port was run"
    elif not ported.loops:
        way.status, way.stopped = NO, "nothing is ported"
    elif once := unrepeatable(capture):
        way.stopped = f"{once}, which is not to happen again; vispark validate, with a copy"
    if not way.stopped:
        try:
            _validate(way, request, answer, ported, first, traces, store)
            return
        except VisparkError as error:
            way.stopped = str(error)
    if ported.loops or first.failed:
        store.keep(lambda history: keep_port(history, request.script, source, ported.diff))
    _keep_first_run(request, first, ported, traces, store)
    store.keep(lambda history: keep_predictions(history, request.job_in(history), answer))


def _keep_first_run(request: _Asked, first: FirstRun, ported: PortedProgram, traces: Path, store: RunStore) -> None:
    """Have the store have the program's run, with which no port's was compared, and why loops are not ported."""
    results = statement_results(first.results) if first.results.exists() else []
    seconds = run_seconds(first.results) if first.results.exists() else None
    conf = {NOT_PORTED: list(ported.refused)} if ported.refused else {}
    store.keep(lambda history: keep_first_run(
        history, request.job_in(history), request.script, results, traces, state="failed" if first.failed else "done",
        seconds=seconds, cluster=request.cluster, conf=conf))


def _validate(way: RunAnswer, request: _Asked, answer: Qualification, ported: PortedProgram, first: FirstRun,
              traces: Path, store: RunStore) -> None:
    """Write the port, run it, and compare it with the program's first run."""
    began, changed = time.monotonic(), request.folder / f"{request.script.stem}_gpu.py"
    ported.write(changed)
    validation = validate(request.script, changed, request.arguments, noise=request.noise, timeout=request.timeout,
                          traces=traces, first=first)
    way.status = {DIFFERS: NO, NOT_KNOWN: UNKNOWN}.get(validation.verdict, YES)
    predicted = predicted_passes(answer, request.target, validation) if request.target is not None else []
    way.document |= {"port": str(changed), "verdict": validation.verdict, "validation": validation.as_json()}
    times = "" if validation.cpu_seconds is None or validation.gpu_seconds is None else (
        f"\nthe program: {validation.cpu_seconds:.1f} s as it was, {validation.gpu_seconds:.1f} s ported")
    way.document["predicted"] = [asdict(each) for each in predicted]
    what = "the port, which computes something else" if validation.verdict == DIFFERS else "port"
    way.say("validate", "\n".join([validation.as_text() + times, *map(str, predicted), f"{what}: {changed}"]), began)
    store.keep(lambda history: keep_validation(history, request.script, changed, validation, answer, traces,
                                               request.cluster))
    store.keep(lambda history: keep_predictions(history, request.job_in(history), answer, validation))


def _report(way: RunAnswer, request: _Asked, store: RunStore) -> None:
    """Write the report's page; without Jinja2 the store has it all the same."""
    began, path, job = time.monotonic(), request.folder / "report.html", store.keep(request.job_in)
    texts = [store.words() or f"vispark report job {job}"]
    if store.history is not None and job is not None:
        try:
            write_file(path, page(store.history.whole_job(job)))
            way.document["report"] = str(path)
            texts = [f"{path}, or {texts[0]}"] if not store.failed else [str(path), *texts]
        except (MissingPackage, OutputError, HistoryError) as error:
            texts.append(error.message)
    way.document |= {"job": job, "not_kept": store.failed}
    way.say("report", "\n".join(texts), began)


@contextmanager
def recorded(script: Path, arguments: tuple[str, ...], folder: Path, traces: Path, timeout: float | None = None,
             master: str = "", probed: str = "") -> Iterator[tuple[RunCapture, FirstRun]]:
    """Record a run of a script in a process of its own, whose JVM stays for the block.

    What it prints goes to ``record.log`` beside the recording.

    Parameters
    ----------
    script, arguments : Path and tuple of str
        The program.
    folder, traces : Path
        Where the recording goes, and, below ``cpu``, what the run writes of itself.
    timeout : float, optional
        Seconds for the run.
    master : str
        The only one on which it may run; any where it is empty.
    probed : str
        ``spark.vispark.device`` on which its actions are run on few records; none where it is empty.

    Raises
    ------
    ValidationError
        If the script does not end in time, or fails before it did anything that is recorded.
    """
    log, trace, results = folder.parent / "record.log", RunFolder(traces / "cpu"), traces / "cpu.results"
    command_line = ["vispark.migrate.record.first_run",
                    *map(str, (folder, results, trace.path, master, probed, script)), *arguments]
    remove_capture(folder)
    with ExitStack() as stack:
        try:
            jvm, failed = stack.enter_context(process_with_jvm(
                script, command_line, with_python(trace.environment()), log, timeout)), ""
        except ValidationError as error:
            jvm, failed = None, error.message
            if not is_capture(folder) or not RunCapture.read(folder).calls:
                raise
        yield RunCapture.read(folder), FirstRun(results, jvm, failed)
