"""The examples report that they are right, and draw the pictures of the docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from examples import carts, silence, throttle
from tests.support.places import ROOT

EXAMPLES = {"silence": silence.main, "carts": carts.main, "throttle": throttle.main}


def texts(picture: Path) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture.read_text(encoding="utf-8"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_is_right_and_its_picture_is_that_of_the_docs(example: str, tmp_path: Any) -> None:
    done = CliRunner().invoke(EXAMPLES[example], ["--work", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "OK" in done.output
    picture = ROOT / "docs" / "pictures" / f"{example}.svg"
    assert texts(picture) == texts(tmp_path / picture.name)
    assert picture.stat().st_size < 150_000
