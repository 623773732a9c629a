"""Jars from Maven's central repository, kept below `build/`; the tests that need some are skipped without Maven."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.support.places import ROOT

POM = Path(__file__).with_name("pom.xml")

# Newer versions work with the reader of the last one that has one.
_OLDER = {
    "3.5": ["-Dspark.kafka=3.5.0", "-Dspark.scala=2.12"],
    "4.0": ["-Dspark.kafka=4.0.0"],
    "4.1": ["-Dspark.kafka=4.1.1"],
}
"""Changed properties of `pom.xml`, by version of Spark."""


def _properties() -> list[str]:
    try:
        return _OLDER.get(version("pyspark").rpartition(".")[0], [])
    except PackageNotFoundError:  # in an environment without Spark
        return []


def jars(profile: str) -> list[Path]:
    """Returns the jars of a profile of `pom.xml`; skips the test if they cannot be downloaded.

    They are downloaded once for each state of that file and each version of Spark.
    """
    what = POM.read_bytes() + "".join(_properties()).encode()
    digest = hashlib.sha256(what).hexdigest()[:12]
    folder = ROOT / "build" / "connectors" / f"{profile}-{digest}"
    if not folder.is_dir():
        _download(profile, folder)
    return sorted(folder.glob("*.jar"))


def _download(profile: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven is not installed, which gets the jars (on Debian and Ubuntu: apt install maven)")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    copy = [
        f"-P{profile}",
        *_properties(),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={partial}",
        "-DincludeScope=runtime",
    ]
    got = subprocess.run(
        [maven, "-q", "-B", "-f", str(POM), *copy], capture_output=True, text=True, timeout=600
    )
    if got.returncode:
        pytest.skip(f"Maven cannot get the jars of {profile}: {(got.stdout + got.stderr).strip()[-500:]}")
    partial.rename(folder)
