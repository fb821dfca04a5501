"""Free ports on the loopback address."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hub.embedded.ports import LOOPBACK, NoFreePort, Ports, are_free, listen


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def ports() -> Iterator[Callable[[], Ports]]:
    """Make the ports of one more supervisor."""
    made: list[Ports] = []

    def make() -> Ports:
        made.append(Ports())
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_port_of_a_listener_is_not_free(taken: int) -> None:
    assert not are_free([taken])


def test_one_taken_port_spoils_the_set(taken: int, ports: Callable[[], Ports]) -> None:
    (free,) = ports().choose(1)
    assert are_free([free])
    assert not are_free([free, taken])


def test_chosen_ports_differ_and_are_free(ports: Callable[[], Ports]) -> None:
    chosen = ports().choose(10)
    assert len(set(chosen)) == 10
    assert are_free(chosen)


def test_preferred_port_is_taken_again(ports: Callable[[], Ports]) -> None:
    ours = ports()
    (port,) = ours.choose(1)
    assert ours.choose(1, preferred=[port]) == [port]


def test_busy_preferred_port_gives_way(taken: int, ports: Callable[[], Ports]) -> None:
    (port,) = ports().choose(1, preferred=[taken])
    assert port != taken


def test_port_named_twice_is_chosen_once(ports: Callable[[], Ports]) -> None:
    ours = ports()
    (port,) = ours.choose(1)
    chosen = ours.choose(2, preferred=[port, port])
    assert chosen[0] == port
    assert chosen[1] != port


def test_two_supervisors_choose_different_ports_before_either_server_has_bound_one(
    ports: Callable[[], Ports],
) -> None:
    first, second = ports(), ports()
    (port,) = first.choose(1)
    assert second.choose(1, preferred=[port]) != [port]
    first.close()
    assert second.choose(1, preferred=[port]) == [port]


def test_claim_ends_with_its_process(ports: Callable[[], Ports]) -> None:
    script = "from hub.embedded.ports import Ports; ports = Ports(); print(ports.choose(1)[0], flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"import signal; {script}; signal.pause()"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert not ports().claim(port)
        other.kill()
        other.wait()
        assert ports().claim(port)


def test_two_supervisors_that_prefer_a_port_listen_on_different_ones(ports: Callable[[], Ports]) -> None:
    (port,) = ports().choose(1)
    with ports().listen(preferred=[port]) as first, ports().listen(preferred=[port]) as second:
        assert first.getsockname() != second.getsockname()


def test_listener_answers_before_anybody_accepts(ports: Callable[[], Ports]) -> None:
    with ports().listen() as listener, socket.create_connection(listener.getsockname()) as connection:
        assert connection.getpeername() == listener.getsockname()


def test_port_of_another_program_cannot_be_listened_on(taken: int, ports: Callable[[], Ports]) -> None:
    with pytest.raises(NoFreePort, match=f"port {taken} on 127.0.0.1 cannot be had: Address already in use"):
        listen(taken)
    with ports().listen(preferred=[taken]) as listener:
        assert listener.getsockname()[1] != taken


def test_port_that_another_one_bound_first_and_listens_on_later_is_lost_to_him(ports: Callable[[], Ports]) -> None:
    (port,) = ports().choose(1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, port))
        with listen(port), pytest.raises(OSError, match="Address already in use"):
            other.listen()
