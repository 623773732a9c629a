"""A step whose package is not installed is an error that names the step, the package, and the command to install it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from tests.support.places import ROOT


class Without:
    """An import finder that hides a package."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hides an installed package."""

    def hide(package: str) -> None:
        for name in [one for one in sys.modules if one.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Without(package), *sys.meta_path])

    return hide


def read(source: Any) -> None:
    """Declares a source and runs it."""
    rows = bl.Pipeline("p").read("rows", source)
    rows.write("out", bl.Memory()).pipeline.run()


def write(sink: Any) -> None:
    """Declares a sink and runs it."""
    bl.Pipeline("p").read("a", bl.Rows([{"x": 1}])).write("rows", sink).pipeline.run()


CASES: dict[str, tuple[str, str, Callable[[], None]]] = {
    "Delta, read": (
        "deltalake",
        "bl.Delta needs deltalake: pip install 'beamlike[delta]'",
        lambda: read(bl.Delta("t")),
    ),
    "Delta, written": (
        "deltalake",
        "bl.Delta needs deltalake: pip install 'beamlike[delta]'",
        lambda: write(bl.Delta("t")),
    ),
    "Iceberg": (
        "pyiceberg",
        "bl.Iceberg needs PyIceberg: pip install 'beamlike[iceberg]'",
        lambda: write(bl.Iceberg("a.b", catalog={"type": "sql", "uri": "sqlite:///c.db", "warehouse": "w"})),
    ),
    "Kafka": (
        "confluent_kafka",
        "bl.Kafka needs confluent-kafka: pip install 'beamlike[kafka]'",
        lambda: read(bl.Kafka("localhost:9", "topic", value=bl.json({"x": int}))),
    ),
    "KafkaSink": (
        "confluent_kafka",
        "bl.Kafka needs confluent-kafka: pip install 'beamlike[kafka]'",
        lambda: write(bl.KafkaSink("localhost:9", "topic")),
    ),
    "Redis": (
        "redis",
        "bl.Redis needs redis-py: pip install 'beamlike[redis]'",
        lambda: read(bl.Redis("redis://localhost:9", "stream", group="g", fields={"x": str})),
    ),
}


@pytest.mark.parametrize(
    ("module", "call", "message"),
    [
        (
            "sqlglot",
            lambda p: bl.sql("SELECT x FROM a", a=p.read("a", bl.Rows([{"x": 1}]))),
            "bl.sql needs sqlglot: pip install 'beamlike[sql]'",
        ),
        (
            "yaml",
            lambda p: p.to_yaml(),
            "pipelines as files need PyYAML: pip install 'beamlike[yaml]'",
        ),
    ],
)
def test_files_and_queries_name_their_package(
    module: str,
    call: Callable[[bl.Pipeline], object],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    without: Callable[[str], None],
) -> None:
    without(module)
    for name in [one for one in sys.modules if one.startswith("beamlike.spec.sql_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(bl.errors.MissingPackage) as caught:
        call(bl.Pipeline("p"))
    assert str(caught.value) == message


@pytest.mark.parametrize("case", CASES)
def test_the_error_names_step_and_package(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Callable[[str], None]
) -> None:
    module, message, run = CASES[case]
    monkeypatch.chdir(tmp_path)
    without(module)
    with pytest.raises(bl.errors.MissingPackage) as caught:
        run()
    assert str(caught.value) == f"step 'rows': {message}"
    assert (caught.value.step, caught.value.name) == ("rows", module)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "made", "message"),
    [
        (
            "fastavro",
            lambda: bl.avro({"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}),
            "bl.avro needs fastavro: pip install 'beamlike[kafka]'",
        ),
        (
            "sqlalchemy",
            lambda: bl.Table("sqlite:///a.db", "t"),
            "bl.Table needs SQLAlchemy: pip install 'beamlike[table]'",
        ),
    ],
)
def test_a_declaration_that_needs_its_package_names_it(
    module: str,
    made: Callable[[], object],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    without: Callable[[str], None],
) -> None:
    without(module)
    monkeypatch.delitem(sys.modules, "beamlike.io.sql.statements", raising=False)
    monkeypatch.delattr("beamlike.io.sql.statements", raising=False)  # an earlier test has imported it
    with pytest.raises(bl.errors.MissingPackage, match=message.replace("[", r"\[")):
        made()


WITHOUT = """
import sys
sys.modules[{module!r}] = None
import beamlike as bl
from beamlike.cli.main import main

def shown(action):
    try:
        action()
    except ModuleNotFoundError as error:
        print(type(error).__name__, error)

shown(lambda: bl.SparkRunner)
source = bl.SparkSource(lambda spark: spark.readStream)
shown(lambda: bl.Pipeline("p").read("stream", source))
bl.Pipeline("p").read("a", bl.Rows([{{"x": 1}}])).write("out", bl.Memory()).pipeline.run()
main(["run", "examples.session_lengths:earliest", "--runner", "spark", "--checkpoint", "c"])
"""


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("pyspark", "PySpark: pip install 'beamlike[spark]'"),
        ("google.protobuf", "protobuf: pip install 'beamlike[cluster]'"),
    ],
)
def test_spark_is_asked_for_where_it_is_used_and_only_there(module: str, needs: str) -> None:
    command = [sys.executable, "-c", WITHOUT.format(module=module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    message = f"runs on Spark and their savepoints need {needs}"
    assert done.stdout.splitlines() == [
        f"MissingPackage {message}",
        f"MissingPackage step 'stream': {message}",
    ]
    assert done.stderr.splitlines()[-1] == f"Error: {message}"
