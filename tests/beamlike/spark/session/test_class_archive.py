"""The archive of Java's classes: when it is used and when it is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from beamlike.spark.session import class_archive
from beamlike.spark.session.class_archive import NoArchive
from beamlike.spark.session.java import Java, find_java
from tests.support.places import ROOT


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A Java without an archive in the cache, and a Spark with one jar."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark.jar").write_text("classes")
    return Java(tmp_path / "jvm", "17.0.15", "PATH")


def make(java: Java, content: str = "archived") -> Path:
    """Makes an archive without Java."""
    with class_archive.making(java) as options:
        draft = re.search("ArchiveClassesAtExit=([^']+)", options[0])
        assert draft is not None
        Path(draft[1]).write_text(content)
    found = class_archive.find(java)
    assert found is not None
    return found


def test_it_is_found_by_the_same_java_and_the_same_jars_only(java: Java, tmp_path: Path) -> None:
    assert class_archive.find(java) is None
    made = make(java)
    assert class_archive.find(java) == made
    assert class_archive.find(Java(java.home, "17.0.16", "PATH")) is None
    assert class_archive.find(Java(tmp_path / "other", "17.0.15", "PATH")) is None
    (tmp_path / "spark" / "jars" / "spark.jar").write_text("other classes")
    assert class_archive.find(java) is None


def test_an_incomplete_one_is_not_used(java: Java) -> None:
    made = make(java)
    made.write_text("arch")
    assert class_archive.find(java) is None


def test_a_new_one_replaces_those_of_the_same_java_and_no_other(java: Java, tmp_path: Path) -> None:
    other = make(Java(tmp_path / "other", "21.0.1", "PATH"))
    old = make(java)
    new = make(Java(java.home, "17.0.16", "PATH"))
    assert not old.exists()
    assert {*new.parent.iterdir()} == {other, new}


def test_a_java_that_writes_none_is_an_error(java: Java) -> None:
    with pytest.raises(NoArchive, match=r"Java 17.0.15 from PATH.*classes.jsa"), class_archive.making(java):
        pass
    assert class_archive.find(java) is None


def test_java_says_nothing_of_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    java, archive = find_java(), tmp_path / "a b.jsa"
    archive.write_bytes(bytes(100_000))
    options = [option.strip("'") for option in class_archive.options(java, archive)]
    plain = [java.home / "bin" / "java", "-version"]
    told = [
        subprocess.run(command, capture_output=True, text=True, check=True)
        for command in (plain, [plain[0], *options, plain[1]])
    ]
    assert told[1].stdout == ""
    assert told[1].stderr.replace(", sharing", "") == told[0].stderr.replace(", sharing", "")


USE = """
from pathlib import Path
from pyspark import SparkContext
from beamlike.spark.session.launch import end, start
session = start("local[1]", "archived", {})
java = SparkContext._gateway.proc
print(".jsa" in Path(f"/proc/{java.pid}/maps").read_text().replace("/lib/server/classes", ""), session.range(3).count())
end()
print(java.poll())
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
def test_the_command_makes_one_which_spark_then_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    java = find_java()
    assert run("-m", "beamlike", "java") == f"{java}\n"
    printed = run("-m", "beamlike", "java", "--archive")
    archive = class_archive.find(java)
    assert printed.splitlines()[1].endswith(f"MB: {archive}")
    assert run("-c", USE) == "True 3\n0\n"
    assert run("-m", "beamlike", "java", "--archive") == printed, "it is made once"
