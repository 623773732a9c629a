"""State is matched by computation when lines of a pipeline are reordered, or others are added before them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import CheckpointError, PlanError

PAGES = {"cart": 100, "home": 7, "help": 3}
MORE = 5

RUNNERS = ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]


def clicks(folder: Path, number: int, counts: dict[str, int]) -> None:
    """Writes a file with the given number of clicks of each page, all of one day."""
    folder.mkdir(exist_ok=True)
    rows = [{"user": "u", "page": page, "at": at} for page, count in counts.items() for at in range(count)]
    (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def shop(folder: Path, pages: Iterable[str], *, deep: bool = True) -> bl.Pipeline:
    """Declares daily counts of each page, in this order; if `deep`, with a second stage after each."""
    p = bl.Pipeline("shop")
    source = bl.JSONLines(folder / "in", schema={"user": str, "page": str, "at": int})
    rows = p.read(
        "clicks", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h")
    )
    for page in pages:
        days = rows.filter(bl.col("page") == page).window_into(bl.FixedWindows("1d"))
        counts = days.group_by("user").aggregate(n=bl.count())
        counts.write(page, bl.JSONLines(folder / "out" / page))
        if deep:
            most = counts.group_by("user").aggregate(most=bl.max("n"))
            most.write(f"{page} most", bl.JSONLines(folder / "most" / page))
    return p


def counted(folder: Path) -> dict[str, int]:
    """Returns the written counts, by page."""
    return {
        file.parent.name: json.loads(line)["n"]
        for file in folder.glob("out/*/*.jsonl")
        for line in file.read_text().splitlines()
    }


def runner_of(name: str, request: pytest.FixtureRequest, folder: Path, **options: Any) -> Any:
    if name == "local":
        return bl.LocalRunner(checkpoint=folder, **options)
    return bl.SparkRunner(
        checkpoint=str(folder), shards=2, session=request.getfixturevalue("spark"), **options
    )


@pytest.mark.parametrize("name", RUNNERS)
def test_state_stays_with_its_computation(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    checkpoint, deep = tmp_path / "checkpoint", name == "local"
    clicks(tmp_path / "in", 0, PAGES)
    shop(tmp_path, ["cart", "home"], deep=deep).run(runner_of(name, request, checkpoint))
    clicks(tmp_path / "in", 1, dict.fromkeys(PAGES, MORE))
    with pytest.raises(CheckpointError) as refused:
        shop(tmp_path, ["help", "cart"], deep=deep).run(runner_of(name, request, checkpoint))
    assert (
        "has changed: it was of clicks -> filter page == 'home', now clicks -> filter page == 'help'"
        in str(refused.value)
    )
    with pytest.raises(PlanError, match="cannot be told apart"):
        shop_twice(tmp_path).run(runner_of(name, request, checkpoint))
    run = shop(tmp_path, ["help", "home", "cart"], deep=deep).run(
        runner_of(name, request, checkpoint, drain=True)
    )
    assert counted(tmp_path) == {"cart": 105, "home": 12, "help": MORE}
    first = {"clicks.aggregate", "clicks.aggregate_2", "clicks.aggregate_3"}
    then = {"clicks.aggregate.aggregate", "clicks.aggregate_2.aggregate", "clicks.aggregate.aggregate_2"}
    assert {stage for batch in run.batches for stage in batch.stages} == first | (then if deep else set())


def shop_twice(folder: Path) -> bl.Pipeline:
    """Declares two unnamed counts of the same rows."""
    p = bl.Pipeline("shop")
    source = bl.JSONLines(folder / "in", schema={"user": str, "page": str, "at": int})
    rows = p.read(
        "clicks", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h")
    )
    for number in range(2):
        days = rows.window_into(bl.FixedWindows("1d")).group_by("user").aggregate(n=bl.count())
        days.write(f"{number}", bl.JSONLines(folder / "out" / f"{number}"))
    return p


@pytest.mark.parametrize("to", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_a_savepoint_is_restored_into_a_plan_in_another_order(
    to: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    clicks(tmp_path / "in", 0, PAGES)
    shop(tmp_path, ["cart", "home"]).run(bl.LocalRunner(checkpoint=tmp_path / "one"))
    bl.savepoint.save(tmp_path / "one", tmp_path / "saved")
    clicks(tmp_path / "in", 1, dict.fromkeys(PAGES, MORE))
    plan = shop(tmp_path, ["help", "home", "cart"]).plan()
    given = {} if to == "local" else {"shards": 2, "session": request.getfixturevalue("spark")}
    with pytest.raises(
        CheckpointError, match=r"which has no name of yours, has changed.*filter page == 'help'"
    ):
        bl.savepoint.restore(
            tmp_path / "saved", tmp_path / "two", shop(tmp_path, ["help", "cart"]).plan(), runner=to, **given
        )
    assert bl.savepoint.restore(tmp_path / "saved", tmp_path / "two", plan, runner=to, **given) == []
    shop(tmp_path, ["cart", "help", "home"]).run(runner_of(to, request, tmp_path / "two", drain=True))
    assert counted(tmp_path) == {"cart": 105, "home": 12, "help": MORE}


def test_without_a_checkpoint_what_cannot_be_told_apart_runs(tmp_path: Path) -> None:
    clicks(tmp_path / "in", 0, PAGES)
    shop_twice(tmp_path).run()
    assert counted(tmp_path) == {"0": 110, "1": 110}
