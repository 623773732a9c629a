"""Executors of a cluster that cannot run operators are refused by a sentence. A run that waits for them tells it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.standalone import Standalone, standalone
from tests.support.places import ROOT

pytestmark = [pytest.mark.connectors, pytest.mark.spark]

ASKING = """
import json, logging, sys
from beamlike.spark.session.connect import require_reached
from beamlike.spark.session.launch import start
from beamlike.spark.session.waiting import telling_of_executors

master, config, asked = sys.argv[1], *map(json.loads, sys.argv[2:])
session = start(master, "asking", config)
with telling_of_executors(session, 1.0):
    for file, needed in asked:
        try:
            require_reached(session, file, tuple(needed))
            print("fine")
        except Exception as error:
            print(type(error).__name__, json.dumps(str(error)))
session.stop()
"""


def asked(cluster: Standalone, *what: tuple[str, list[str]], **config: str) -> subprocess.Popen[str]:
    small = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    command = [sys.executable, "-c", ASKING, cluster.url, json.dumps({**small, **config}), json.dumps(what)]
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ}, **piped)


def test_what_executors_lack_is_one_sentence(tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.touch()
    with standalone(workers=0) as cluster:
        waiting = asked(
            cluster,
            (str(there), ["json"]),
            ("", ["json"]),
            (str(tmp_path / "none"), ["json"]),
            (str(there), ["no_such_package", "json"]),
        )
        assert waiting.stderr is not None
        # A worker is started when the driver has told that there is none.
        assert any("has started no executor for 1 s" in line for line in waiting.stderr)
        cluster.add_worker()
        said, _ = waiting.communicate(timeout=120)
        fine, empty, unseen, lacking = said.splitlines()
        assert fine == empty == "fine"
        assert unseen.startswith("CheckpointError")
        assert "cannot read" in unseen
        assert "lacks no_such_package, which beamlike needs" in lacking
        other = asked(cluster, ("", []), **{"spark.pyspark.python": "/no/such/python"})
        said, _ = other.communicate(timeout=120)
        assert said.startswith("RunError")
        assert "cannot run Python functions" in said
        assert len(json.loads(said.partition(" ")[2]).splitlines()) == 1
