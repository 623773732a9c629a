"""A runner that executes Apache Beam pipelines on the stages of this engine, in process or on Spark. Experimental.

May import `spec` and all below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamlike.beam.read import Read
    from beamlike.beam.runner import BeamlikeRunner, plan

__all__ = ["BeamlikeRunner", "Read", "plan"]


def __getattr__(name: str) -> Any:
    """Imports the runner when it is used first, since Beam is slow to import and may not be installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        from beamlike.beam import read, runner
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "apache_beam":
            raise
        raise ImportError(f"{__name__}.{name} needs apache_beam: pip install 'beamlike[beam]'") from error
    return getattr(read if name == "Read" else runner, name)
