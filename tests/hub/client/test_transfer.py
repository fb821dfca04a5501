import hashlib
import io
from pathlib import Path

import pytest

from hub.client.answers import PackOffer
from hub.client.errors import ClientError, LinkRefused, NoAnswer, Refused, VerificationFailed
from hub.client.progress import Silent
from hub.client.transport import Remote
from hub.client.upload_answers import PartsToSend, PartToSend, UploadLink
from tests.hub.client.conftest import Clock
from tests.hub.client.scripted import Reply, ScriptedServer, answer

DATA = bytes(range(256)) * 8_000
DIGEST = hashlib.sha256(DATA).hexdigest()


def offer_of(server: ScriptedServer, data: bytes = DATA, mpack_id: str = DIGEST, path: str = "/pack") -> PackOffer:
    return PackOffer(mpack_id, f"{server.root}{path}?sig=s3cr3t", len(data), {"main": "a" * 64}, "main")


def test_upload_sends_the_file_with_its_exact_length_and_no_token(server: ScriptedServer, remote: Remote) -> None:
    server.on("PUT", "/up", Reply(200))
    remote.upload(UploadLink(f"{server.root}/up", {"X-Amz-Meta": "1"}), io.BytesIO(DATA), len(DATA))
    asked = server.asked[0]
    assert asked.body == DATA
    assert asked.headers["Content-Length"] == str(len(DATA))
    assert asked.headers["X-Amz-Meta"] == "1"
    assert {"Authorization", "Transfer-Encoding", "Content-Type"}.isdisjoint(asked.headers)


def test_upload_error_that_repeats_itself_is_final(server: ScriptedServer, remote: Remote) -> None:
    server.on("PUT", "/up", Reply(500))
    with pytest.raises(Refused, match="HTTP 500"):
        remote.upload(UploadLink(f"{server.root}/up", {}), io.BytesIO(DATA), len(DATA))
    assert len(server.asked) == 1


@pytest.mark.parametrize("trouble", [Reply(cut=-1), Reply(503), Reply(502)])
def test_upload_begins_again_after_passing_trouble(server: ScriptedServer, remote: Remote, trouble: Reply) -> None:
    server.on("PUT", "/up", trouble, Reply(200))
    remote.upload(UploadLink(f"{server.root}/up", {}), io.BytesIO(DATA), len(DATA))
    assert server.asked[-1].body == DATA


def test_storage_error_is_not_shown_with_its_inside(server: ScriptedServer, remote: Remote) -> None:
    inside = b"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>"
    server.on("PUT", "/up", Reply(403, inside, {"Content-Type": "application/xml"}))
    with pytest.raises(LinkRefused, match="HTTP 403") as caught:
        remote.upload(UploadLink(f"{server.root}/up", {}), io.BytesIO(DATA), len(DATA))
    assert "AKIA" not in caught.value.sentence


def test_hubs_own_refusal_of_an_upload_is_shown(server: ScriptedServer, remote: Remote) -> None:
    server.on("PUT", "/up", answer({"error": "TOO_LARGE", "message": "At most 4 GiB."}, 413))
    with pytest.raises(Refused, match="At most 4 GiB"):
        remote.upload(UploadLink(f"{server.root}/up", {}), io.BytesIO(DATA), len(DATA))


def parts_of(server: ScriptedServer, *paths: str) -> PartsToSend:
    third = len(DATA) // 4
    links = [UploadLink(f"{server.root}{path}", {}) for path in paths]
    parts = [PartToSend((place + 1) * third, third, link) for place, link in enumerate(links)]
    return PartsToSend(third, 1, tuple(parts))


def test_parts_are_sent_each_to_its_link_again_after_trouble(
    server: ScriptedServer, remote: Remote, clock: Clock
) -> None:
    server.on("PUT", "/p2", Reply(503, headers={"Retry-After": "7"}), Reply(200))
    server.on("PUT", "/p3", Reply(200))
    server.on("PUT", "/p4", Reply(cut=-1), Reply(200))
    remote.upload(parts_of(server, "/p2", "/p3", "/p4"), io.BytesIO(DATA), len(DATA))
    third = len(DATA) // 4
    for place, path in enumerate(("/p2", "/p3", "/p4"), start=1):
        assert server.asked_for(path)[-1].body == DATA[place * third : (place + 1) * third]
    assert 7.0 in clock.slept


def test_part_whose_link_has_expired_ends_the_round(server: ScriptedServer, remote: Remote) -> None:
    server.on("PUT", "/p2", Reply(200))
    server.on("PUT", "/p3", Reply(403, b"<Error/>", {"Content-Type": "application/xml"}))
    with pytest.raises(LinkRefused):
        remote.upload(parts_of(server, "/p2", "/p3"), io.BytesIO(DATA), len(DATA))


def test_progress_of_parts_counts_what_has_arrived_before(server: ScriptedServer) -> None:
    seen: list[int] = []

    class Recording(Silent):
        def at(self, done: int) -> None:
            seen.append(done)

    server.on("PUT", "/p2", Reply(200))
    with Remote(server.url, progress=Recording()) as remote:
        remote.upload(parts_of(server, "/p2"), io.BytesIO(DATA), len(DATA))
    third = len(DATA) // 4
    assert seen == [third, 2 * third]


def test_download_writes_the_verified_bytes_without_a_token(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    server.on("GET", "/pack", Reply(200, DATA))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert "Authorization" not in server.asked[0].headers


def test_cut_download_goes_on_where_it_broke(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on(
        "GET", "/pack",
        Reply(200, DATA, cut=1_500_000), Reply(200, DATA, cut=200_000, ranged=True), Reply(200, DATA, ranged=True),
    )  # fmt: skip
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert [asked.headers.get("Range") for asked in server.asked] == [None, "bytes=1500000-", "bytes=1700000-"]


def test_server_without_ranges_sends_all_again(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA, cut=1_000_000), Reply(200, DATA))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA


def test_download_that_never_gets_on_is_given_up(
    server: ScriptedServer, remote: Remote, clock: Clock, tmp_path: Path
) -> None:
    server.on("GET", "/pack", Reply(200, DATA, cut=1_000, ranged=True))
    with pytest.raises(NoAnswer):
        remote.download(offer_of(server), tmp_path / "pack")
    assert len(server.asked) == 5


def test_continuation_of_another_file_is_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    wrong = Reply(206, DATA[:10], {"Content-Range": f"bytes 0-9/{len(DATA)}"})
    server.on("GET", "/pack", Reply(200, DATA, cut=1_000), wrong)
    with pytest.raises(Exception, match="HTTP 206"):
        remote.download(offer_of(server), tmp_path / "pack")


def test_wrong_bytes_are_a_failed_verification(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA[:-1] + b"!"))
    with pytest.raises(VerificationFailed, match="digest") as caught:
        remote.download(offer_of(server), tmp_path / "pack")
    assert caught.value.exit_code == 4


def test_more_bytes_than_promised_are_refused(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(200, DATA + b"more"))
    with pytest.raises(VerificationFailed, match="more than"):
        remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").stat().st_size <= len(DATA)


def test_fewer_bytes_than_promised_are_never_taken_for_the_whole(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    server.on("GET", "/pack", Reply(200, DATA[:-5]), Reply(200, DATA[:-5], ranged=True))
    with pytest.raises(ClientError):
        remote.download(offer_of(server), tmp_path / "pack")


def test_expired_link_is_renewed_and_the_download_goes_on(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    server.on("GET", "/pack", Reply(200, DATA, cut=1_500_000), Reply(403, b"<Error/>"))
    server.on("GET", "/again", Reply(200, DATA, ranged=True))
    fresh = {"mpack_id": DIGEST, "url": f"{server.root}/again", "size": len(DATA), "tips": {"main": "a" * 64}}
    server.on("POST", "fetch/mpack", answer(fresh))
    remote.download(offer_of(server), tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == DATA
    assert server.asked[-1].headers["Range"] == "bytes=1500000-"


def test_new_pack_behind_a_renewed_link_is_fetched_from_its_beginning(
    server: ScriptedServer, remote: Remote, tmp_path: Path
) -> None:
    other = DATA[::-1]
    digest = hashlib.sha256(other).hexdigest()
    server.on("GET", "/pack", Reply(200, DATA, cut=1_500_000), Reply(403, b""))
    server.on("GET", "/other", Reply(200, other, ranged=True))
    fresh = {"mpack_id": digest, "url": f"{server.root}/other", "size": len(other), "tips": {"main": "b" * 64}}
    server.on("POST", "fetch/mpack", answer(fresh))
    met = remote.download(offer_of(server), tmp_path / "pack")
    assert met.mpack_id == digest
    assert met.tips == {"main": "b" * 64}
    assert (tmp_path / "pack").read_bytes() == other


def test_link_that_is_never_accepted_is_given_up(server: ScriptedServer, remote: Remote, tmp_path: Path) -> None:
    server.on("GET", "/pack", Reply(403, b"", {"Content-Type": "application/xml"}))
    fresh = {"mpack_id": DIGEST, "url": f"{server.root}/pack?sig=s3cr3t", "size": len(DATA), "tips": {"main": "a" * 64}}
    server.on("POST", "fetch/mpack", answer(fresh))
    with pytest.raises(LinkRefused) as caught:
        remote.download(offer_of(server), tmp_path / "pack")
    assert len(server.asked_for("/pack?sig=s3cr3t")) == 3
    assert "s3cr3t" not in caught.value.sentence
