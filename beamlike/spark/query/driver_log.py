"""Logs in which the driver defines the input of batches: small files next to the checkpoint, which Spark
reads as input.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import attrs
from pyspark.sql import DataFrame

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text, uri
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch, offset_lines, taken
from beamlike.system.path_names import file_name
from beamlike.system.seals import sealed_lines
from stages.facts import to_facts

BEFORE: Final = "_before.json"
"""The file in which a log keeps the data of removed entries. Its name is hidden, so Spark does not read it."""

_FIRST_TIME: Final = 1_000_000_000  # the time of the first entry in seconds; any time in the past would do


def note_name(number: int) -> str:
    """Returns the file name of an entry."""
    return f"{number:012d}.json"


def place_of(kind: str, source: str) -> str:
    """Returns the place of the entries of a source, a folder."""
    return f"{kind}/{file_name(source)}/"


@attrs.define(slots=False)
class DriverLog:
    """The log of a source: a folder for the log's `kind`, with one numbered file per entry."""

    checkpoint: Checkpoint
    name: str

    kind: ClassVar[str]

    @property
    def folder(self) -> str:
        """The folder of the log."""
        return uri(self.checkpoint.at(self.kind, file_name(self.name)))

    def place(self, name: str) -> str:
        """Returns the place for which the entries of a file are sealed."""
        return f"{place_of(self.kind, self.name)}{name.removeprefix('_done-')}"

    @property
    def before(self) -> str:
        """The path, within the checkpoint, of the file with the data of removed entries."""
        return self.place(BEFORE)

    def put(self, number: int, entries: Iterable[object]) -> None:
        """Writes a file with these entries, a line each.

        Spark reads files in the order of their modification times, so these are a second apart. If the storage does not
        store such times, Spark uses the order of their names.
        """
        name = note_name(number)
        self.checkpoint.files.write(f"{self.folder}/{name}", self.text(name, entries), _FIRST_TIME + number)

    def text(self, name: str, entries: Iterable[object]) -> str:
        """Returns the content of the file with this name: a sealed line for each entry."""
        return sealed_lines(map(to_facts, entries), self.place(name))

    def read_by(self, batch: int) -> dict[str, str]:
        """Returns the names of the entries that Spark had read by the end of a batch, each with its path at
        that time.
        """
        # The end of the path, which does not depend on the place of the checkpoint.
        mine = self.folder.split("/")[-3:]
        return {
            os.path.basename(path): path
            for number, offset in enumerate(offset_lines(self.checkpoint, batch)[2:])
            for path in taken(self.checkpoint, f"sources/{number}", offset)
            if path.split("/")[-4:-1] == mine
        }

    def require_here(self, read: Mapping[str, str]) -> None:
        """Checks the entries of a batch that has begun but is not done. Spark would take a moved file for a new one."""
        begun = self.read_by(last_batch(self.checkpoint, "offsets"))
        there = {*self.checkpoint.files.names(self.folder)}
        for name in begun.keys() - read.keys():
            if name not in there:
                raise self.checkpoint.damaged(f"the note {self.folder}/{name} is gone")
            if begun[name] != path_text(f"{self.folder}/{name}"):
                raise CheckpointError(
                    f"the checkpoint {self.checkpoint.path} was moved within a batch whose input is in "
                    f"{begun[name]}: move it back and run it once more, to the end of that batch"
                )

    def stream(self, *, one_by_one: bool) -> DataFrame:
        """Returns the lines of the log as a stream. A batch has all available entries or, with `one_by_one`, a single
        entry.
        """
        reader = self.checkpoint.session.readStream.format("text")
        if one_by_one:
            reader = reader.option("maxFilesPerTrigger", 1)
        # By default, Spark ignores files that are a week older than the newest file it has seen.
        reader = reader.option("maxFileAge", "36500d")
        # A glob that matches only this folder. With a plain path, Spark would refuse a log whose checkpoint
        # was moved.
        folder, _, name = self.folder.rpartition("/")
        return reader.load(f"{folder}/{{{name}}}")
