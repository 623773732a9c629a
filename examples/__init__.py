"""Examples, each with its input and an independent computation of its answer.

The flagship and its demo; panes of all modes side by side; a leaderboard; and silent sensors, abandoned carts and a
throttle, which use keyed state and timers.
"""
