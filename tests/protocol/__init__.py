"""The protocol of runs that share a checkpoint, as a model that a model checker explores."""
