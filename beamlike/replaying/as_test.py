"""Writes a recording as a test: a test stream with the rows that its batches took, and the panes that came."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeGuard

import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.base import FIRST_MOMENT, LAST_MOMENT, Announced, Faulty, FromFile, Pieces
from beamlike.io.test_stream.stream import TestStream
from beamlike.plan.model import Plan, Planned, plan_of
from beamlike.records.model import BatchRecord
from beamlike.replaying.chunks import chunk_of
from beamlike.replaying.recording import BatchFacts, Recording
from beamlike.replaying.streams import run_with
from beamlike.rows.type_text import dtype_as_python
from beamlike.runtime.batch.ingested import AllChunks, Chunk
from beamlike.system.secrets import without_secrets
from beamlike.system.texts import is_python_name, python_comment, python_docstring, python_names, python_value
from stages.facts import from_facts
from stages.snapshot import save
from stages.state.store import DictStore
from windowing.time import Microseconds, format_time

_USED: Final = ("bl", "pl", "found", "os", "datetime", "zoneinfo", "Decimal", "inf", "nan")


def as_test(recording: Recording, pipeline: Plan | Planned, target: str) -> str:
    """Returns the text of a test for pytest that plays the batches of a recording, and expects their panes.

    The test has a test stream for each source, and is run once before.

    Args:
        recording: The recording that `bl.record` returned.
        pipeline: The pipeline, or its plan.
        target: The pipeline as an expression, after the name of its module: `jobs.plays:pipeline`, or
            `jobs.plays:make()` for a call of a function.

    Raises:
        CheckpointError: A test stream cannot give the panes, for example since the first batch begins with state.
        ValueError: The target is no such expression.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.group_by("user").running(n=bl.count()).write("out", bl.Memory())
        <Collection 'plays.running': user String, points Int64, at String, n Int64>
        >>> run = p.run(bl.LocalRunner(checkpoint="checkpoint"))
        >>> recording = bl.record("checkpoint", p, batches=(0, 2), key={"user": "ada"})
        >>> bl.testing.as_test(recording, p, "jobs.plays:p").splitlines()[9]
        'def test_batches_0_to_2() -> None:'
    """
    _require_expression(target)
    given = plan_of(pipeline, "as_test")
    plan = recording.plan(given)
    _require_no_state(recording, plan)
    if plan.tables:
        raise CheckpointError(
            f"a test of test streams cannot have the lookup tables {', '.join(map(repr, plan.tables))}: replay the "
            "recording instead"
        )
    steps = {name: [*_steps(recording, plan, name)] for name in plan.sources}
    streams = {name: _stream(plan, name, found) for name, found in steps.items()}
    expected = _expected(recording, plan)
    _require_same(run_with(plan, streams), expected)
    return "\n".join(_lines(recording, plan, target, steps, expected)) + "\n"


def _require_expression(target: str) -> None:
    """Raises `ValueError` unless the target can be imported, and is a name or the call of one."""
    module, _, expression = target.partition(":")
    name, call, _ = expression.partition("(")
    try:
        tree: ast.expr | None = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    kind = ast.Call if call else ast.Name
    if not (all(map(is_python_name, [*module.split("."), name])) and isinstance(tree, kind)):
        raise ValueError(f"as_test: target must be 'module:pipeline' or 'module:function()', not {target!r}")


Step = tuple[str, Any]
"""A call of a method of a test stream, and its argument."""


def _steps(recording: Recording, plan: Plan, source: str) -> Iterator[Step]:
    """Yields the steps of a source: for each batch the processing time, the rows, and the watermark after it.

    All sources have the same number of steps, so that they stay together.
    """
    now, watermark = 0, None if recording.last is None else _watermark(recording.last, source)
    first = watermark
    yield ("advance_watermark_to", Microseconds(first)) if _is_time(first) else ("add_elements", [])
    for facts in recording.batches:
        yield (
            ("advance_processing_time", Microseconds(facts.now - now))
            if facts.now > now
            else ("add_elements", [])
        )
        now = max(now, facts.now)
        yield "add_elements", [*_rows(recording, plan, facts, source)]
        reached = _watermark(facts.record, source)
        moves = _is_time(reached) and (watermark is None or reached > watermark)
        yield ("advance_watermark_to", Microseconds(reached)) if moves else ("add_elements", [])
        watermark = reached


def _watermark(record: Mapping[str, Any], source: str) -> int:
    return from_facts(BatchRecord, record).sources[source].watermark


def _is_time(watermark: int | None) -> TypeGuard[int]:
    return watermark is not None and FIRST_MOMENT <= watermark <= LAST_MOMENT


def _rows(recording: Recording, plan: Plan, facts: BatchFacts, source: str) -> Iterator[dict[str, Any]]:
    if source not in facts.chunks:
        return
    for frame in _frames(chunk_of(facts.chunks[source], recording.frames.__getitem__)):
        raw = plan.sources[source].raw
        yield from frame.select(pl.col(name).cast(dtype) for name, dtype in raw.items()).to_dicts()


def _frames(chunk: Chunk) -> Iterator[pl.DataFrame]:
    match chunk:
        case Announced(rows, _) | FromFile(rows):
            yield from _frames(rows)
        case AllChunks(chunks) | Pieces(chunks):
            for one in chunks:
                yield from _frames(one)
        case Faulty():
            pass
        case pl.DataFrame() | pl.LazyFrame():
            yield chunk.lazy().collect()


def _stream(plan: Plan, source: str, steps: Sequence[Step]) -> TestStream:
    stream = TestStream(plan.sources[source].raw)
    for method, argument in steps:
        stream = getattr(stream, method)(argument)
    return stream


def _expected(recording: Recording, plan: Plan) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in recording.sinks}
    for number in recording.numbers:
        for name, rows in recording.expected(number).items():
            if name in found:
                found[name] += rows.to_dicts()
    return found


def _require_no_state(recording: Recording, plan: Plan) -> None:
    store = DictStore(dict(recording.state))
    for name, stage in plan.stages.items():
        rows = sum(map(len, save(stage.stage, store).rows.values()))
        if rows:
            raise CheckpointError(
                f"a test stream cannot begin with state, and batch {recording.numbers[0]} begins with {rows} rows of "
                f"it in stage {name!r}: record from an earlier batch on, or replay the recording instead"
            )


def _require_same(
    found: Mapping[str, pl.DataFrame], expected: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    for name, rows in expected.items():
        if sorted(map(str, found[name].to_dicts())) != sorted(map(str, rows)):
            raise CheckpointError(
                f"a test stream gives sink {name!r} other rows than the batches did, since it has one watermark for "
                "each source and a batch for each step: replay the recording instead"
            )


def _lines(
    recording: Recording,
    plan: Plan,
    target: str,
    steps: Mapping[str, Sequence[Step]],
    expected: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[str]:
    module, _, name = target.partition(":")
    first, last = recording.numbers[0], recording.numbers[-1]
    body = [*_body(plan, name, steps, expected)]
    yield python_docstring(f"Batches {first} to {last} of the run in {without_secrets(recording.origin)}.")
    yield ""
    yield from _imports([*body])
    yield ""
    yield "import polars as pl"
    yield f"from {module} import {name.partition('(')[0]}"
    yield ""
    yield "import beamlike as bl"
    yield ""
    yield ""
    yield f"def test_batches_{first}_to_{last}() -> None:"
    for note in recording.notes:
        yield f"    {python_comment(note)}"
    yield from body


def _imports(body: Iterable[str]) -> Iterator[str]:
    tree = ast.parse("\n".join(["if True:", *body]))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for module in ("datetime", "os", "zoneinfo"):
        if module in used:
            yield f"import {module}"
    if "Decimal" in used:
        yield "from decimal import Decimal"
    if numbers := sorted(used & {"inf", "nan"}):
        yield f"from math import {', '.join(numbers)}"


def _body(
    plan: Plan,
    name: str,
    steps: Mapping[str, Sequence[Step]],
    expected: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[str]:
    variables = python_names(steps, {*_USED, name.partition("(")[0]}, "source")
    for source, calls in steps.items():
        variable = variables[source]
        schema = ", ".join(
            f"{column!r}: {dtype_as_python(dtype)}" for column, dtype in plan.sources[source].raw.items()
        )
        yield f"    {variable} = bl.TestStream({{{schema}}})"
        for method, argument in calls:
            yield from _call(f"    {variable} = {variable}.{method}", argument)
    streams = ", ".join(f"{source!r}: {variable}" for source, variable in variables.items())
    yield f"    found = bl.testing.run_with({name}, {{{streams}}})"
    for sink, rows in expected.items():
        yield from _call("    bl.testing.assert_panes", [*rows], f"found[{sink!r}], ")


def _call(begin: str, argument: Any, before: str = "") -> Iterator[str]:
    if isinstance(argument, Microseconds):
        us = int(argument)
        seconds, rest = divmod(us, 1_000_000)
        text = repr(format_time(us)) if begin.endswith("_to") else repr(f"{us}us" if rest else f"{seconds}s")
        yield f"{begin}({text})"
    elif not argument:
        yield f"{begin}({before}[])"
    else:
        yield f"{begin}({before}["
        for row in argument:
            shown = {name: _plain(value) for name, value in row.items()} if before else row
            yield f"        {python_value(shown)},"
        yield "    ])"


def _plain(value: Any) -> Any:
    """Returns the value as text if it is a time with a zone, which expected panes may have as text."""
    return value.isoformat() if isinstance(value, datetime) and value.tzinfo is not None else value
