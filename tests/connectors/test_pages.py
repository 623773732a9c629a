"""The code of the pages about connectors has the shown output, against a broker."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka import Cluster
from tests.connectors.redis import Queues
from tests.support.places import ROOT

pytestmark = pytest.mark.connectors

PLAYS = [("ada", 1), ("ada", 2), ("bob", 30)]
_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n(?P<shown>(?:    [^\n]*\n)+))?", re.M | re.S)


def _run(name: str, server: str, here: str, folder: Path) -> None:
    """Runs each block and compares its output with the page."""
    namespace: dict[str, Any] = {}
    for block in _PYTHON.finditer((ROOT / "docs" / name).read_text()):
        code = block["code"].replace(server, here)
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, name, "exec"), namespace)
        shown = [line.strip() for line in (block["shown"] or "").splitlines()]
        assert out.getvalue().splitlines() == shown, block["code"]


def test_the_page_about_redis(redis: Queues, tmp_path: Path) -> None:
    redis.send("plays", *({"user": user, "at": at} for user, at in PLAYS))
    _run("redis.md", "redis://localhost:6379/0", redis.url, tmp_path)


def test_the_tutorial_from_a_backfill_to_live(kafka: Cluster, tmp_path: Path) -> None:
    _run("tutorials/backfill.md", "localhost:9092", kafka.servers, tmp_path)


def test_the_page_about_kafka(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic(name="plays")
    kafka.topic(name="counts")
    kafka.send(topic, [{"user": user, "at": at} for user, at in PLAYS])
    _run("kafka.md", "localhost:9092", kafka.servers, tmp_path)
