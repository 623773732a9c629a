"""Classes of a script reach another process, though their annotations are texts that cannot be resolved there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars as pl

SCRIPT = """
from __future__ import annotations
import sys
import beamlike as bl
bl.Collection
assert "pydantic" not in sys.modules  # it is optional, so only a script may import it
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple, NotRequired, TypedDict
from pydantic import BaseModel
from pyspark import cloudpickle

class Kind(Enum):
    PAGE = "page"

@dataclass
class Place:
    at: datetime
    kind: Kind

class Click(NamedTuple):
    user: str
    places: list[Place]

class Session(BaseModel):
    user: str
    last: Place | None

class Short(TypedDict):
    user: str
    kind: NotRequired[Kind]

def session(row: Click) -> Session:
    assert isinstance(row.places[0].kind, Kind)
    return Session(user=row.user, last=row.places[-1])

def short(row: Session) -> list[Short]:
    return [{"user": row.user}, {"user": row.user, "kind": row.last.kind}]

source = bl.Rows([], schema=Click)
sessions = bl.Pipeline("p").read("clicks", source).map(session)
steps = sessions.node.origin, sessions.flat_map(short).node.origin
open(sys.argv[1], "wb").write(cloudpickle.dumps(steps))
"""


def test_the_classes_of_a_script_are_known_in_another_process(tmp_path: Path) -> None:
    sent = tmp_path / "steps"
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(sent)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    frame = pl.LazyFrame({"user": ["ada"], "places": [[{"at": datetime(2026, 1, 1), "kind": "page"}]]})
    for step in pickle.loads(sent.read_bytes()):
        frame = step.apply(frame)
    assert frame.collect().rows() == [("ada", None), ("ada", "page")]
