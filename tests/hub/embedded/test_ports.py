"""Free ports on the loopback address."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hub.embedded.ports import LOOPBACK, are_free, choose


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_port_of_a_listener_is_not_free(taken: int) -> None:
    assert not are_free([taken])


def test_one_taken_port_spoils_the_set(taken: int) -> None:
    (free,) = choose(1)
    assert are_free([free])
    assert not are_free([free, taken])


def test_chosen_ports_differ_and_are_free() -> None:
    ports = choose(10)
    assert len(set(ports)) == 10
    assert are_free(ports)


def test_preferred_port_is_taken_again() -> None:
    (port,) = choose(1)
    assert choose(1, preferred=[port]) == [port]


def test_busy_preferred_port_gives_way(taken: int) -> None:
    (port,) = choose(1, preferred=[taken])
    assert port != taken


def test_port_named_twice_is_chosen_once() -> None:
    (port,) = choose(1)
    ports = choose(2, preferred=[port, port])
    assert ports[0] == port
    assert ports[1] != port
