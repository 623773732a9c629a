"""The examples of keyed state and timers: their input, and their results in process and on Spark."""
