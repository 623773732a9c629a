"""A file calls only classes that fit their places, both when it is read and by `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import BadFile
from beamlike.spec.files import read

CALLED: list[str] = []
HERE = __name__


def spy(*given: Any, **named: Any) -> list[Any]:
    """Records a call."""
    CALLED.append("spy")
    return []


class Spy:
    """A class that fits no place, and records its construction."""

    def __init__(self, *given: Any) -> None:
        CALLED.append("Spy")

    def write(self, text: str) -> None:
        """Does nothing; it has the name of a sink's method."""


class Totals(bl.Process):
    """A user-defined process."""

    def element(self, row: dict[str, Any]) -> None:
        """Emits nothing."""


class Longest(bl.CombineFn):
    """A user-defined aggregate."""


@attrs.frozen
class Over:
    """A function with an argument."""

    least: int

    def __call__(self, row: dict[str, Any]) -> bool:
        return int(row["points"]) > self.least


@attrs.frozen
class Two:
    """A user-defined source."""

    bounded = True

    def schema(self) -> pl.Schema:
        """Returns one column."""
        return pl.Schema({"points": pl.Int64})


@attrs.frozen
class Nowhere:
    """A user-defined sink."""

    def write(self, frame: pl.DataFrame, part: Any) -> None:
        """Writes nothing."""


def file_of(steps: str, source: str = "{Rows: [{user: ada, points: 3, at: 0}]}") -> str:
    """Returns a file with a step."""
    return f"""\
pipeline: p
collections:
  a:
    read: {{source: {source}, timestamp: at, timestamp_unit: s, watermark: MonotonousTimestamps}}
    steps:
    - {steps}
"""


PLACES = [
    "write: {name: out, sink: %s}",
    "window_into: {windows: %s}",
    "window_into: {windows: {FixedWindows: 1m}, trigger: %s}",
    "window_into: {windows: {FixedWindows: 1m}, trigger: {AfterWatermark: {early: %s}}}",
    "window_into: {windows: {FixedWindows: 1m}, timestamp_combiner: %s}",
    "with_watermark: %s",
    "apply: %s",
    "{group_by: user, process: {process: %s, schema: {user: str}}}",
    "{group_by: user, process_batches: {function: 'json:dumps', schema: {a: str}, timers: {t: %s}}}",
    "map: %s",
    "filter: %s",
    "map: {fn: 'json:dumps', schema: {a: str}, side: {x: %s}}",
    "map_batches: {fn: 'json:dumps', schema: {a: str}, calls: %s}",
]
CALLS = [f"{{'{HERE}:{name}': {given}}}" for name in ("spy", "Spy") for given in ("x", "{}", "[1, 2]")]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", [*CALLS, f"{HERE}:Spy"])
def test_a_function_or_another_class_is_not_called(place: str, call: str) -> None:
    CALLED.clear()
    with pytest.raises(BadFile, match=r"p\.yaml:6:"):
        read(file_of(place % call), "p.yaml", {})
    assert CALLED == []


@pytest.mark.parametrize("call", [*CALLS, f"{HERE}:Spy", f"{HERE}:spy"])
def test_a_source_is_of_a_class_of_sources(call: str) -> None:
    CALLED.clear()
    for source in (call, f"{{Refreshed: {{source: {call}, every: 1m}}}}"):
        with pytest.raises(BadFile):
            read(file_of("distinct", source), "p.yaml", {})
    assert CALLED == []


@pytest.mark.parametrize("name", ["spy", "Spy"])
def test_a_combine_fn_is_of_such_a_class(name: str) -> None:
    CALLED.clear()
    with pytest.raises(BadFile):
        read(file_of(f"""aggregate: {{x: 'combine("{HERE}:{name}", user, str)'}}"""), "p.yaml", {})
    assert CALLED == []


@pytest.mark.parametrize("module", ["os:system", "io:FileIO", "zipfile:ZipFile", "subprocess:Popen"])
def test_check_calls_nothing_of_the_standard_library(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = f"{{'{module}': [touch here, w]}}"
    for place in ("write: {name: out, sink: %s}", "map: %s"):
        Path("p.yaml").write_text(file_of(place % call))
        result = CliRunner().invoke(main, ["check", "p.yaml"])
        assert result.exit_code != 0
        assert f"{module} is a" in result.output
        assert [one.name for one in Path().iterdir()] == ["p.yaml"]


@pytest.mark.parametrize("name", ["spy", "Spy"])
def test_a_plain_value_is_never_a_reference(name: str) -> None:
    CALLED.clear()
    given = f"[{{user: ada, points: 3, at: '{HERE}:{name}'}}]"
    p = read(f"pipeline: p\ncollections:\n  a: {{read: {{Rows: {given}}}}}\n", "p.yaml", {})
    assert bl.Collection(p, p.calls[-1].made).collect()["at"].to_list() == [f"{HERE}:{name}"]
    assert CALLED == []


@pytest.mark.parametrize(
    "step",
    [
        f"{{group_by: user, process: {{process: '{HERE}:Totals', schema: {{user: str}}}}}}",
        f"""aggregate: {{x: 'combine("{HERE}:Longest", user, str)'}}""",
        f"filter: {{'{HERE}:Over': {{least: 2}}}}",
        f"filter: {{'{HERE}:Over': 2}}",
        f"write: {{name: out, sink: '{HERE}:Nowhere'}}",
        f"write: {{name: out, sink: {{'{HERE}:Nowhere': {{}}}}}}",
        f"map: {HERE}:spy",
    ],
)
def test_a_class_that_fits_its_place_is_called(step: str) -> None:
    CALLED.clear()
    read(file_of(step).replace("steps:\n", "steps:\n    - window_into: {FixedWindows: 1m}\n"), "p.yaml", {})
    assert CALLED == []


def test_a_source_of_a_module_is_read() -> None:
    text = f"pipeline: p\ncollections:\n  a: {{read: '{HERE}:Two'}}\n"
    p = read(text, "p.yaml", {})
    assert bl.Collection(p, p.calls[-1].made).schema == {"points": pl.Int64}


def test_the_error_of_a_module_has_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raises_when_imported.py").write_text("raise KeyError('x')")
    with pytest.raises(
        BadFile, match=r"p.yaml:6:12: the module 'raises_when_imported' cannot be imported: 'x'"
    ):
        read(file_of("map: raises_when_imported:f"), "p.yaml", {})
