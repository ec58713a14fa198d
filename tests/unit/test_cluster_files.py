"""Requests to platforms that are not here, as files: command lines for YARN, objects for Kubernetes.

``VISPARK_UPDATE_GOLDEN=1`` writes them anew.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_worker.commands.deployment.errors import ClusterError
from gpu_worker.commands.deployment.platforms import checked, platform_of
from gpu_worker.commands.deployment.records import Record, RecordStore
from vispark.migrate.cli import main
from vispark.migrate.clusters import kubernetes, spark_submit, yarn
from vispark.migrate.clusters.kubernetes_api import KubernetesRefusal
from vispark.migrate.errors import NO, UNKNOWN, YES

validate = pytest.importorskip("kubernetes_validate")

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "clusters"


def _record(platform: str, **parameters: str) -> Record:
    return Record("night", "0123456789abcdef" * 2, "", checked(platform_of(platform).parameters, parameters),
                  "recorded", "2026-01-01T00:00:00+00:00", platform,
                  {"place": "/state/night", "api": "https://10.0.0.1:6443"})


def _is_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("VISPARK_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize(("name", "parameters"), [
    ("yarn.txt", {}), ("yarn_archive.txt", {"archive": "hdfs:///environment.tar.gz", "gpus": "2", "cores": "2"}),
    ("yarn_without_gpus.txt", {"gpus": "0", "device": "host", "queue": "night"})])
def test_command_lines_for_yarn(name: str, parameters: dict[str, str]):
    line = spark_submit.command_line(yarn._settings(_record("yarn", **parameters)), [("name", "job")], "job.py", ["1"])
    _is_golden(name, "\n".join(["spark-submit", *line[1:]]) + "\n")


def test_a_cluster_of_yarn_needs_the_settings_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ["cluster", "create", "night", "--platform", "yarn", "-p", f"conf={tmp_path}"]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == NO and "no yarn-site.xml" in refused.output
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    assert CliRunner().invoke(main, words).exit_code == YES
    shown = json.loads(CliRunner().invoke(main, ["cluster", "show", "night", "--json"]).output)
    place = Path(shown["details"]["place"])
    assert shown["state"] == "ready" and {each.name for each in place.iterdir()} == {"submit.sh", "gpus.sh"}
    planned = CliRunner().invoke(main, ["submit", "--cluster", "night", "--dry-run", "--json", "job.py"])
    assert json.loads(planned.output)["environment"] == ["HADOOP_CONF_DIR"]
    (tmp_path / "yarn-site.xml").unlink()
    assert CliRunner().invoke(main, ["submit", "--cluster", "night", "--dry-run", "job.py"]).exit_code == UNKNOWN
    assert CliRunner().invoke(main, ["cluster", "delete", "night"]).exit_code == YES and not place.exists()


def test_objects_for_kubernetes_are_valid_and_as_they_were():
    objects = kubernetes.objects(_record("kubernetes", gpus="2", executors="3"))
    for manifest in objects:
        validate.validate(manifest, validate.latest_version(), strict=True)
    _is_golden("kubernetes.json", json.dumps(objects, indent=2) + "\n")


def test_the_command_line_for_kubernetes():
    settings = kubernetes.PLATFORM.submission(_record("kubernetes", image="registry.example.com/vispark:0.11"))
    _is_golden("kubernetes.txt", "\n".join(["spark-submit", *spark_submit.command_line(settings, [], "job.py")[1:]])
               + "\n")


def test_a_name_that_is_too_long_for_a_namespace_is_named():
    ended = CliRunner().invoke(main, ["cluster", "create", "n" * 60, "--platform", "kubernetes", "--dry-run"])
    assert ended.exit_code == 2 and "55 at most" in ended.output


class _StubApi:
    """API with a namespace, whose answers to some requests are others.

    ``instead`` has, by method and last part of the path, an answer or an error.
    """

    address = "http://api"

    def __init__(self, instead: dict[tuple[str, str], object]):
        self.instead, self.namespaces = instead, {}

    def call(self, method: str, path: str, body: dict | None = None) -> object:
        answer = self.instead.get((method, path.rpartition("/")[2]), self)
        if isinstance(answer, Exception):
            raise answer
        if answer is not self:
            return answer
        if path == "/api/v1/namespaces":
            self.namespaces[body["metadata"]["name"]] = body
        elif method == "DELETE":
            self.namespaces.pop(path.rpartition("/")[2])
        return self.namespaces.get(path.rpartition("/")[2])


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _StubApi:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stub = _StubApi({})
    monkeypatch.setattr(kubernetes, "connected", lambda *_: nullcontext(stub))
    return stub


_NAMESPACE = "vispark-night"
_REFUSED = KubernetesRefusal("not you", 403)
_SILENT = ClusterError("no answer in 20 s")


@pytest.mark.parametrize(("instead", "status", "is_there", "is_recorded"), [
    ({("POST", "serviceaccounts"): _REFUSED}, NO, False, False),
    ({("POST", "serviceaccounts"): _REFUSED, ("DELETE", _NAMESPACE): _REFUSED}, UNKNOWN, True, True),
    ({("POST", "serviceaccounts"): _REFUSED, ("DELETE", _NAMESPACE): _SILENT}, UNKNOWN, True, True),
    ({("POST", "resourcequotas"): _SILENT}, UNKNOWN, True, True),
    ({("POST", "namespaces"): _REFUSED}, NO, False, False),
    ({("GET", _NAMESPACE): {}}, NO, False, False),
])
def test_what_an_api_may_have_created_stays_recorded(api: _StubApi, instead: dict, status: int, is_there: bool,
                                                     is_recorded: bool):
    api.instead = instead
    words = ["cluster", "create", "night", "--platform", "kubernetes"]
    assert CliRunner().invoke(main, words).exit_code == status
    assert ((_NAMESPACE in api.namespaces), bool(RecordStore().all())) == (is_there, is_recorded)
    if is_recorded:
        # A refusal of the next try does not say that the first one made nothing.
        api.instead = {("GET", _NAMESPACE): _REFUSED}
        again = CliRunner().invoke(main, words)
        assert again.exit_code == NO and "earlier try" in again.output and RecordStore().all()
        api.instead = {}
        assert CliRunner().invoke(main, ["cluster", "delete", "night"]).exit_code == YES
    assert api.namespaces == {} and RecordStore().all() == []
