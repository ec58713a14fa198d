"""Store of jobs, their runs and verdicts: one SQLite file of its user's, which several processes may write.

No row a pass or a task: these are in files of traces and results.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

from vispark.migrate.errors import HistoryError, JobMissing

#: Statements that lead from each version of the store to the next; what is there is never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE job (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, script TEXT NOT NULL UNIQUE, digest TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL);
    CREATE TABLE run (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
        kind TEXT NOT NULL CHECK (kind IN ('cpu', 'gpu', 'tune')),
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed')),
        application TEXT UNIQUE, cluster TEXT NOT NULL DEFAULT '', conf TEXT NOT NULL DEFAULT '{}',
        started REAL NOT NULL, seconds REAL, cost REAL, log TEXT NOT NULL DEFAULT '');
    CREATE TABLE loop (
        id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE, file TEXT NOT NULL,
        line INTEGER NOT NULL, passes INTEGER NOT NULL, first REAL, quartile1 REAL, median REAL, quartile3 REAL,
        jobs INTEGER, tasks INTEGER, bytes INTEGER);
    CREATE TABLE advice (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES job ON DELETE CASCADE, file TEXT NOT NULL,
        line INTEGER NOT NULL, column_ INTEGER NOT NULL DEFAULT 0, call TEXT NOT NULL DEFAULT '', verdict TEXT NOT NULL,
        why TEXT NOT NULL DEFAULT '', low REAL, high REAL);
    CREATE TABLE validation (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
        cpu INTEGER REFERENCES run ON DELETE SET NULL, gpu INTEGER REFERENCES run ON DELETE SET NULL,
        at REAL NOT NULL, verdict TEXT NOT NULL, document TEXT NOT NULL);
    CREATE INDEX run_of_job ON run (job, started);
    CREATE INDEX loop_of_run ON loop (run);
    CREATE INDEX advice_of_job ON advice (job, line);
    CREATE INDEX validation_of_job ON validation (job, at);
    """,
    """
    ALTER TABLE job ADD COLUMN source TEXT NOT NULL DEFAULT '';
    ALTER TABLE job ADD COLUMN diff TEXT NOT NULL DEFAULT '';
    CREATE TABLE cluster (
        name TEXT PRIMARY KEY, platform TEXT NOT NULL, tag TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
        shape TEXT NOT NULL, created REAL NOT NULL);
    """,
    """
    CREATE TABLE prediction (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL REFERENCES job ON DELETE CASCADE, line INTEGER NOT NULL,
        device TEXT NOT NULL, low REAL NOT NULL, high REAL NOT NULL, at REAL NOT NULL);
    CREATE INDEX prediction_of_job ON prediction (job, line);
    """,
)
#: Setting of a run that says, in a list, why loops of its program are not ported.
NOT_PORTED = "not ported"
#: Seconds until a writer that waits for another gives up.
BUSY_SECONDS = 10.0
_COLUMNS = {"run": frozenset(["kind", "state", "application", "cluster", "conf", "started", "seconds", "cost", "log"]),
            "loop": frozenset(["file", "line", "passes", "first", "quartile1", "median", "quartile3", "jobs", "tasks",
                               "bytes"]),
            "advice": frozenset(["file", "line", "column_", "call", "verdict", "why", "low", "high"]),
            "job": frozenset(["name", "digest", "source", "diff"])}


def default_path() -> Path:
    """Return the store's place: ``$VISPARK_HISTORY``, or a file in the user's data folder."""
    named = os.environ.get("VISPARK_HISTORY")
    return Path(named) if named else Path(platformdirs.user_data_dir("vispark", appauthor=False)) / "history.db"


class History:
    """Store of jobs and their runs; each method is a connection and a transaction of its own, in any thread.

    Parameters
    ----------
    path : Path, optional
        The file; it is made, with mode 0600, where it is missing.

    Raises
    ------
    HistoryError
        If the file is no store, if a newer vispark wrote it, if the disk is full, or if another writer holds it for
        longer than 10 seconds.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     history = History(Path(folder) / "history.db")
    ...     job = history.job("kmeans.py")
    ...     run = history.add_run(job, kind="cpu", state="done", seconds=12.5)
    ...     [(each["script"], each["runs"], each["cpu_seconds"]) for each in history.jobs()]
    [('kmeans.py', 1, 12.5)]
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise HistoryError(f"the history {self.path} cannot be written: {error.strerror}") from error
        with self._connected() as connection:
            self._migrate(connection)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one transaction."""
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise HistoryError(f"the history {self.path} cannot be opened: {error}") from error
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            yield connection
        except sqlite3.DatabaseError as error:
            raise HistoryError(f"the history {self.path}: {error}") from error
        finally:
            connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that alone writes, until the block ends."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.commit()     # an error before closes the connection, which takes back what it wrote

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == len(MIGRATIONS):
            return
        with suppress(sqlite3.OperationalError):     # where another process makes the store, that one sets the mode
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have migrated it since.
        for version in range(self._version(connection), len(MIGRATIONS)):
            for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.commit()

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            raise HistoryError(f"the history {self.path} is of version {version}, which a newer vispark wrote; this "
                               f"one reads up to {len(MIGRATIONS)}: install that one, or set VISPARK_HISTORY to "
                               "another file")
        return version

    # Writing ----------------------------------------------------------------------------------------------------------

    def job(self, script: str, **columns: Any) -> int:
        """Return the id of a script's job, which is made where it is missing.

        Parameters
        ----------
        script : str
            Its path, which is what tells jobs apart.
        **columns
            ``name``, ``digest``, ``source`` and ``diff``: those that are given are changed.
        """
        _check("job", columns)
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO job (name, script, created) VALUES (?, ?, ?)",
                               (columns.get("name", Path(script).name), script, time.time()))
            job = int(connection.execute("SELECT id FROM job WHERE script = ?", (script,)).fetchone()[0])
            for name, value in columns.items():
                connection.execute(f"UPDATE job SET {name} = ? WHERE id = ?", (value, job))
            return job

    def add_run(self, job: int, **columns: Any) -> int:
        """Add a run of a job, and return its id.

        Parameters
        ----------
        job : int
            Its id.
        **columns
            ``kind`` ("cpu", "gpu", "tune"), ``state`` ("running", "done", "failed"), ``application``, ``cluster``,
            ``conf`` (a dict), ``started`` and ``seconds`` in s, ``cost``, ``log``.
        """
        columns = {"kind": "cpu", "state": "running", "started": time.time(), **columns}
        columns["conf"] = json.dumps(columns.get("conf", {}))
        return self._insert("run", "job", job, columns)

    def change_run(self, run: int, **columns: Any) -> None:
        """Change columns of a run, as its state and seconds when it has ended."""
        _check("run", columns)
        with self._writing() as connection:
            for name, value in columns.items():
                connection.execute(f"UPDATE run SET {name} = ? WHERE id = ?", (value, run))

    def set_trace(self, run: int, log: str, document: dict[str, Any], application: str = "") -> None:
        """Have a run have a trace and more in its ``conf``; and an application id, unless another run has that."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE run SET log = ?, conf = json_patch(conf, ?), application = (SELECT ? WHERE ? <> '' AND NOT "
                "EXISTS (SELECT 1 FROM run AS other WHERE other.application = ? AND other.id <> run.id)) WHERE id = ?",
                (log, json.dumps(document), application, application, application, run))

    def add_loop(self, run: int, **columns: Any) -> int:
        """Add a loop of a run: ``file``, ``line``, ``passes``, seconds of passes, jobs, tasks and bytes of one."""
        return self._insert("loop", "run", run, columns)

    def set_advice(self, job: int, advice: list[dict[str, Any]]) -> None:
        """Have a job's advice be this: ``file``, ``line``, ``column_``, ``call``, ``verdict``, ``why``, seconds."""
        for row in advice:
            _check("advice", row)
        with self._writing() as connection:
            connection.execute("DELETE FROM advice WHERE job = ?", (job,))
            for row in advice:
                connection.execute(*_insertion("advice", {"job": job, **row}))

    def add_validation(self, job: int, document: dict[str, Any], cpu: int | None = None, gpu: int | None = None) -> int:
        """Add what ``vispark validate`` found, as JSON has it, of two runs."""
        with self._writing() as connection:
            return int(connection.execute(*_insertion("validation", {
                "job": job, "cpu": cpu, "gpu": gpu, "at": time.time(), "verdict": document["verdict"],
                "document": json.dumps(document)})).lastrowid or 0)

    def _insert(self, table: str, owner: str, id_: int, columns: dict[str, Any]) -> int:
        _check(table, columns)
        with self._writing() as connection:
            return int(connection.execute(*_insertion(table, {owner: id_, **columns})).lastrowid or 0)

    def prune(self, days: float | None = None, runs: int | None = None,
              is_gone: Callable[[str], None] = lambda log: None) -> int:
        """Delete old runs, and return their number; jobs stay.

        Parameters
        ----------
        days : float, optional
            Runs that began longer ago are deleted.
        runs : int, optional
            The most that are kept of each job, the newest.
        is_gone : callable
            Called with the log of each run that was deleted.
        """
        logs: list[str] = []
        with self._writing() as connection:
            old = set()
            if days is not None:
                old |= {row[0] for row in connection.execute("SELECT id FROM run WHERE started < ?",
                                                             (time.time() - days * 86400,))}
            if runs is not None:
                old |= {row[0] for row in connection.execute(
                    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY job ORDER BY started DESC, id DESC) AS "
                    "place FROM run) WHERE place > ?", (runs,))}
            for run in old:
                logs += [row[0] for row in connection.execute("DELETE FROM run WHERE id = ? RETURNING log", (run,))]
        for log in filter(None, logs):
            is_gone(log)
        return len(old)

    # Reading ----------------------------------------------------------------------------------------------------------

    def jobs(self, limit: int = 100, offset: int = 0, search: str = "") -> list[dict[str, Any]]:
        """Return a page of jobs, the newest first, each with its runs, last verdict and times.

        The times are those of the runs that were compared last; of a job that was never validated the least ones.

        ``verdict`` is None of a job that was never validated; only of a job whose verdict is not "differs" or
        "not known" is its speed-up one.
        """
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(
                """
                WITH done AS (SELECT job, kind, min(seconds) AS seconds FROM run
                              WHERE state = 'done' GROUP BY job, kind),
                last AS (SELECT job, cpu, gpu, max(at) FROM validation GROUP BY job),
                compared AS (SELECT last.job, run.kind, run.seconds FROM last JOIN run ON run.id IN (cpu, gpu))
                SELECT each.id, each.name, each.script, each.created,
                    (SELECT count(*) FROM run WHERE run.job = each.id) AS runs,
                    coalesce((SELECT seconds FROM compared WHERE job = each.id AND kind = 'cpu'),
                             (SELECT seconds FROM done WHERE job = each.id AND kind = 'cpu')) AS cpu_seconds,
                    coalesce((SELECT seconds FROM compared WHERE job = each.id AND kind = 'gpu'),
                             (SELECT seconds FROM done WHERE job = each.id AND kind = 'gpu')) AS gpu_seconds,
                    (SELECT verdict FROM validation WHERE validation.job = each.id ORDER BY at DESC, id DESC LIMIT 1)
                        AS verdict
                FROM job AS each WHERE instr(lower(name), lower(?)) ORDER BY created DESC, id DESC LIMIT ? OFFSET ?
                """, (search, limit, offset))]

    def count(self) -> int:
        """Return the number of jobs."""
        with self._connected() as connection:
            return int(connection.execute("SELECT count(*) FROM job").fetchone()[0])

    def whole_job(self, job: int) -> dict[str, Any]:
        """Return a job with its runs, their loops, its advice and validations.

        Raises
        ------
        HistoryError
            If there is no such job.
        """
        with self._connected() as connection:
            connection.execute("BEGIN")
            job_row = connection.execute("SELECT * FROM job WHERE id = ?", (job,)).fetchone()
            if job_row is None:
                raise JobMissing(f"the history has no job {job}; vispark report list has those that it has")

            def rows(statement: str) -> list[dict[str, Any]]:
                return [dict(row) for row in connection.execute(statement, (job,))]

            runs = rows("SELECT * FROM run WHERE job = ? ORDER BY started, id")
            loops = rows("SELECT loop.* FROM loop JOIN run ON run.id = loop.run WHERE run.job = ? ORDER BY loop.id")
            advice = rows("SELECT * FROM advice WHERE job = ? ORDER BY file, line, column_, id")
            validations = rows("SELECT * FROM validation WHERE job = ? ORDER BY at, id")
            predictions = rows("SELECT * FROM prediction WHERE job = ? ORDER BY line, device")
        for run in runs:
            run["conf"] = json.loads(run["conf"])
            run["loops"] = [loop for loop in loops if loop["run"] == run["id"]]
        for validation in validations:
            validation["document"] = json.loads(validation["document"])
        return {**dict(job_row), "runs": runs, "advice": advice, "validations": validations, "predictions": predictions}


    def log_of(self, run: int) -> str | None:
        """Return the path of a run's trace; None if it has none.

        Raises
        ------
        HistoryError
            If there is no such run.
        """
        with self._connected() as connection:
            row = connection.execute("SELECT log FROM run WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise JobMissing(f"the history has no run {run}")
        return row[0] or None

    def runs_on_clusters(self, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the runs on clusters, the newest first: id, job, its name, and the cluster's name."""
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(
                "SELECT run.id, run.job, job.name, run.cluster FROM run JOIN job ON job.id = run.job WHERE run.cluster "
                "<> '' ORDER BY run.started DESC, run.id DESC LIMIT ?", (limit,))]

    def add_prediction(self, job: int, line: int, device: str, low: float, high: float) -> None:
        """Have the prediction of a pass of the loop at a line, on a device, be from ``low`` to ``high`` seconds."""
        self.whole_job(job)
        with self._writing() as connection:
            connection.execute("DELETE FROM prediction WHERE job = ? AND line = ? AND device = ?", (job, line, device))
            connection.execute(*_insertion("prediction", {"job": job, "line": line, "device": device, "low": low,
                                                          "high": high, "at": time.time()}))


def _check(table: str, columns: dict[str, Any]) -> None:
    if unknown := columns.keys() - _COLUMNS[table]:
        raise TypeError(f"{table} has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(_COLUMNS[table]))}")


def _insertion(table: str, columns: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", tuple(columns.values())
