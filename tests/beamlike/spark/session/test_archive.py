"""The archive of code for executors: its content, and imports from it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from beamlike.spark.session.archive import OWN_PACKAGES, build_archive


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user's modules, at the front of the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in {path.relative_to(tmp_path).parts[0].removesuffix(".py") for path in tmp_path.rglob("*.py")}:
        sys.modules.pop(name, None)


def write(folder: Path, sources: dict[str, str]) -> None:
    for name, source in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    importlib.invalidate_caches()


def names(archive: Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


def users(archive: Path) -> set[str]:
    """Returns the sources in an archive that do not belong to this project."""
    return {
        name for name in names(archive) if name.endswith(".py") and name.split("/")[0] not in OWN_PACKAGES
    }


def run(archive: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that imports from the archive before all other paths."""
    command = [sys.executable, "-I", "-c", f"import sys\nsys.path.insert(0, {str(archive)!r})\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_archive_has_the_three_packages_and_nothing_else() -> None:
    archive = build_archive([])
    held = names(archive)
    sources = {name for name in held if name.endswith(".py")}
    assert {"windowing/time.py", "stages/stage.py", "beamlike/spark/session/session.py"} <= sources
    assert {name.split("/")[0] for name in sources} == set(OWN_PACKAGES)
    assert held == sources | {f"{name}c" for name in sources}


def test_a_module_brings_what_it_imports_of_the_users_own_code(code: Path) -> None:
    sources = {
        "plays.py": "import json\nimport polars\nimport windowing\nfrom scores import best\n",
        "scores.py": "def best():\n    from rules.late import LIMIT\n    return LIMIT\n",
        "rules/__init__.py": "",
        "rules/late.py": "from . import early\nLIMIT = 1\n",
        "rules/early.py": "",
    }
    write(code, {**sources, "unused.py": ""})
    assert users(build_archive([importlib.import_module("plays")])) == set(sources)
    assert users(build_archive(["plays"])) == set(sources)
    rules = {name for name in sources if name.startswith("rules/")}
    assert users(build_archive(["rules.late", "json", "polars", "stages.graph", "no_such_module"])) == rules


def test_what_the_main_program_imports_comes_along_but_not_the_program(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(code, {"program.py": "import plays\n", "plays.py": "", "other.py": "def f(): ...\n"})
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(code / "program.py"), raising=False)
    assert users(build_archive(["__main__"])) == {"plays.py"}
    monkeypatch.delattr(main, "__file__")  # as at a prompt, where only values show what was imported
    monkeypatch.setattr(main, "imported", importlib.import_module("other").f, raising=False)
    assert "other.py" in users(build_archive([main]))


def test_the_same_code_gives_the_same_archive(code: Path) -> None:
    write(code, {"plays.py": "X = 1\n"})
    first = build_archive(["plays"])
    contents = first.read_bytes()
    assert build_archive(["plays"]) == first
    first.unlink()
    assert build_archive(["plays"]).read_bytes() == contents
    write(code, {"plays.py": "X = 2\n"})
    assert build_archive(["plays"]) != first


def test_code_runs_from_the_archive_alone_and_tracebacks_show_it(code: Path) -> None:
    write(code, {"plays.py": "def play():\n    raise KeyError('lost')\n"})
    archive = build_archive(["plays"])
    assert run(archive, "import windowing.time as t; print(t.__file__)").stdout.startswith(str(archive))
    (code / "plays.py").unlink()
    program = "import plays, traceback\ntry: plays.play()\nexcept KeyError: traceback.print_exc()"
    assert "raise KeyError('lost')" in run(archive, program).stderr


def test_an_archive_for_workers_on_this_machine_is_not_compressed_and_has_the_same_code(code: Path) -> None:
    write(code, {"plays.py": "def twice(n):\n    return 2 * n\n"})
    sent, stored = (build_archive(["plays"], compressed=compressed) for compressed in (True, False))
    with zipfile.ZipFile(sent) as one, zipfile.ZipFile(stored) as other:
        assert {part.compress_type for part in other.infolist()} == {zipfile.ZIP_STORED}
        assert [(part.filename, part.CRC) for part in one.infolist()] == [
            (part.filename, part.CRC) for part in other.infolist()
        ]
    assert run(stored, "import plays; print(plays.twice(2))").stdout == "4\n"


def test_a_broken_file_that_nobody_imports_does_no_harm(code: Path) -> None:
    write(code, {"plays/__init__.py": "", "plays/draft.py": "def (:\n"})
    archive = build_archive(["plays"])
    assert {"plays/__init__.pyc", "plays/draft.py"} <= names(archive)
    assert "plays/draft.pyc" not in names(archive)
    assert run(archive, "import plays").returncode == 0


def test_what_is_imported_from_a_zip_file_comes_along(tmp_path: Path) -> None:
    (tmp_path / "plays").mkdir()
    write(
        tmp_path / "plays",
        {"__init__.py": "from plays.best import BEST\n", "best.py": "from limit import BEST\n"},
    )
    write(tmp_path, {"limit.py": "BEST = 3\n"})
    given = tmp_path / "code.zip"
    with zipfile.ZipFile(build_archive([])) as ours, zipfile.ZipFile(given, "w") as file:
        for name in ours.namelist():
            file.writestr(name, ours.read(name))
        for name in ("plays/__init__.py", "plays/best.py", "limit.py"):
            file.write(tmp_path / name, name)
    program = (
        "from beamlike.spark.session.archive import build_archive\n"
        "import shutil\n"
        f"shutil.copy(build_archive(['plays']), {str(tmp_path / 'sent.zip')!r})"
    )
    done = run(given, program)
    assert done.returncode == 0, done.stderr
    assert users(tmp_path / "sent.zip") == {"plays/__init__.py", "plays/best.py", "limit.py"}
    assert run(tmp_path / "sent.zip", "import plays, beamlike; print(plays.BEST)").stdout == "3\n"


def test_what_a_distribution_of_spark_has_stays_there(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    write(
        home,
        {
            "python/pyspark/__init__.py": "import more",
            "python/more.py": "",
            "work-dir/plays.py": "import pyspark.sql, py4j, more",
        },
    )
    with zipfile.ZipFile(home / "python" / "py4j.zip", "w") as file:
        file.writestr("py4j/__init__.py", "")
    paths = [str(home / place) for place in ("work-dir", "python", "python/py4j.zip")]
    program = (
        f"sys.path[:0] = {paths}\n"
        "import os\n"
        "from beamlike.spark.session.archive import _sources\n"
        "print({name for name in _sources(['plays', 'pyspark.sql']) if name.split('/')[0] not in "
        f"{OWN_PACKAGES}}})"
    )
    environment = {**os.environ, "SPARK_HOME": str(home)}
    archive = build_archive([])
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(archive)!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("{'plays.py'}\n", "")


def test_a_package_with_compiled_modules_stays_where_it_is(code: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    write(code, {"plays.py": "import fast, slow", "fast/__init__.py": "", "slow/__init__.py": ""})
    (code / "fast" / f"inner{suffix}").touch()
    # An environment in the folder of a package is no part of it.
    write(code / "slow", {"site-packages/__init__.py": ""})
    (code / "slow" / "site-packages" / f"inner{suffix}").touch()
    assert users(build_archive(["plays"])) == {
        "plays.py",
        "slow/__init__.py",
        "slow/site-packages/__init__.py",
    }
