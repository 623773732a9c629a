"""Elements that tests of Beam record in a list of their class. Workers of Spark are other processes, and use a file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import apache_beam as beam


class Record(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Appends each element to a file."""

    def __init__(self, file: str) -> None:
        self.file = file

    def process(self, element: Any) -> None:
        with open(self.file, "ab") as out:
            out.write(pickle.dumps(element))


def record_in_file(file: Path) -> None:
    """Makes `userstate_test` record in a file."""
    from apache_beam.transforms.userstate_test import StatefulDoFnOnDirectRunnerTest

    StatefulDoFnOnDirectRunnerTest.record_dofn = lambda self: Record(str(file))


def take_records(file: Path) -> None:
    """Moves the elements in the file to the list of the class."""
    from apache_beam.transforms.userstate_test import StatefulDoFnOnDirectRunnerTest

    if not file.exists():
        return
    with file.open("rb") as found:
        size = file.stat().st_size
        while found.tell() < size:
            StatefulDoFnOnDirectRunnerTest.all_records.append(pickle.load(found))
    file.unlink()
