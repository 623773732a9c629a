"""The input of the batches of earlier runs: what each took, and reading it again. May import `run` and all below it."""
