"""The files that a session of either kind reads and writes."""

from __future__ import annotations

from pyspark.sql import SparkSession

from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.session.kinds import is_connect


def files_of(session: SparkSession | None) -> StoredFiles:
    """Returns the files for a session: those of Hadoop, or of pyarrow if there is no session, or it has no
    Java (Spark Connect).
    """
    if session is None or is_connect(session):
        return ArrowFiles()
    from beamlike.spark.checkpoint.hadoop import HadoopFiles

    return HadoopFiles(session)
