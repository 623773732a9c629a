"""Takes batches from a server of Spark Connect. May import what `spark` may."""
