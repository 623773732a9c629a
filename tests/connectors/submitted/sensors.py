"""A program for a cluster: silent sensors, `READINGS OUT CHECKPOINT RUNNER`; prints the number of each batch.

`RUNNER` has further arguments of the runner, as JSON.
"""

import json
import sys

import beamlike as bl
from examples.silence import alerts

readings, out, checkpoint, runner = sys.argv[1:]
p, told = alerts(bl.Parquet(readings, max_files_per_trigger=1))
told.write("alerts", bl.Parquet(out))


def tell(record):
    print(record.batch, flush=True)


p.run(bl.SparkRunner(checkpoint, shards=2, on_batch=tell, **json.loads(runner)))
