"""First run of a program by ``vispark run``: the recording, and the results that its port's are compared with.

``python -m vispark.migrate.record.first_run CAPTURE RESULTS TRACE MASTER PROBE SCRIPT ARGS...``: a process of its own,
started by :func:`.shared_jvm.process_with_jvm`. MASTER is empty, or the only one on which the program may run; PROBE is
empty, or the device on which its actions are run on few records.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vispark.migrate.capture.run_traces import RunFolder
from vispark.migrate.capture.stored_results import opened_results
from vispark.migrate.record.recorder import Recorder
from vispark.migrate.record.shared_jvm import offer_jvm

#: Seconds after which a probe, beside its first measurement, tries no more records.
PROBE_SECONDS = 2.0


def main(capture: str, results: str, trace: str, master: str, probe: str, script: str, *args: str) -> None:
    """Run a script, write what it did, and keep its JVM."""
    with opened_results(Path(results)) as kept:
        recorder = Recorder(Path(script), list(args), master=master, results=kept, probed=probe,
                            probe_seconds=PROBE_SECONDS)
        try:
            recorder.run()
        finally:
            recorder.capture.write(Path(capture))
            RunFolder(Path(trace)).note_end(recorder.ended)
    sys.stdout.flush()
    offer_jvm()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # What the program left running is not waited for.
    sys.stdout.flush()
    os._exit(0)
