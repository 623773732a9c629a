"""Reads the log of a Delta Lake table: the files of a snapshot, the files that a version adds, and their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import attrs
import polars as pl

from beamlike.errors import DataLoss, SourceError
from beamlike.io.base import FromFile
from beamlike.io.lake.delta_rules import partition_text, partition_value
from beamlike.io.sources import PlannedBatch, Position
from beamlike.system.path_names import is_remote
from beamlike.system.retries import again

_FOLDER: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")


@attrs.frozen
class Added:
    """A data file of a table: its path, its number of rows, and its partition values as text."""

    path: str
    rows: int
    values: Mapping[str, str | None]


@attrs.frozen
class DeltaLog:
    """The log of the table at `path`, on a pyarrow file system. `table` opens a version of the table with deltalake."""

    path: str
    system: Any
    table: Callable[[int | None], Any]

    def plan(self, position: Position, rows: int, start: int | None) -> PlannedBatch | None:
        """Plans the next batch after a position: files of the first snapshot with about `rows` rows, or a later
        version.

        A position has a version and, within the snapshot, the number of a file. It may have an `end`, the last version
        to read.
        """
        version = position.get("version")
        if version is None and start is None:
            return self._of_snapshot(self.table(None).version(), 0, rows)
        if version is None:
            newest = max(self._versions(), default=-1)
            if (start or 0) > newest + 1:
                raise SourceError(
                    f"the newest version of the Delta table {self.path!r} is {newest}: start_version={start} would "
                    "skip versions that do not exist yet"
                )
            return self._after((start or 0) - 1, position.get("end"))
        if (first := position["file"]) is not None:
            return self._of_snapshot(version, first, rows)
        return self._after(version, position.get("end"))

    def past(self, position: Position, start: int | None) -> PlannedBatch:
        """Plans all files up to a position as one batch, from the version `start` on, if it is given."""
        version, file = position["version"], position["file"]
        if start is None:
            # A snapshot has the rows of all versions before it, as no version removes rows.
            files = [self._found(*one) for one in _snapshot(self.table(version))][:file]
        else:
            files = [added for number in range(start, version + 1) for added in self._added(number)]
        return _planned(files, version, file, more=False)

    def _of_snapshot(self, version: int, first: int, rows: int) -> PlannedBatch | None:
        files = [self._found(*one) for one in _snapshot(self.table(version))]
        last, count = first, 0
        # At least one file is planned. Otherwise a file with more than `rows` rows would never be read.
        while last < len(files) and (last == first or count + files[last].rows <= rows):
            count += files[last].rows
            last += 1
        if last == first:
            return None
        rest = last if last < len(files) else None
        more = rest is not None or max(self._versions(), default=version) > version
        return _planned(files[first:last], version, rest, more=more)

    def _after(self, version: int, end: int | None) -> PlannedBatch | None:
        """Returns the next version that adds files; None if there is none."""
        newest = max(self._versions(), default=-1) if end is None else end
        for number in range(version + 1, newest + 1):
            if files := self._added(number):
                return _planned(files, number, None, more=number < newest)
        return None

    def _versions(self) -> Iterator[int]:
        from pyarrow.fs import FileSelector

        for info in self.system.get_file_info(FileSelector(_FOLDER)):
            if found := _COMMIT.fullmatch(info.base_name):
                yield int(found[1])

    def _added(self, version: int) -> list[Added]:
        """Returns the files with rows that a version adds. Raises `SourceError` if it removes or changes rows."""
        kinds = dict[str, list[dict[str, Any]]]()
        for action in self._actions(version):
            for kind, facts in action.items():
                kinds.setdefault(kind, []).append(facts)
        if any(remove.get("dataChange", True) for remove in kinds.get("remove", [])):
            operation = next((info.get("operation") for info in kinds.get("commitInfo", [])), None)
            raise SourceError(
                f"version {version} of the Delta table {self.path!r} removes or changes rows ({operation}), and a "
                f"source follows only what is appended. To pass over it, read on with bl.Delta({self.path!r}, "
                f"start_version={version + 1}) and a new checkpoint. A table that changes can be looked up as it is, "
                "with bl.Refreshed(bl.Delta(...), every=...)"
            )
        # A compaction (`dataChange` is false) only rewrites rows of earlier versions, so its files are
        # skipped.
        return [
            self._found(
                add["path"], json.loads(add.get("stats") or "{}").get("numRecords"), add["partitionValues"]
            )
            for add in kinds.get("add", [])
            if add.get("dataChange", True)
        ]

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        try:
            with self.system.open_input_file(f"{_FOLDER}/{version:020d}.json") as file:
                content = file.read()
        except FileNotFoundError:
            raise DataLoss(
                f"the log of the Delta table {self.path!r} does not have version {version} any more, as it was cleaned "
                "up (delta.logRetentionDuration): read it again, with a new checkpoint and without start_version="
            ) from None
        return map(json.loads, content.splitlines())

    def _found(self, path: str, rows: int | None, values: Mapping[str, str | None]) -> Added:
        """Returns a file of the log. Its path in the log is escaped."""
        path = unquote(path)
        return Added(path if is_remote(path) else f"{self.path.rstrip('/')}/{path}", rows or 0, values)


def _planned(files: list[Added], version: int, file: int | None, *, more: bool) -> PlannedBatch:
    return PlannedBatch([attrs.asdict(one) for one in files], {"version": version, "file": file}, more)


def _snapshot(table: Any) -> Iterator[tuple[str, int | None, dict[str, str | None]]]:
    """Yields path, number of rows and partition values of all files of a table, in the order in which they
    were written.
    """
    import pyarrow as pa

    found = pl.DataFrame(pl.from_arrow(pa.table(table.get_add_actions()))).sort("modification_time", "path")
    parts = found["partition"].struct.unnest() if "partition" in found.columns else pl.DataFrame()
    values = parts.select(partition_text(name, dtype) for name, dtype in parts.schema.items()).to_dicts()
    counts = found["num_records"] if "num_records" in found.columns else [None] * len(found)
    yield from zip(found["path"], counts, values or [{}] * len(found), strict=True)


def rows_of(part: Any, schema: pl.Schema, options: dict[str, str], rows: int) -> Iterator[FromFile]:
    """Yields the rows of a file with these columns, in pieces of at most `rows` rows. Missing columns are null.

    Raises `DataLoss` if the file no longer exists.
    """
    added = Added(**part)
    lf = pl.scan_parquet(added.path, glob=False, hive_partitioning=False, storage_options=options or None)
    try:
        found = again(f"file {added.path!r}", lf.collect_schema)
        height = again(f"file {added.path!r}", lf.select(pl.len()).collect).item()
    except FileNotFoundError:
        raise DataLoss(f"the file {added.path!r} of a Delta table is gone, as VACUUM removed it") from None
    typed = lf.select(
        pl.col(name).cast(dtype)
        if name in found
        else partition_value(added.values.get(name), dtype).alias(name)
        for name, dtype in schema.items()
    )
    for first in range(0, height, rows):
        yield FromFile(typed.slice(first, rows), added.path)
