"""`beamlike why` reads the records of a running pipeline, and names the split that is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.records.model import BatchRecord
from tests.support.strategy_cases import came, passed, stream, timed


def why(run: Path, *options: str) -> list[str]:
    """Returns the sentences of the command line."""
    result = CliRunner().invoke(main, ["why", str(run), *options])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_why_names_the_split_that_is_silent_while_a_run_goes_on(tmp_path: Path) -> None:
    records, told = tmp_path / "records.jsonl", list[list[str]]()
    steps = [came(**{"3": 43, "1": 60}), passed(252), came(**{"1": 290})]
    p = bl.Pipeline("scores")
    strategy = bl.BoundedOutOfOrderness("5s", per_split="split")
    console = timed(p, "console", stream(steps), strategy).window_into(bl.Sessions("1m"))
    sessions = console.group_by("user", name="sessions").aggregate(n=bl.count())
    averages = sessions.window_into(bl.FixedWindows("2m")).aggregate(n=bl.mean("n"))
    averages.named("average").write("out", bl.Memory())

    def ask(record: BatchRecord) -> None:
        if record.batch == len(steps) - 1:
            told.append(why(records, "--stage", "sessions"))
            told.append(why(tmp_path, "--stage", "average", "--window", "1970-01-01T00:00:30Z"))

    p.run(bl.LocalRunner(records=records, on_batch=ask))
    of_stage, of_window = told
    silent = "waits for source `console`, split 3, silent for 4m12s; set idle_after to let it pass"
    assert f"stage `sessions` {silent}" in of_stage
    assert of_stage[0].endswith("; the run is running")
    assert any("stage `average` waits for stage `sessions`" in line for line in of_window)
    assert any(silent in line for line in of_window)
    assert why(records) == [
        "after batch 3, at 1970-01-01T00:04:12Z; the run has ended",
        "all stages are at the end of input: nothing waits any more",
    ]


NAMES = {None: "null", "null": "'null'", "'null'": "''null''", "'null": "''null'", "nulls": "nulls"}
"""Keys, some of which look like the text of another, with their texts."""


@pytest.mark.parametrize("user", NAMES)
@pytest.mark.parametrize("keys", [("user",), ("team", "user")])
def test_a_key_without_a_value_and_the_text_null_are_told_apart(
    tmp_path: Path, keys: tuple[str, ...], user: str | None
) -> None:
    p, records, told = bl.Pipeline("p"), tmp_path / "records.jsonl", dict[str, list[str]]()
    given = [{"at": 1, "user": user, "team": "a"}, {"at": 30, "user": "ada", "team": "b"}]
    rows = bl.Rows(given, schema={"at": int, "user": str, "team": str})
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    minutes = read.window_into(bl.FixedWindows("1m"), timestamp_combiner=bl.EARLIEST)
    minutes.group_by(*keys, name="counted").aggregate(n=bl.count()).write("out", bl.Memory())

    def ask(record: BatchRecord) -> None:
        for name in NAMES.values() if record.batch == 0 else ():
            key = ", ".join(["a", name][-len(keys) :])
            told[name] = why(records, "--stage", "counted", "--key", key)

    p.run(bl.LocalRunner(records=records, on_batch=ask))
    shown = f": key {'a, ' * (len(keys) - 1)}{NAMES[user]} in [1970-01-01"
    none = "no element of key"
    assert [any(shown in line for line in lines) for lines in told.values()] == [
        name == NAMES[user] for name in told
    ]
    assert [any(none in line for line in lines) for lines in told.values()] == [
        name != NAMES[user] for name in told
    ]
