"""The rules of a table that rows must satisfy, for all table formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs
import polars as pl

from beamlike.io.files import hive
from beamlike.io.files.paths import LONGEST_NAME


@attrs.frozen(kw_only=True)
class Rules:
    """The rules of a table for its writer.

    `identity` changes if the table is replaced, or if its columns, partitions or constraints change. `required` columns
    may not be null, and `filled` columns are computed by the library of the format. With `by_library`, tasks only store
    rows temporarily, and the driver writes them with the library, which knows further rules. `faults` are reasons why
    the table cannot be written at all.
    """

    columns: pl.Schema
    identity: str
    required: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    by_library: bool = False
    faults: tuple[str, ...] = ()

    def missing(self, given: Iterable[str]) -> list[str]:
        """Returns the required columns that are not `given`, and so would be null."""
        there = {*given, *self.filled}
        return [name for name in self.required if name not in there]

    def require_values(self, rows: pl.DataFrame) -> None:
        """Raises `ValueError` for a null in a required column."""
        for name in self.required:
            if name in rows.columns and (count := rows[name].null_count()):
                raise ValueError(
                    f"column {name!r} of the table may not be null, and {count} of {len(rows)} rows are null there; "
                    "filter such rows out before the sink, or fill them"
                )

    def require_same(self, now: Rules) -> None:
        """Raises `ValueError` if the table has changed since the start of the run."""
        if now.identity != self.identity:
            raise ValueError(
                "the table was replaced, or its columns, partitions or constraints were changed, while this run writes "
                "to it; check the table, then start the run again"
            )


@attrs.frozen(eq=False)
class Slice:
    """The rows for one file, and their partition values as text."""

    rows: pl.DataFrame
    values: Mapping[str, str | None] = attrs.field(factory=dict)

    @property
    def folder(self) -> str:
        """The Hive folders for the partition values, which some readers expect.

        Readers that follow the format take the values only from the log. So there are no folders if a value is too long
        for a name.
        """
        names = [hive.folder(name, value) for name, value in self.values.items()]
        fit = all(len(name.encode()) <= LONGEST_NAME for name in names)
        return "".join(f"{name}/" for name in names) if fit else ""


def by_partition(rows: pl.DataFrame, texts: pl.DataFrame) -> Iterator[Slice]:
    """Yields a slice for each partition, without the partition columns.

    `texts` has the values of these columns as text.
    """
    names = {f"\0{name}": name for name in texts.columns}
    marked = rows.drop(texts.columns).hstack(texts.rename({name: mark for mark, name in names.items()}))
    for values, slice_ in marked.partition_by(*names, as_dict=True, include_key=False).items():
        yield Slice(slice_, dict(zip(texts.columns, values, strict=True)))
