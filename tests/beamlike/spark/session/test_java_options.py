"""The options of a Java that is started here yield to the user's options."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkConf

from beamlike.spark.session import class_archive
from beamlike.spark.session.java import Java
from beamlike.spark.session.java_options import DRIVER_MEMORY, java_options

JAVA = Java(Path("jvm"), "17.0.15", "PATH")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark without settings and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "conf").mkdir()
    return tmp_path


def options(java: Java = JAVA, *, row_loops: bool = False, **settings: str) -> list[str]:
    conf = SparkConf(loadDefaults=False).setMaster(settings.pop("master", "local[*]"))
    conf.set("spark.driver.memory", settings.pop("memory", DRIVER_MEMORY))
    for name, value in settings.items():
        conf.set(f"spark.driver.{name}", value)
    return java_options(conf, java, row_loops=row_loops)


def test_an_archive_of_classes_is_used_unless_the_user_names_another(home: Path) -> None:
    assert not [option for option in options() if "Shared" in option]
    with class_archive.making(JAVA) as (at_exit, *_):
        Path(at_exit.partition("=")[2]).write_text("archived")
    archive = f"-XX:SharedArchiveFile={class_archive.find(JAVA)}"
    assert archive in options()
    assert archive in options(row_loops=True, master="yarn")
    assert archive not in options(extraJavaOptions="-XX:SharedArchiveFile=own.jsa")
    (home / "conf" / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -Xshare:off\n")
    assert archive not in options()


def test_processes_are_started_without_a_second_one_where_java_can(monkeypatch: pytest.MonkeyPatch) -> None:
    vfork = "-Djdk.lang.Process.launchMechanism=VFORK"
    assert vfork in options()
    assert vfork in options(Java(Path("jvm"), "25.0.1", "PATH"), row_loops=True, master="yarn")
    assert vfork not in options(Java(Path("jvm"), "26", "PATH"))
    assert vfork not in options(defaultJavaOptions="-Djdk.lang.Process.launchMechanism=FORK")
    with monkeypatch.context() as other:
        other.setattr("sys.platform", "darwin")
        assert vfork not in options()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djdk.lang.Process.launchMechanism=FORK")
    assert vfork not in options()
