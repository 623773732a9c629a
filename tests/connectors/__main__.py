"""Installs the servers and downloads the jars that the tests of connectors start, and reports missing ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.connectors.jars import jars

JARS = ("broker", "spark-kafka", "spark-s3", "spark-tables")
"""The profiles of `pom.xml`. They are downloaded before any test runs, as two processes would write the same folder."""

NEEDED = {
    "mariadb-server": "the other database that tests of tables start",
    "maven": "the jars of Kafka and of Spark's readers",
    "postgresql": "the database that tests of tables start",
    "redis-server": "the queue that tests of streams start",
}


def missing() -> list[str]:
    """Returns the packages whose programs are not installed."""
    servers = list(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or shutil.which("postgres")
    there = {
        "mariadb-server": shutil.which("mariadbd"),
        "maven": shutil.which("mvn"),
        "postgresql": servers,
        "redis-server": shutil.which("redis-server"),
    }
    return [package for package in NEEDED if not there[package]]


def main() -> None:
    """Installs the packages with apt, if the user may."""
    packages = missing()
    if packages and shutil.which("apt-get") and os.getuid() == 0:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(["apt-get", "update", "-qq"], check=False, env=environment, **quiet)
        for package in packages:
            subprocess.run(
                ["apt-get", "install", "-y", "-qq", package], check=False, env=environment, **quiet
            )
    for package in missing():
        print(f"{package} is not here, and so {NEEDED[package]}: the tests that need it are skipped")
    for profile in JARS:
        try:
            jars(profile)
        except pytest.skip.Exception as reason:
            print(f"{reason}; the tests that need the jars of {profile} are skipped")


if __name__ == "__main__":
    main()
