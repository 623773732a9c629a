"""The rows of one key: the sources, stages and sinks for which they are enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import polars as pl

from beamlike.errors import UnknownKey, listed, nearest
from beamlike.plan.lineage import sources_of_column
from beamlike.plan.model import Plan
from beamlike.replaying.chunks import Only, rows_of_key
from beamlike.replaying.typed import value_of_type
from beamlike.runtime.batch.kept_inputs import INPUTS
from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.state.store import DictStore, StateStore


@attrs.frozen
class KeyRows:
    """The rows of a key. `sources` has the columns of each source and their values; other sources are needed whole.

    The `stages` and `sinks` have all that the key gives to them. `notes` has a sentence for each part that is left out.
    """

    key: Mapping[str, Any]
    sources: Mapping[str, Only]
    stages: tuple[str, ...]
    sinks: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, key: Mapping[str, Any]) -> KeyRows:
        """Finds the parts of a plan that the key divides. Raises `UnknownKey` if there are none, or for a value of
        another type.
        """
        stages, columns = dict[str, Mapping[str, Mapping[str, str]]](), dict[str, dict[str, str]]()
        for name, stage in plan.stages.items():
            whole = all(one in stages or one in plan.sources for one in stage.reads(MAIN))
            traced = _traced(plan, name, key) if whole else None
            if traced is not None and _agrees(traced, columns):
                stages[name] = traced
                for source, found in traced.items():
                    columns.setdefault(source, {}).update(found)
        if not stages:
            raise _no_stage(plan, key)
        sources = {
            source: {column: _value(plan, source, column, key[name]) for name, column in found.items()}
            for source, found in columns.items()
            if not _is_side(plan, source)
        }
        sinks = tuple(
            name
            for name, sink in plan.sinks.items()
            if all(one in stages or one in sources for one in sink.inputs)
        )
        return cls(key, sources, tuple(stages), sinks, tuple(_notes(plan, stages, sources, sinks, key)))

    def state(self, plan: Plan, store: StateStore, values: Mapping[tuple[str, str], bytes]) -> DictStore:
        """Returns a store with the state of the key in its stages. `values` are all values of `store`.

        Of other stages, only the watermarks are left.
        """
        kept = DictStore({(name, key): value for (name, key), value in values.items() if key == INPUTS})
        for name in self.stages:
            stage = plan.stages[name].stage
            saved = save(stage, store)
            tables = {one.table.name: one.table for one in stage.operator.tables}
            rows = {
                table: frame if tables[table].on_all_shards else rows_of_key(frame, self._typed(frame))
                for table, frame in saved.rows.items()
            }
            restore(stage, kept, attrs.evolve(saved, rows=rows))
        return kept

    def _typed(self, rows: pl.DataFrame) -> Only:
        return {name: value_of_type(value, rows.schema[name], "the key") for name, value in self.key.items()}


def _traced(plan: Plan, stage: str, key: Mapping[str, Any]) -> dict[str, dict[str, str]] | None:
    """Returns, for each source, the columns that arrive as the key columns of a stage; None if they are no keys of the
    stage, or computed.
    """
    operator = plan.stages[stage].stage.operator
    if not set(key) <= {*operator.inputs[MAIN].keys}:
        return None
    found = dict[str, dict[str, str]]()
    for name in key:
        columns = sources_of_column(plan, stage, name)
        if not columns:
            return None
        for source, column in columns.items():
            if column not in plan.sources[source].raw:
                return None
            found.setdefault(source, {})[name] = column
    return found if all(len(columns) == len(key) for columns in found.values()) else None


def _agrees(traced: Mapping[str, Mapping[str, str]], known: Mapping[str, Mapping[str, str]]) -> bool:
    return all(known.get(source, columns) == columns for source, columns in traced.items())


def _is_side(plan: Plan, source: str) -> bool:
    """True if a side of a stage needs all rows of the source."""
    sides = (
        (one, role)
        for one in plan.stages.values()
        for role, into in one.stage.operator.inputs.items()
        if into.side
    )
    return any(source in stage.reads(role) for stage, role in sides)


def _no_stage(plan: Plan, key: Mapping[str, Any]) -> UnknownKey:
    keys = sorted({name for one in plan.stages.values() for name in one.stage.operator.inputs[MAIN].keys})
    for name in key:
        if name not in keys:
            known = f"their keys are {listed(keys)}{nearest(name, keys)}" if keys else "they have no keys"
            return UnknownKey(f"no stage has the key {name!r}: {known}")
    return UnknownKey(
        f"the rows of one {' and '.join(key)} cannot be found in the sources: in each stage with this key, it is "
        "computed by a step; leave out the key"
    )


def _value(plan: Plan, source: str, column: str, value: Any) -> Any:
    dtype = plan.sources[source].raw[column]
    return value_of_type(value, dtype, f"column {column!r} of source {source!r}")


def _notes(
    plan: Plan,
    stages: Mapping[str, Any],
    sources: Mapping[str, Any],
    sinks: tuple[str, ...],
    key: Mapping[str, Any],
) -> Iterator[str]:
    told = ", ".join(f"{name}={value}" for name, value in key.items())
    if sources:
        yield f"only the rows of {told} of {listed(map(repr, sources))}"
    if whole := [name for name in plan.sources if name not in sources]:
        yield f"all rows of {listed(map(repr, whole))}: the key does not divide them"
    if others := [name for name in plan.stages if name not in stages]:
        yield f"not the panes of {listed(map(repr, others))}, which need the rows of other keys"
    if left := [name for name in plan.sinks if name not in sinks]:
        yield f"not the rows of {listed(f'sink {name!r}' for name in left)}"
