"""Pickled objects of users are loaded from a checkpoint of one's own, and from elsewhere only if that is trusted."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import CheckpointError
from beamlike.replaying.recording import open_recording
from beamlike.runtime.savepoint.trust import pickled
from tests.support.every_operator import OPERATORS, source

REFUSED = r"has pickled objects in the state of stage .*trust=True, or --trust"


class Attack:
    """The machine on which the tests are: the attacker's, where the file is made, or the victim's."""

    victim: ClassVar[bool] = False


def loaded(items: list[Any]) -> Items:
    """Is called by a pickle that is loaded: leaves a file on the victim's machine."""
    if Attack.victim:
        Path("ran").touch()
    return Items(items)


class Items(list[Any]):
    """A list whose pickle runs code when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return loaded, (list(self),)


class All(bl.CombineFn):
    def create_accumulator(self) -> Items:
        return Items()

    def add_input(self, accumulator: Items, element: Any) -> Items:
        return Items([*accumulator, element])

    def merge_accumulators(self, accumulators: Any) -> Items:
        return Items(one for each in accumulators for one in each)

    def extract_output(self, accumulator: Items) -> int:
        return len(accumulator)


class Seen(bl.Process):
    items = bl.Value(object, default=None)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.items = Items([*(self.items or []), row["at"]])
        yield {"k": self.key.k, "n": len(self.items)}


def combined(rows: bl.Collection, windows: bl.WindowFn, *keys: str, **choices: Any) -> bl.Collection:
    rows = rows.window_into(windows, **choices)
    result = bl.combine(All(), "at", pl.Int64)
    return rows.group_by(*keys).aggregate(n=result) if keys else rows.aggregate(n=result)


def seen(rows: bl.Collection, order: Any) -> bl.Collection:
    return rows.group_by("k").process(Seen(), {"k": str, "n": int}, order=order)


def of_side(rows: bl.Collection) -> bl.Collection:
    side = bl.as_dict(combined(rows, bl.FixedWindows("1h"), "k"), "k", "n")
    return rows.window_into(bl.FixedWindows("1h")).map(
        lambda row, d: {"n": len(d)}, {"n": int}, side={"d": side}
    )


EARLY = {"trigger": bl.Repeatedly(bl.AfterCount(1))}
KINDS: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "fixed": lambda c: combined(c, bl.FixedWindows("1h"), "k"),
    "sliding": lambda c: combined(c, bl.SlidingWindows("1h", "30m"), "k"),
    "sessions": lambda c: combined(c, bl.Sessions(gap="1h"), "k"),
    "global": lambda c: combined(c, bl.GlobalWindows(), "k", **EARLY),
    "retracting": lambda c: combined(c, bl.FixedWindows("1h"), "k", accumulation="retracting", **EARLY),
    "beside others": lambda c: c.window_into(bl.FixedWindows("1h")).group_by("k").aggregate(
        first=bl.min("at"), n=bl.combine(All(), "at", pl.Int64), last=bl.max("at")
    ),
    "second stage": lambda c: combined(
        c.window_into(bl.FixedWindows("1s")).group_by("k").aggregate(at=bl.max("at")), bl.FixedWindows("1h"), "k"
    ),
    "side": of_side,
    "process": lambda c: seen(c, "time"),
    "process arrival": lambda c: seen(c, "arrival"),
    "process after a process": lambda c: seen(seen(c, "time").with_columns(at=bl.col("n")), "arrival"),
}  # fmt: skip


def pipeline(kind: str) -> bl.Pipeline:
    p = bl.Pipeline("p")
    rows = p.read("rows", bl.JSONLines("in", schema={"k": str, "m": str, "at": int}), timestamp="at",
                  timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1s"))  # fmt: skip
    KINDS[kind](rows).write("out", bl.JSONLines("out"))
    return p


def fixed() -> bl.Pipeline:
    return pipeline("fixed")


def run(kind: str, batch: int) -> None:
    Path("in").mkdir(exist_ok=True)
    lines = [{"k": k, "m": k, "at": 3 * batch + number} for number, k in enumerate("aab")]
    Path(f"in/{batch}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.utime(f"in/{batch}.jsonl", (1_000_000_000 + batch,) * 2)
    pipeline(kind).run(bl.LocalRunner(checkpoint="checkpoint"))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    Attack.victim = False


def ran() -> bool:
    return Path("ran").exists()


def made(kind: str) -> None:
    """Makes a run of three batches, a savepoint after the second one, and a recording of the third one."""
    run(kind, 0)
    run(kind, 1)
    bl.savepoint.save("checkpoint", "savepoints/second")
    run(kind, 2)
    bl.record("checkpoint", pipeline(kind), "third.recording", batches=2)
    bl.record("checkpoint", pipeline(kind), "first.recording", batches=0)
    assert not ran()
    Attack.victim = True


def test_the_code_would_be_seen(elsewhere: None) -> None:
    Attack.victim = True
    pickle.loads(pickle.dumps(Items()))
    assert ran()


@pytest.mark.parametrize("kind", KINDS)
def test_state_from_elsewhere_runs_nothing_until_it_is_trusted(kind: str, elsewhere: None) -> None:
    made(kind)
    p = pipeline(kind)
    with pytest.raises(CheckpointError, match=f"the recording of .*{REFUSED}"):
        bl.replay("third.recording", p).go()
    with pytest.raises(CheckpointError, match=f"the savepoint .*{REFUSED}"):
        bl.savepoint.restore("savepoints/second", "restored", p, runner="local")
    assert not os.path.exists("restored/beamlike")
    with pytest.raises(CheckpointError, match=f"the savepoint .*{REFUSED}"):
        bl.replay("checkpoint", p, batch=2, savepoint="savepoints").go()
    assert not ran()
    # A recording that begins with no state has no pickles.
    assert not bl.replay("first.recording", p).comparison.differences
    Path("ran").unlink(missing_ok=True)
    assert not bl.replay("third.recording", p, trust=True).comparison.differences
    assert ran()
    assert not bl.replay("checkpoint", p, batch=2, savepoint="savepoints", trust=True).comparison.differences
    assert bl.savepoint.restore("savepoints/second", "restored", p, runner="local", trust=True) == []


def test_a_checkpoint_of_ones_own_needs_no_trust(elsewhere: None) -> None:
    made("fixed")
    assert not bl.replay("checkpoint", fixed(), batch=2).comparison.differences
    run("fixed", 3)
    assert ran()


def test_a_trace_from_a_savepoint_that_is_not_trusted_says_so(elsewhere: None) -> None:
    made("fixed")
    assert bl.trace_row("checkpoint", fixed(), "rows", {"k": "b"}, savepoint="savepoints")
    assert bl.trace_row("checkpoint", fixed(), "rows", {"k": "b"}, savepoint="savepoints", trust=True)


@pytest.mark.parametrize("name", [None, "other"])
def test_a_forged_manifest_does_not_hide_pickles(name: str | None, elsewhere: None) -> None:
    made("fixed")
    forged = open_recording("third.recording")
    ((own, stage),) = forged.manifest["stages"].items()
    forged.manifest["stages"] = {} if name is None else {name: stage}
    forged.state |= {(name or own, key): value for (of, key), value in forged.state.items() if of == own}
    forged.write("forged.recording")
    with pytest.raises(CheckpointError):
        bl.replay("forged.recording", fixed()).go()
    assert not ran()


def test_the_commands_ask_for_trust(elsewhere: None) -> None:
    made("fixed")
    target = f"{__name__}:fixed"
    for command in (
        ["replay", "third.recording", target],
        ["replay", "checkpoint", target, "--batch", "2", "--savepoint", "savepoints"],
        [
            "record",
            "checkpoint",
            target,
            "--batches",
            "2",
            "--into",
            "new.recording",
            "--savepoint",
            "savepoints",
        ],
        ["restore", "savepoints/second", "restored", target, "--runner", "local"],
    ):
        refused = CliRunner().invoke(main, command)
        assert refused.exit_code == 1
        assert "--trust" in refused.output
        assert not ran()
        assert CliRunner().invoke(main, [*command, "--trust"], catch_exceptions=False).exit_code == 0
        Path("ran").unlink(missing_ok=True)


@pytest.mark.spark
def test_spark_restores_only_what_is_trusted(spark: SparkSession, elsewhere: None) -> None:
    made("fixed")
    with pytest.raises(CheckpointError, match=f"the savepoint .*{REFUSED}"):
        bl.savepoint.restore("savepoints/second", "restored", fixed(), session=spark)
    assert not ran()
    assert not os.path.exists("restored")


def test_built_in_operators_load_no_pickles(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("unpickled")

    monkeypatch.setattr("stages.pickled.load", refuse)
    p = bl.Pipeline("p")
    for name, operator in OPERATORS.items():
        if not name.startswith("flatten"):  # which have no state, and the same name
            operator(p, source(p, f"source of {name}")).write(name, bl.Memory())
    assert pickled(p.plan()) == {}
    run = p.run(bl.LocalRunner(checkpoint="checkpoint"))
    assert len(run.batches) > 2
    assert len(run.batches[-1].stages) > 25
