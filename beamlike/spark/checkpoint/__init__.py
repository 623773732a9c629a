"""The checkpoint of a run on Spark. May import what `spark` may."""
