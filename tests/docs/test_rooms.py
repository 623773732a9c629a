"""The rooms of the code: few enough for a newcomer, and in the picture of docs/architecture.md."""

from __future__ import annotations

import tomllib

from tests.docs.rooms import PICTURE, rooms
from tests.support.places import ROOT


def test_the_picture_shows_the_rooms_that_there_are() -> None:
    drawn = PICTURE.read_text()
    missing = [room.name for room in rooms() if f">{room.name}<" not in drawn]
    assert missing == [], "draw it anew: make rooms"


def test_every_room_says_what_lives_there() -> None:
    assert [room.name for room in rooms() if not room.facts[0]] == []


def test_the_floors_of_beamlike_and_what_is_in_its_root_can_be_taken_in() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract.get("containers") == ["beamlike"])
    assert len(floors) <= 11
    entries = [path for path in (ROOT / "beamlike").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 24
