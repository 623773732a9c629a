"""The Spark runner: the only package that imports pyspark."""
