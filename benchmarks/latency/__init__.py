"""The latency of a pane, from the arrival in a Kafka broker of the element that lets its window fire, to a reader.

    python -m benchmarks.latency

The jobs are the same on all engines: elements with a key and a time in milliseconds, counted by key in windows of a
second, or the sessions of each key in windows of a second, written to another topic. There is one partition, in which
the times are in order, so a window is over with the first element of the next one. Its arrival is when the broker has
it; a pane is there when a consumer that reads only what is committed has it.
"""
