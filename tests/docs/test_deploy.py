"""The files of docs/deploy: their programs can read them, and the commands, options and metrics in them exist."""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Command
from prometheus_client import CollectorRegistry

import beamlike as bl
from beamlike.cli.main import main
from beamlike.observe import PrometheusMetrics
from beamlike.spark.session import archive
from beamlike.spark.versions import javas
from tests.support.places import ROOT

FOLDER = ROOT / "docs" / "deploy"
PAGE = (ROOT / "docs" / "deploy.md").read_text()
MANIFESTS = ("plays.yaml", "plays-on-spark.yaml")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def metrics(folder: Path) -> set[str]:
    """Returns the names that are scraped after a run with a stage, a dead letter, a dropped row and a sink."""
    registry, seen = CollectorRegistry(), set[str]()
    rows = [{"n": 1, "at": 900}, {"n": 1, "at": 1}, {"n": 0, "at": 901}, {"n": 2, "at": None}]
    source = bl.Rows(rows, rows_per_batch=1)
    mark = bl.BoundedOutOfOrderness("0s")
    read = bl.Pipeline("plays").read("rows", source, timestamp="at", timestamp_unit="s", watermark=mark)
    minutes = read.map(lambda row: {"n": 1 // row["n"], "at": 0}).window_into(bl.FixedWindows("1m"))
    minutes.aggregate(n=bl.count()).write("out", bl.Memory())
    read.drop("at").filter(bl.col("n") > 0).write("rows out", bl.Memory())
    with contextlib.chdir(folder):  # dead letters are written there
        read.map(lambda row: seen.update(names(registry)) or row).write("looks", bl.Memory())
        read.pipeline.run(bl.LocalRunner(on_batch=PrometheusMetrics("plays", registry)))
    return seen | names(registry)


def names(registry: CollectorRegistry) -> set[str]:
    """Returns the names that are scraped now."""
    return {sample.name for metric in registry.collect() for sample in metric.samples}


def _commands() -> Iterator[list[str]]:
    unit = _unit()
    yield shlex.split(unit["Service"]["ExecStart"])[1:]
    for name in MANIFESTS:
        container = _container(name)
        yield container["args"][1:]
        for probe in PROBES:
            yield container[probe]["exec"]["command"][1:]
    yield json.loads(dict(_dockerfile())["CMD"])[1:]
    for line in re.findall(r"^\$ beamlike (.*)$", PAGE, re.M):
        yield shlex.split(line)


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "plays.service")
    return unit


def _objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def _of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = (one for one in _objects(name) if one["kind"] == kind)
    return found


def _container(name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = _of_kind(name, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    return found


def test_commands_and_their_options_are_those_of_the_command_line() -> None:
    found = list(_commands())
    assert len(found) == 2 + 4 * len(MANIFESTS) + 1
    for name, *arguments in found:
        command = main.commands[name]  # type: ignore[attr-defined]
        assert isinstance(command, Command)
        options = {option for parameter in command.params for option in parameter.opts}
        given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
        assert given <= options, name


def _dockerfile() -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile, each in one line."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines())]


def test_the_image_has_what_its_lines_say_of_each_other() -> None:
    lines = _dockerfile()
    steps = dict(lines)
    assert {*steps} <= {"FROM", "RUN", "ENV", "COPY", "WORKDIR", "USER", "ENTRYPOINT", "CMD"}
    image = re.fullmatch(r"python:(3\.\d+)-slim-bookworm", steps["FROM"])  # which has this Java
    assert image
    said = "\n".join(rest for _, rest in lines)
    assert f"/python{image[1]}/site-packages/pyspark" in said
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {image[1]}" in project["classifiers"]
    (extras,) = re.findall(r"beamlike\[([\w,]+)\]", said)
    assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    assert {"plays.py", "run_plays.py"} <= {*steps["COPY"].split()}
    assert f"openjdk-{javas()[0]}-jre-headless" in said
    packages = re.search(r"apt-get install (.*)", said)
    assert packages
    assert {"procps", "tini"} <= {*packages[1].split()}
    (entry,) = json.loads(steps["ENTRYPOINT"])
    assert Path(entry).name in steps["COPY"].split()
    assert Path(entry).parent == Path(steps["WORKDIR"])


def test_packages_are_made_with_what_beamlike_is_made_of() -> None:
    script = (FOLDER / "packages.sh").read_text()
    for name in ("packages.sh", "entrypoint.sh"):
        assert subprocess.run(["sh", "-n", FOLDER / name], check=False).returncode == 0
    assert f" {' '.join(archive.OWN_PACKAGES)} beamlike-*.dist-info" in script


def test_supervisors_give_a_batch_its_time_and_signal_python_alone() -> None:
    assert _unit()["Service"]["KillMode"] == "mixed"


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_agree_with_themselves(name: str) -> None:
    spec = _of_kind(name, "StatefulSet")["spec"]
    assert spec["replicas"] == 1
    pod, container = spec["template"]["spec"], _container(name)
    assert "command" not in container, "it would replace the entry point of the image, which has tini"
    assert pod["securityContext"]["fsGroup"] == 1000
    volumes = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
    assert [mount["name"] for mount in container["volumeMounts"]] == volumes
    assert [port["containerPort"] for port in container["ports"] if port["name"] == "metrics"] == [9000]
    service = _of_kind(name, "Service")
    assert spec["serviceName"] == service["metadata"]["name"]
    labels = spec["template"]["metadata"]["labels"]
    budget = _of_kind(name, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert spec["selector"]["matchLabels"] == service["spec"]["selector"] == budget == labels
    assert _options(container["livenessProbe"]) == ["--max-age"]
    assert _options(container["readinessProbe"]) == ["--max-lag"]
    assert _options(container["startupProbe"]) == []


def _options(probe: dict[str, Any]) -> list[str]:
    return [one for one in probe["exec"]["command"] if one.startswith("--")]


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_manifests_have_the_schemas_of_kubernetes(name: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for one in _objects(name):
        validate(one, version, strict=True)


def test_alerts_are_quiet_in_a_night_without_input_and_fire_when_something_is_wrong() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; on Debian it is in the package prometheus")
    rules, cases = FOLDER / "alerts.yaml", Path(__file__).with_name("alerts_test.yaml")
    for command in (["check", "rules", str(rules)], ["test", "rules", str(cases)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = {
        case["alertname"]
        for one in yaml.safe_load(cases.read_text())["tests"]
        for case in one["alert_rule_test"]
    }
    assert tested == {
        rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]
    }


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_alerts_and_dashboard_ask_for_metrics_that_there_are(file: str, tmp_path: Path) -> None:
    text = (FOLDER / file).read_text()
    read = json.loads(text) if file.endswith("json") else yaml.safe_load(text)
    assert read
    asked = set(re.findall(r"beamlike_\w+", text))
    assert len(asked) > 6
    assert asked <= metrics(tmp_path)
    if file == "alerts.yaml":
        rules = read["groups"][0]["rules"]
        assert all(rule["expr"] and rule["annotations"]["summary"] for rule in rules)


def test_the_page_names_every_file() -> None:
    assert {*re.findall(r"\(deploy/([\w.-]+)\)", PAGE)} == {file.name for file in FOLDER.iterdir()}
