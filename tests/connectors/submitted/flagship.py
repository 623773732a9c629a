"""A program to submit: the flagship example, `DATA OUT CHECKPOINT`, and the places of the workers' code."""

import sys

import polars as pl
from session_lengths import pipeline

import beamlike as bl


def found(_):
    """Returns the Python of a worker, and the places of two of its packages."""
    return {"python": sys.executable, "polars": pl.__file__, "beamlike": bl.__file__}


data, out, checkpoint = sys.argv[1:]
p = pipeline(data, f"{out}/averages", bl.EARLIEST)
numbers = p.read("numbers", bl.JSONLines(f"{data}/numbers.jsonl", {"n": int}))
places = numbers.map(found, {"python": str, "polars": str, "beamlike": str})
places.write("places", bl.JSONLines(f"{out}/places"))
p.run(bl.SparkRunner(checkpoint, shards=2, drain=True, records=f"{out}/records.jsonl"))
