"""Order in which processes of pytest-xdist take files of tests, also where one of the processes dies."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):
    """Scheduler by files that ends whatever becomes of the processes.

    The one of pytest-xdist 3.8 hands the files that a dead process had completed to others, as files without a test:
    who has none reports none, is given nothing more, and the run waits for ever.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process away; return the test that it died of, which is not run again, or None where it had ended."""
        files = self.assigned_work.pop(node)
        left = [(file, test) for file, tests in files.items() for test, done in tests.items() if not done]
        if not left:
            return None
        (file, culprit), *others = left
        files[file][culprit] = True
        for file, _ in reversed(others):
            self.workqueue[file] = files[file]
            self.workqueue.move_to_end(file, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return culprit

    def _reschedule(self, node: WorkerController) -> None:
        """Hand files to a process until it has two tests, without which it runs none, or none are left."""
        while (node in self.registered_collections and not node.shutting_down
               and self._pending_of(self.assigned_work[node]) <= 2):
            super()._reschedule(node)
