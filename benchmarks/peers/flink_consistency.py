"""The test of internal consistency in Flink SQL: every total that it emits, and how many of them are not zero.

python flink_consistency.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

_TRANSFERS = """
CREATE TABLE transfers (`from_account` BIGINT, `to_account` BIGINT, `amount` BIGINT, `at` BIGINT)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
_SUM = "CREATE TEMPORARY VIEW {name} AS SELECT {key} AS account, SUM(amount) AS {name} FROM transfers GROUP BY {key}"
_BALANCES = """
CREATE TEMPORARY VIEW balances AS SELECT COALESCE(credits, 0) - COALESCE(debits, 0) AS balance
FROM credits FULL JOIN debits ON credits.account = debits.account
"""


def main(data: Path, out: Path, parallelism: int) -> None:
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table.get_config().set("parallelism.default", str(parallelism))
    table.execute_sql(_TRANSFERS.format(path=(data / "transfers.csv").absolute()))
    table.execute_sql(_SUM.format(name="credits", key="to_account"))
    table.execute_sql(_SUM.format(name="debits", key="from_account"))
    table.execute_sql(_BALANCES)
    seen = Counter[int]()
    with table.execute_sql("SELECT SUM(balance) FROM balances").collect() as results:
        for row in results:
            if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                seen[row[0]] += 1
    out.mkdir(parents=True, exist_ok=True)
    found = {
        "outputs": seen.total(),
        "wrong": seen.total() - seen[0],
        "least": min(seen),
        "greatest": max(seen),
    }
    (out / "totals.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
