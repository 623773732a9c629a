"""State with objects that can no longer be read: the run stops and names them, and resumes once they can be read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import beamlike as bl


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A user's module with the class of the state."""
    made = ModuleType("of_the_user")
    exec("class Seen:\n    count = 0\n", made.__dict__)
    sys.modules[made.__name__] = made
    yield made
    sys.modules.pop(made.__name__, None)


def seen() -> Any:
    return sys.modules["of_the_user"].Seen() if "of_the_user" in sys.modules else Other()


class Other:
    count = 0


class Plain(bl.Process):
    kept = bl.Value(object)

    def element(self, row: dict[str, Any]) -> Any:
        self.kept = self.kept or seen()
        self.kept.count += 1
        yield {"n": self.kept.count}


class Careless(Plain):
    """A process that ignores the error of unreadable state."""

    def element(self, row: dict[str, Any]) -> Any:
        try:
            yield from super().element(row)
        except Exception:
            self.kept = None


class Lasting(Plain):
    kept = bl.Value(object, ttl="30d")


class Count(bl.CombineFn):
    def create_accumulator(self) -> Any:
        return seen()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        accumulator.count += 1
        return accumulator

    def merge_accumulators(self, accumulators: list[Any]) -> Any:
        merged = seen()
        merged.count = sum(one.count for one in accumulators)
        return merged

    def extract_output(self, accumulator: Any) -> int:
        return int(accumulator.count)


def pipeline(what: str) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.JSONLines("in", schema={"user": str, "at": int}, order="path")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    if what == "CombineFn":
        windows = rows.window_into(bl.FixedWindows("1h")).group_by("user", name="counted")
        windows.aggregate(n=bl.combine(Count(), "at", int)).write("out", bl.JSONLines("out"))
    else:
        process = {"plain": Plain, "careless": Careless, "lasting": Lasting}[what]()
        counted = rows.group_by("user", name="counted").process(process, {"n": int}, keep_forever=True)
        counted.write("out", bl.JSONLines("out"))
    return p


def put(name: str, *times: int) -> None:
    Path("in").mkdir(exist_ok=True)
    Path("in", name).write_text("".join(json.dumps({"user": "u", "at": at}) + "\n" for at in times))


def written() -> list[int]:
    lines = [line for part in Path("out").glob("*") for line in part.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


@pytest.mark.parametrize(
    ("what", "told", "counts"),
    [
        ("plain", "field 'kept'", [1, 2, 3, 4, 5]),
        ("careless", "field 'kept'", [1, 2, 3, 4, 5]),
        ("lasting", "field 'kept'", [1, 2, 3, 4, 5]),
        ("CombineFn", "aggregate 'n', the CombineFn Count", [1, 4]),
    ],
)
@pytest.mark.parametrize("change", ["moved", "changed"])
def test_what_cannot_be_read_stops_the_run_and_it_goes_on_once_it_can(
    what: str,
    told: str,
    counts: list[int],
    change: str,
    module: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = bl.LocalRunner(checkpoint="checkpoint")
    put("1.jsonl", 1, 2, 3)
    pipeline(what).run(runner)

    def unlike(self: Any, state: Any) -> None:
        raise TypeError("it has other attributes now")

    put("2.jsonl", 4, 5000)
    if change == "moved":
        del sys.modules["of_the_user"]
    else:
        module.Seen.__setstate__ = unlike
    why = "No module named 'of_the_user'" if change == "moved" else "it has other attributes now"
    with pytest.raises(bl.StepError, match=f"'counted': .* {told},? .*of_the_user.Seen, .*{why}"):
        pipeline(what).run(runner)
    assert not list(Path("checkpoint/beamlike/dead-letters").glob("*.jsonl"))

    if change == "moved":
        sys.modules["of_the_user"] = module
    else:
        del module.Seen.__setstate__
    pipeline(what).run(bl.LocalRunner(checkpoint="checkpoint", drain=True))
    assert written() == counts
