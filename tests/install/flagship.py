"""`flagship.py RUNNER`: runs the flagship example with the installed package, and compares it with plain polars.

Runs in an environment without the project: beside `examples`, with the package from site-packages.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import beamlike as bl
from examples import generate, oracle
from examples.session_lengths import pipeline

OF_EXTRAS = ("matplotlib", "pandas", "pyspark", "sqlalchemy")


def main(on: str) -> None:
    """Runs in process ("local") or on Spark ("spark"). Raises `AssertionError` if anything is not as expected."""
    assert "site-packages" in str(bl.__file__), bl.__file__
    if on == "local":
        assert not [name for name in OF_EXTRAS if find_spec(name)]
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "plays"), Path(folder, "averages")
        generate.write(data, generate.Plays(20_000, files=3))
        local = on == "local"
        pipeline(data, out, bl.EARLIEST).run(
            bl.LocalRunner()
            if local
            else bl.SparkRunner(Path(folder, "checkpoint"), master="local[2]", shards=2, drain=True)
        )
        windows = oracle.written(out)
        wrong = oracle.differences(windows, oracle.averages(oracle.read(data), bl.EARLIEST.value))
    assert windows.height, "no windows were written"
    assert not wrong, wrong
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"{windows.height} windows are right: Python {python}, polars {version('polars')}")


if __name__ == "__main__":
    main(sys.argv[1])
