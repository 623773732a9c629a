"""The Spark runner: the only package that imports pyspark. May import `runtime` and all below it."""
