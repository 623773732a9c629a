"""Workers that other runs have used before import the code of the current run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from pyspark import cloudpickle

from beamlike.spark.session.loading import code_in, packed
from tests.support.places import ROOT

_WORKER = """
import pickle, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        print(pickle.load(file)())
print("beamlike" in sys.modules)
"""


class Plays:
    """Evaluates, when it is unpickled, to `POINTS` of the module `plays`."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("__import__('plays').POINTS",)


def test_a_worker_forgets_the_code_of_another_run(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("plays.py", f"POINTS = 'points of the {name}'")
        with code_in(str(tmp_path / f"{name}.zip")):
            (tmp_path / name).write_bytes(cloudpickle.dumps(packed(Plays())))
    order = [str(tmp_path / name) for name in ("first", "first", "second", "first")]
    ran = subprocess.run(
        [sys.executable, "-P", "-c", _WORKER, *order],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    first, second = "points of the first", "points of the second"
    assert ran.stdout.splitlines() == [first, first, second, first, "False"]
    assert str(ROOT) not in ran.stdout
