"""A user-defined source is opened for each run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_one_object_many_runs import (
    Numbered,
    Opened,
    counted,
    local,
    put_lines,
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_a_source_opens_must_be_of_its_kind() -> None:
    class Wrong(Numbered):
        def opened(self, position: Mapping[str, Any]) -> Any:
            return iter([])

    put_lines([1])
    p, _ = counted(Wrong("in"))
    with pytest.raises(TypeError, match=r"Wrong\.opened must return a source with the same methods"):
        p.run()


def test_a_source_is_opened_where_its_run_begins_and_closed_at_its_end() -> None:
    calls: list[Any] = []

    class Told(Numbered):
        def opened(self, position: Mapping[str, Any]) -> Opened:
            calls.append(dict(position))
            return Closing(self.path, 0)

    class Closing(Opened):
        def close(self) -> None:
            calls.append("closed")

    put_lines([1, 2])
    p, _ = counted(Told("in"))
    p.run(local("a"))
    p.run(local("a"))
    assert calls == [{}, "closed", {"next": 2, "greatest": 2}, "closed"]
