"""Clients that are kept from batch to batch."""

from __future__ import annotations

from beamlike.io.kafka.kept import KeptClients


def test_a_client_that_is_taken_cannot_be_taken_again() -> None:
    clients = KeptClients[str](list[str]().append)
    assert clients.take("topic") is None
    clients.keep("topic", "first")
    assert clients.take("topic") == "first"
    assert clients.take("topic") is None


def test_those_that_were_used_least_recently_are_closed() -> None:
    closed: list[int] = []
    clients = KeptClients[int](closed.append)
    for number in range(8):
        clients.keep(number, number)
    assert clients.take(0) == 0
    clients.keep(0, 0)
    clients.keep(8, 8)
    assert closed == [1]


def test_one_that_was_kept_for_the_same_use_is_closed() -> None:
    closed: list[str] = []
    clients = KeptClients[str](closed.append)
    clients.keep("topic", "first")
    clients.keep("topic", "second")
    assert closed == ["first"]
    assert clients.take("topic") == "second"
