"""The option `--conf` of commands that run Spark."""

from __future__ import annotations

import click


def _settings_of_spark(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Converts the options to a dict; if a name is repeated, the last one is used, as in spark-submit."""
    for setting in given:
        key, equals, _ = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{key!r}: write --conf KEY=VALUE", ctx, param)
    return {key.strip(): value for key, _, value in (setting.partition("=") for setting in given)}


conf_option = click.option(
    "--conf",
    "config",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings_of_spark,
    help="Spark: a setting, such as spark.jars.packages=...; may be given several times.",
)
