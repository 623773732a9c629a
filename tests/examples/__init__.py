"""The examples of keyed state and timers: what they generate, and that they are right, in process and on Spark."""
