"""The Spark runner: the only package that imports pyspark. May import `runtime` and all below it."""

from importlib.util import find_spec
from typing import Final

from beamlike.errors import MissingPackage

_NEEDED: Final = {
    "pyspark": ("PySpark", "spark"),
    "pandas": ("pandas", "cluster"),
    "google.protobuf": ("protobuf", "cluster"),
}
"""A module, its package and its extra. On a cluster, which has a Spark of its own, the extra must not bring another."""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that the module is in
        return False


for _module, (_package, _extra) in _NEEDED.items():
    if not _is_there(_module):
        raise MissingPackage(
            f"runs on Spark and their savepoints need {_package}: pip install 'beamlike[{_extra}]'",
            name=_module,
        )
