"""Checks on import that Python finds the packages beside beamlike, not a file of the user with the same name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


def require_own(names: Iterable[str], root: str) -> None:
    """Raises `ImportError` if a package would be imported from elsewhere than the folder `root`, without importing it.

    The message names the file or folder that hides the package.
    """
    for name in names:
        own, found = os.path.join(root, name), _places(name)
        if os.path.realpath(own) in map(os.path.realpath, found):
            continue
        if not found:
            raise ImportError(
                f"beamlike lacks its package {name!r} in {root}; install beamlike again", name=name
            )
        raise ImportError(
            f"beamlike needs its own package {name!r}, which {found[0]} hides: rename that file or folder, or start "
            "Python elsewhere (Python searches the folder of the script first, then those of PYTHONPATH)",
            name=name,
            path=found[0],
        )


def _places(name: str) -> list[str]:
    """Returns the folders of a package, or the file of a module; none if there is neither."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that was made by hand
        return [getattr(sys.modules[name], "__file__", None) or f"the module {name!r} in sys.modules"]
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ()) or [str(spec.origin)]


require_own(("windowing", "stages"), root=str(Path(__file__).parents[2]))
