"""Without Beam, the package can be imported, and the use of its runner names the missing extra."""

from __future__ import annotations

import sys

import pytest

import beamlike.beam


def test_without_beam_the_runner_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("beamlike.beam.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(beamlike.beam, "runner", raising=False)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.setitem(sys.modules, "apache_beam.portability.api", None)
    with pytest.raises(
        ImportError, match=r"BeamlikeRunner needs apache_beam: pip install 'beamlike\[beam\]'"
    ):
        _ = beamlike.beam.BeamlikeRunner


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match="it has BeamlikeRunner"):
        _ = beamlike.beam.Runner  # type: ignore[attr-defined]
