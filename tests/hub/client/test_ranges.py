import hashlib
from pathlib import Path

import pytest

from hub.client import ranges
from hub.client.answers import PackOffer
from hub.client.errors import ClientError, LinkRefused, NoAnswer, VerificationFailed
from hub.client.transport import Remote
from tests.hub.client.conftest import Clock
from tests.hub.client.scripted import Reply, ScriptedServer, answer

MIB = 1024 * 1024
DATA = b"".join(hashlib.sha256(bytes([number])).digest() * (MIB // 32) for number in range(11)) + b"end"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ranges", "download"):
        monkeypatch.setattr(f"hub.client.{module}.RANGE_BYTES", 2 * MIB)


def store(server: ScriptedServer) -> str:
    """The server under a name that is not the hub's."""
    return server.root.replace("127.0.0.1", "localhost")


def offer_of(server: ScriptedServer) -> PackOffer:
    return PackOffer(DIGEST, f"{store(server)}/pack", len(DATA), {"main": "a" * 64}, "main")


def asked_ranges(server: ScriptedServer) -> list[str]:
    return sorted(asked.headers["Range"] for asked in server.asked_for("/pack") if "Range" in asked.headers)


def test_large_pack_comes_in_ranges(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA, ranged=True))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    bounds = [(start, min(start + 2 * MIB, len(DATA)) - 1) for start in range(0, len(DATA), 2 * MIB)]
    assert asked_ranges(server) == sorted(f"bytes={start}-{last}" for start, last in bounds)


def test_larger_pack_comes_in_larger_ranges(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", MIB)
    server.on("GET", "/pack", Reply(200, DATA, ranged=True))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert len(asked_ranges(server)) == ranges.RANGES + 1


def test_pack_that_the_hub_sends_itself_comes_in_one_piece(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    server.on("GET", "/pack", Reply(200, DATA, ranged=True))
    remote.download(offer_of(server)._replace(url=f"{server.root}/pack"), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert len(server.asked_for("/pack")) == 1
    assert asked_ranges(server) == []


def test_ranges_come_over_several_connections_at_once(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    together = threading.Barrier(ranges.CONNECTIONS)
    begun: list[int] = []
    fetch = ranges.Ranges._fetch

    def meeting(self: ranges.Ranges, url: str, number: int, descriptor: int) -> None:
        begun.append(number)
        if number < ranges.CONNECTIONS:
            together.wait(timeout=10)
        fetch(self, url, number, descriptor)

    monkeypatch.setattr(ranges.Ranges, "_fetch", meeting)
    server.on("GET", "/pack", Reply(200, DATA, ranged=True))
    remote.download(offer_of(server), tmp_path / "pack")
    assert len(begun) == 6
    assert (tmp_path / "pack").read_bytes() == DATA


def test_server_without_ranges_sends_the_whole(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert [asked for asked in server.asked_for("/pack") if "Range" not in asked.headers]


def test_range_that_breaks_is_continued_where_it_broke(
    server: ScriptedServer, remote: Remote, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "CONNECTIONS", 1)
    whole = Reply(200, DATA, ranged=True)
    server.on("GET", "/pack", whole, Reply(200, DATA, ranged=True, cut=MIB), whole)
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert f"bytes={3 * MIB}-{4 * MIB - 1}" in asked_ranges(server)
    assert len(clock.slept) == 1


def test_ranges_that_break_together_are_one_failure(
    server: ScriptedServer, remote: Remote, clock: Clock, tmp_path: Path
) -> None:
    """As many as there are connections break at once, twice: more than the tries that one range would have."""
    whole, broken = Reply(200, DATA, ranged=True), Reply(cut=-1)
    server.on("GET", "/pack", *[broken] * 6, whole)
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert 1 <= len(clock.slept) <= 3


def test_expired_link_is_renewed_and_no_range_is_fetched_twice(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "CONNECTIONS", 1)
    server.on("GET", "/pack", *[Reply(200, DATA, ranged=True)] * 2, Reply(403, b""))
    server.on("GET", "/fresh", Reply(200, DATA, ranged=True))
    fresh = {"mpack_id": DIGEST, "url": f"{store(server)}/fresh", "size": len(DATA), "tips": {"main": "a" * 64}}
    server.on("POST", "fetch/mpack", answer(fresh))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert len(server.asked_for("/fresh")) == 4


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(206, DATA[: 2 * MIB], {"Content-Range": f"bytes 1-{2 * MIB}/{len(DATA)}"}), ClientError),
        (Reply(206, DATA[: 2 * MIB], {"Content-Range": f"bytes 0-{2 * MIB - 1}/{len(DATA) + 1}"}), ClientError),
        (Reply(206, DATA[: 2 * MIB]), ClientError),
        (Reply(206, DATA[: 2 * MIB] + b"!", {"Content-Range": f"bytes 0-{2 * MIB - 1}/*"}), VerificationFailed),
        (Reply(206, b"", {"Content-Range": f"bytes 0-{2 * MIB - 1}/*"}), NoAnswer),
        (Reply(403, b""), LinkRefused),
    ],
)
def test_answer_that_is_not_the_range_is_refused(
    server: ScriptedServer, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    reply: Reply, error: type[ClientError],
) -> None:  # fmt: skip
    monkeypatch.setattr(ranges, "CONNECTIONS", 1)
    server.on("GET", "/pack", reply)
    fresh = {"mpack_id": DIGEST, "url": f"{store(server)}/pack", "size": len(DATA), "tips": {"main": "a" * 64}}
    server.on("POST", "fetch/mpack", answer(fresh))
    with pytest.raises(error):
        remote.download(offer_of(server), tmp_path / "pack")


def test_wrong_bytes_in_a_range_are_noticed(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA[:-1] + b"!", ranged=True))
    with pytest.raises(VerificationFailed, match="another digest"):
        remote.download(offer_of(server), tmp_path / "pack")
