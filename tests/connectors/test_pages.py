"""The code of the pages about connectors does what they say, against a broker."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka import Cluster
from tests.support.places import ROOT

pytestmark = pytest.mark.connectors

_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n(?P<shown>(?:    [^\n]*\n)+))?", re.M | re.S)


def test_the_page_about_kafka(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic(name="plays")
    kafka.topic(name="counts")
    plays = [("ada", 1), ("ada", 2), ("bob", 30)]
    kafka.send(topic, [{"user": user, "at": at} for user, at in plays])
    page = (ROOT / "docs" / "kafka.md").read_text()
    namespace: dict[str, Any] = {}
    for block in _PYTHON.finditer(page):
        code = block["code"].replace("localhost:9092", kafka.servers)
        with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, "kafka.md", "exec"), namespace)
        shown = [line.strip() for line in (block["shown"] or "").splitlines()]
        assert out.getvalue().splitlines() == shown, block["code"]
