"""A runner that executes Apache Beam pipelines in process, on the stages of this engine. Experimental.

Needs `beamlike[beam]`. May import `stages` and all below it.
"""

from __future__ import annotations

from beamlike.beam.runner import BeamlikeRunner

__all__ = ["BeamlikeRunner"]
