"""The engines of the throughput benchmark, and the installation of each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import attrs
import pyspark

from benchmarks.logs import reason

CORES = 2
FILES = 20  # per source, one of each in a micro-batch: enough for Java to have warmed up in most of them
_LARGE_FILES = 5  # batches of four million plays where there are twenty million
_PEERS = Path(__file__).with_name("peers")


@attrs.frozen
class Engine:
    """An engine and its job: a module of this project, or a script of a peer in an environment with `packages`.

    The cost of one more event is computed from two `sizes`, numbers of events; the greater one runs for some twenty
    seconds or more. `files` is the number of files per source. With `merged` the engine reads a source's files in any
    order, so each source has one file. `jars` are the Maven names of jars that the packages lack.
    """

    title: str
    command: tuple[str, ...]
    sizes: tuple[int, int]
    packages: tuple[str, ...] = ()
    files: int = FILES
    merged: bool = False
    jars: tuple[str, ...] = ()


_JAVA = (2_000_000, 20_000_000)
_SPARK, _NATIVE = ("benchmarks.run_job", "spark"), ("benchmarks.native",)
_FLINK = ("apache-flink==2.3.0",)
_FLINK_PARQUET = ("org.apache.flink:flink-sql-parquet:2.3.0",)
_BYTEWAX = ("bytewax==0.21.1", "pyarrow==26.0.1")
_BEAM = ("apache-beam==2.77.0", "pyarrow==25.0.1")
ENGINES: Mapping[str, Engine] = {
    "local": Engine("beamlike, in process", ("benchmarks.run_job", "local"), (5_000_000, 50_000_000)),
    "spark": Engine("beamlike, on Spark", _SPARK, _JAVA),
    "spark-large": Engine("beamlike, on Spark, batches of 4 M", _SPARK, _JAVA, files=_LARGE_FILES),
    "native": Engine("PySpark streaming", _NATIVE, _JAVA),
    "native-large": Engine("PySpark streaming, batches of 4 M", _NATIVE, _JAVA, files=_LARGE_FILES),
    "native-batch": Engine("PySpark batch", (*_NATIVE, "--batch"), _JAVA),
    "flink-sql": Engine("Flink SQL", ("flink_sql.py",), _JAVA, _FLINK, merged=True, jars=_FLINK_PARQUET),
    "flink-datastream": Engine(
        "PyFlink DataStream",
        ("flink_datastream.py",),
        (20_000, 100_000),
        _FLINK,
        merged=True,
        jars=_FLINK_PARQUET,
    ),
    "bytewax": Engine("Bytewax", ("bytewax_job.py",), (300_000, 3_000_000), _BYTEWAX),
    "bytewax-by-hand": Engine(
        "Bytewax, sessions by hand", ("bytewax_job.py", "--by-hand"), (1_000_000, 10_000_000), _BYTEWAX
    ),
    "beam": Engine("Apache Beam, Python, local runner", ("beam_job.py",), (50_000, 500_000), _BEAM),
}

PEERS: Mapping[str, Engine] = {
    "flink": Engine(
        "Flink SQL", (), (0, 0), _FLINK, jars=("org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",)
    ),
    "bytewax": Engine("Bytewax", (), (0, 0), ("bytewax[kafka]==0.21.1",)),
}
"""The packages and jars of other frameworks for the latency benchmark with Kafka."""


class Failed(Exception):
    """Raised for an engine that could not be installed or did not run."""


def install(engine: Engine, work: Path) -> Path:
    """Returns the Python for an engine: this one, or that of an environment with its packages, created if missing.

    Raises `Failed` with the message of pip or Maven.
    """
    for jar in engine.jars:
        if not _place(jar, work).exists():
            if shutil.which("mvn") is None:
                raise Failed(f"does not install: needs Maven (mvn) for {jar}")
            _do(["mvn", "-q", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={_jars(work)}"])
    if not engine.packages:
        return Path(sys.executable)
    folder = work / "-".join(name.replace("==", "-") for name in engine.packages)
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _do([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _do([*pip, *engine.packages])
        stamp.touch()
    return python.absolute()


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"does not install: {reason(done.stdout + done.stderr)}")


def _jars(work: Path) -> Path:
    return work.absolute() / "jars"


def _place(jar: str, work: Path) -> Path:
    _, artifact, number = jar.split(":")
    return _jars(work) / f"{artifact}-{number}.jar"


def command(engine: Engine, python: Path, data: Path, out: Path) -> list[str]:
    """Returns the command that runs the job over the plays below `data` and writes its answer below `out`."""
    script, *options = engine.command
    if engine.packages:
        return [
            str(python),
            str(_PEERS / script),
            *options,
            str(data.absolute()),
            str(out.absolute()),
            str(CORES),
        ]
    return [str(python), "-m", script, *options, str(data), str(out), f"--cores={CORES}"]


def variables(engine: Engine, python: Path, work: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Returns the process's environment: Flink finds its Python on PATH, and its Parquet needs Hadoop."""
    path = {**env, "PATH": os.pathsep.join([str(python.parent), env["PATH"]])}
    if not engine.jars:
        return path
    hadoop = sorted(Path(pyspark.__file__).with_name("jars").glob("hadoop-client-*.jar"))
    jars = [_place(jar, work) for jar in engine.jars]
    return {**path, "HADOOP_CLASSPATH": os.pathsep.join(map(str, [*jars, *hadoop]))}


def versions() -> dict[str, str]:
    """Returns the version of each engine, or of the libraries that this project's engine is built on."""
    pyspark_version = f"pyspark {version('pyspark')}"
    ours = {"local": f"polars {version('polars')}", "spark": pyspark_version, "spark-large": pyspark_version}
    return {
        name: engine.packages[0].partition("==")[2] if engine.packages else ours.get(name, version("pyspark"))
        for name, engine in ENGINES.items()
    }
