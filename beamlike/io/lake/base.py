"""The base class of tables in open formats. Tasks write invisible files, and one commit publishes a batch.

Methods in the order of a run:

  check      the driver reads the table's rules, or creates the table
  prepare    tasks write their rows to files that no version of the table contains
  settle     the driver commits the files of a batch, with its number, unless the table has the batch
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import ClassVar, Literal, Self, get_args
from uuid import uuid4

import attrs
import polars as pl

from beamlike.errors import PlanError, nearest
from beamlike.io.base import Part
from beamlike.io.files.part_files import part_name
from beamlike.io.lake.rules import Rules, Slice
from beamlike.io.lake.types import storable, stored
from beamlike.io.options import FOR_SINKS
from beamlike.io.sinks import (
    ARE_DOUBLED,
    STAY_UNTIL_REPLACED,
    RowKey,
    SinkInput,
    overtaken,
    standing,
)
from beamlike.rows.dtypes import type_name
from beamlike.system.locks import Lock, left_by_killed
from beamlike.system.path_names import file_name, is_remote
from stages.facts import SPARSE, from_json, to_json

Mode = Literal["append", "upsert"]


def is_mode(owner: object, attribute: attrs.Attribute[Mode], value: object) -> None:
    """Raises `ValueError` unless the value is "append" or "upsert"."""
    modes = get_args(Mode)
    if value not in modes:
        kind = type(owner).__name__
        raise ValueError(f"{kind}: mode may be 'append' or 'upsert', not {value!r}{nearest(value, modes)}")


@attrs.frozen
class WrittenFile:
    """A written file: its number of rows, its size in bytes, and its partition values as text."""

    rows: int
    size: int
    values: dict[str, str | None] = attrs.field(factory=dict, metadata=SPARSE)


@attrs.define
class TableState:
    """The state of a run at its table: the columns to write, the table's rules, and the names under which it records
    batches.

    Connections to catalogs are cached by `token`, so that a run never uses connections of an earlier run.
    """

    columns: tuple[str, ...] = ()
    rules: Rules | None = None
    names: dict[str, str] = attrs.field(factory=dict)
    token: str = attrs.field(factory=lambda: uuid4().hex)


@attrs.frozen(eq=False, slots=False)
class LakeTable:
    """The base class of tables that are written in transactions."""

    mode: Mode = attrs.field(default="append", validator=is_mode, kw_only=True, metadata=FOR_SINKS)
    _rows: SinkInput | None = attrs.field(default=None, kw_only=True, repr=False)
    _known: TableState = attrs.field(factory=TableState, kw_only=True, repr=False)

    distributed: ClassVar[bool] = True
    per_pane: ClassVar[bool] = False
    remembers: ClassVar[bool] = True

    @property
    def upserts(self) -> bool:
        """True if rows of later panes replace earlier rows."""
        return self.mode == "upsert"

    # Implemented by each format

    def _rules_found(self, schema: pl.Schema) -> Rules:
        """Returns the rules of the table. Creates it with this schema if it does not exist."""
        raise NotImplementedError

    def _folder(self) -> str:
        """Returns the path prefix for files of parts."""
        raise NotImplementedError

    def _save(self, rows: pl.DataFrame, path: str) -> int:
        """Writes a file to the storage of the table. Returns its size in bytes."""
        raise NotImplementedError

    def _load(self, path: str) -> pl.DataFrame:
        """Reads a file from the storage of the table."""
        raise NotImplementedError

    def _remove(self, path: str) -> None:
        """Removes a file from the storage of the table."""
        raise NotImplementedError

    def _noted(self, name: str) -> int | None:
        """Returns the last batch that the table records under this name; None if there is none."""
        raise NotImplementedError

    def _append(self, name: str, batch: int, parts: Mapping[str, WrittenFile]) -> None:
        """Commits the parts, and records the batch."""
        raise NotImplementedError

    def _insert(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        """Commits rows, which the library of the format writes, and records the batch."""
        raise NotImplementedError

    def _merge(self, name: str, batch: int, rows: pl.DataFrame, gone: pl.DataFrame) -> None:
        """Commits `rows`, which replace rows with equal keys, deletes rows with the keys in `gone`, and records the
        batch.
        """
        raise NotImplementedError

    # A sink

    def fitted(self, rows: SinkInput) -> Self:
        """Raises `PlanError` for a column that no table can store."""
        for name, dtype in rows.schema.items():
            try:
                storable(dtype)
            except TypeError as error:
                raise PlanError(f"column {name!r}: {error}", step=rows.step) from None
        return attrs.evolve(self, rows=rows)

    def for_run(self) -> Self:
        return attrs.evolve(self, known=TableState())

    def check(self) -> None:
        """Creates the table if it does not exist. Raises `PlanError` if an existing table does not fit.

        It may lack columns of the engine that do not identify rows.
        """
        feed = self._feed()
        wanted = stored(pl.DataFrame(schema=feed.schema)).schema
        if self.upserts and (flag := self._key().retracted) is not None and flag not in feed.user:
            wanted = pl.Schema({name: dtype for name, dtype in wanted.items() if name != flag})
        rules = self._rules_found(wanted)
        found = rules.columns
        wrong = [
            f"it has no column {name!r}" for name in feed.required if name in wanted and name not in found
        ]
        wrong += [
            f"its column {name!r} is {type_name(found[name])}, and not {type_name(dtype)}"
            for name, dtype in wanted.items()
            if name in found and found[name] != dtype
        ]
        wrong += [
            f"its column {name!r} may not be null, and the rows lack it" for name in rules.missing(wanted)
        ]
        wrong += rules.faults
        if wrong:
            raise PlanError(f"the table does not fit this sink: {'; '.join(wrong)}", step=feed.step)
        self._known.columns = tuple(name for name in wanted if name in found)
        self._known.rules = rules

    def _home(self) -> str:
        """Returns the folder or location of the table."""
        raise NotImplementedError

    def hold(self, run: str) -> Lock | None:
        """Locks the table for a run of this name. Raises `InUse` if another run of this name holds the lock.

        Returns None if the table is not on this machine, because remote storage has no locks.
        """
        folder = self._home().removeprefix("file://")
        if is_remote(folder):
            return None
        for _ in left_by_killed(f"{glob.escape(folder)}/.beamlike-*.lock"):
            pass  # iterating removes the lock file
        return Lock.take(f"{folder}/.beamlike-{file_name(run)}.lock", f"the run {run!r}")

    def start(self, run: str) -> None:
        """Starts a new run: batches already in the table under this name belong to an earlier run."""
        if self._noted(run) is not None:
            self._known.names[run] = f"{run}/{uuid4().hex}"

    def latest_batch(self, run: str) -> int | None:
        return self._noted(run)

    def cut(self, run: str, batch: int) -> str:
        """Removes nothing, because later versions of the table may have rows of other writers."""
        return STAY_UNTIL_REPLACED if self.upserts else ARE_DOUBLED

    def from_anywhere(self) -> Self:
        return self

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes the part and commits it."""
        self.settle(part.query, part.batch, self.prepare(frame, part), again=True)

    def prepare(self, frame: pl.DataFrame, part: Part) -> dict[str, str]:
        """Writes the part to files that no version of the table contains yet."""
        if frame.is_empty():
            return {}
        rules = self._rules()
        pane_columns = (self._key().pane, self._key().retracted) if self.upserts else ()
        extra = [name for name in pane_columns if name is not None and name not in self._known.columns]
        rows = stored(frame.select(*self._known.columns, *extra))
        rules.require_values(rows)
        slices = [Slice(rows)] if self._is_staged() else self._slices(rows)
        return dict(self._saved(one, part) for one in slices)

    def _saved(self, one: Slice, part: Part) -> tuple[str, str]:
        path = f"{self._folder()}{one.folder}{part_name(part, uuid4().hex)}.parquet"
        written = WrittenFile(len(one.rows), self._save(one.rows, path), dict(one.values))
        return path, to_json(written).decode()

    def _slices(self, rows: pl.DataFrame) -> Iterable[Slice]:
        """Divides the rows by partition."""
        return [Slice(rows)]

    def _rules(self) -> Rules:
        """Returns the rules that the table had at the start of the run."""
        if self._known.rules is None:
            self.check()
        assert self._known.rules is not None
        return self._known.rules

    def _is_staged(self) -> bool:
        """True if tasks only store rows temporarily, and the driver writes them to the table."""
        return self.upserts or self._rules().by_library

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Commits the parts of a batch, unless the table has the batch already.

        Files of invalid attempts are in no version of the table; a clean-up of the table removes them. Raises
        `RuntimeError` if the table has a later batch, or has this one although no attempt can have written it.
        """
        if not parts:
            return
        name = self._known.names.get(run, run)
        noted = self._noted(name)
        is_new = noted is None or noted < batch
        if noted is not None and (noted > batch or (noted == batch and not again)):
            raise overtaken(batch, noted)
        if self._is_staged():
            if is_new:
                self._write_staged(name, batch, pl.concat([self._load(path) for path in sorted(parts)]))
            for path in parts:
                with suppress(FileNotFoundError):  # an earlier call was interrupted
                    self._remove(path)
        elif is_new:
            self._append(name, batch, {path: from_json(WrittenFile, facts) for path, facts in parts.items()})

    def _write_staged(self, name: str, batch: int, rows: pl.DataFrame) -> None:
        if not self.upserts:
            self._insert(name, batch, rows)
            return
        left = standing(rows, self._key())
        self._merge(name, batch, left.rows.select(self._known.columns), left.gone)

    def shown_early(self) -> str | None:
        return None

    def _feed(self) -> SinkInput:
        if self._rows is None:
            raise RuntimeError(
                f"{type(self).__name__}: its columns are unknown before collection.write(name, table)"
            )
        return self._rows

    def _key(self) -> RowKey:
        key = self._feed().key
        assert key is not None
        return key
