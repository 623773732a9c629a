"""Tests of the messages for failures of Spark."""

from __future__ import annotations

from beamlike.spark.failures import from_spark

WORKER_KILLED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An error occurred in the user \
provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy.
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
py4j.protocol.Py4JJavaError: An error occurred while calling o101.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 4.0 failed 1 times, most recent \
failure: Lost task 1.0 in stage 4.0 (TID 9) (localhost executor driver): Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:99)
\t... 12 more
=== Streaming Query ===
Identifier: [id = 1, runId = 2]"""


def test_the_message_of_java_is_shown_without_the_frames_of_the_function_that_called_it() -> None:
    first, *others = from_spark(WORKER_KILLED).splitlines()
    assert first.startswith("Spark failed: a Python worker ended in the middle of a task")
    assert others[0].startswith("  org.apache.spark.SparkException: Job aborted due to stage failure")
    assert "Python worker exited unexpectedly" in others[0]
    assert others[1:] == ["  ... 2 more lines"]


def test_without_a_nested_cause_the_first_line_of_java_is_the_cause() -> None:
    told = from_spark(WORKER_KILLED.replace("Python worker exited", "Executor lost"))
    assert told.startswith("Spark failed: org.apache.spark.SparkException: Job aborted due to stage failure")
