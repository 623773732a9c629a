"""The test of internal consistency: transfers between accounts, whose balances must add up to zero in every output.

    transfers ──▶ credits of each account ──┐
             └──▶ debits of each account ───┴─▶ balance of each account ──▶ total of all balances

Each transfer changes one credit and one debit. An engine that shows one change without the other shows a wrong total.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

import beamlike as bl

SCHEMA = {"from_account": int, "to_account": int, "amount": int, "at": int}
_EACH: Any = {"trigger": bl.Repeatedly(bl.AfterCount(1)), "accumulation": bl.RETRACTING}


def balances(transfers: bl.Collection) -> bl.Collection:
    """Returns the balance of each account, corrected in each batch that has a transfer of it."""
    each = transfers.window_into(bl.GlobalWindows(), **_EACH)
    credits = (
        each.group_by("to_account").aggregate(credits=bl.sum("amount")).rename({"to_account": "account"})
    )
    debits = (
        each.group_by("from_account").aggregate(debits=bl.sum("amount")).rename({"from_account": "account"})
    )
    both = credits.join(debits, on="account", how="full")
    credit, debit = bl.col("credits").fill_null(0), bl.col("debits").fill_null(0)
    return both.select("account", credits=credit, balance=credit - debit)


def totals(balances: bl.Collection) -> bl.Collection:
    """Returns the total of all balances after each batch, which must be zero, and the units transferred so far."""
    return balances.window_into(bl.GlobalWindows(), accumulation="accumulating").aggregate(
        total=bl.sum("balance"), transferred=bl.sum("credits")
    )


def pipeline(data: Path, out: bl.Sink) -> bl.Pipeline:
    """Declares the test for the transfers in the files below `data`, each of which is a batch."""
    p = bl.Pipeline("consistency")
    files = bl.Parquet(data, SCHEMA, max_files_per_trigger=1)
    read = p.read(
        "transfers", files, timestamp="at", timestamp_unit="ms", watermark=bl.MonotonousTimestamps()
    )
    totals(balances(read)).write("totals", out)
    return p


@click.command()
@click.argument("runner", type=click.Choice(["local", "spark"]))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1))
def main(runner: str, data: Path, out: Path, cores: int) -> None:
    """Run the test over the transfers below the folder DATA, and write each total below the folder OUT."""
    job = pipeline(data, bl.Parquet(out))
    if runner == "local":
        job.run()
        return
    with tempfile.TemporaryDirectory() as checkpoint:
        job.run(
            bl.SparkRunner(
                checkpoint=checkpoint,
                trigger="available_now",
                drain=True,
                master=f"local[{cores}]",
                shards=cores,
            )
        )


if __name__ == "__main__":
    main()
