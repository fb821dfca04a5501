import json
from collections.abc import Callable

import pytest

from hub.client.errors import NoAnswer, NotReady, Refused, Unreachable
from hub.client.transport import IDS_PER_CALL, Remote
from tests.hub.client.conftest import Clock
from tests.hub.client.scripted import Reply, ScriptedServer, answer

ID = "a" * 64
REFS = {"repo_id": "r", "domain": "code", "default_branch": "main", "branch_heads": {"main": ID}}
NOT_READY = {
    "error": "MPACK_NOT_READY",
    "message": "The pack is being made.",
    "why": [{"job_id": "j1", "task": "mpack.index", "status": "RUNNING", "sentence": "Job j1 indexes the pack."}],
}
OFFER = {"mpack_id": ID, "url": "http://127.0.0.1/x", "size": 9, "tips": {"main": ID}, "default_branch": "main"}


def test_refs_asks_for_json_with_the_token(server: ScriptedServer, remote: Remote) -> None:
    server.on("GET", "refs", answer({**REFS, "snapshots": {"main": "b" * 64}, "unknown": 1}))
    refs = remote.refs()
    assert refs.branch_heads == {"main": ID}
    assert refs.snapshots == {"main": "b" * 64}
    headers = server.asked[0].headers
    assert headers["Authorization"] == "Bearer tok-secret-123"
    assert headers["Accept"] == "application/json"


def test_no_token_sends_no_authorization(server: ScriptedServer, clock: Clock) -> None:
    server.on("GET", "refs", answer(REFS))
    with Remote(server.url, None, timing=clock.timing()) as remote:
        remote.refs()
    assert "Authorization" not in server.asked[0].headers


def test_filter_objects_asks_in_batches_and_believes_only_what_it_asked(server: ScriptedServer, remote: Remote) -> None:
    ids = [f"{number:064x}" for number in range(IDS_PER_CALL + 5)]
    server.on(
        "POST", "filter-objects", answer({"missing": [ids[3], "f" * 64]}), answer({"missing": [ids[IDS_PER_CALL + 1]]})
    )
    assert remote.filter_objects(ids) == {ids[3], ids[IDS_PER_CALL + 1]}
    assert [len(asked.json["object_ids"]) for asked in server.asked] == [IDS_PER_CALL, 5]


def test_nothing_to_filter_asks_nothing(server: ScriptedServer, remote: Remote) -> None:
    assert remote.filter_objects([]) == set()
    assert server.asked == []


def test_lease_on_a_branch_that_must_not_exist_is_sent_as_null(server: ScriptedServer, remote: Remote) -> None:
    done = {"ok": True, "branch_heads": {"main": ID}, "push_id": "p-1", "jobs": []}
    server.on("POST", "push/mpack", answer(done))
    remote.push("key", "main", ID, expected_head=None)
    assert server.asked[0].json == {
        "mpack_key": "key", "branch": "main", "head": ID, "force": False, "expected_head": None,
    }  # fmt: skip


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_passing_trouble_is_tried_again(server: ScriptedServer, remote: Remote, clock: Clock, status: int) -> None:
    server.on("GET", "refs", Reply(status, b"busy", {"Content-Type": "text/plain"}), answer(REFS))
    assert remote.refs().default_branch == "main"
    assert clock.slept == [0.25]


def test_broken_connection_is_tried_again_a_bounded_number_of_times(
    server: ScriptedServer, remote: Remote, clock: Clock
) -> None:
    server.on("GET", "refs", Reply(cut=-1))
    with pytest.raises(NoAnswer, match="127.0.0.1"):
        remote.refs()
    assert len(server.asked) == 5
    assert clock.slept == [0.25, 0.5, 1.0, 2.0]


def test_answer_cut_in_the_middle_is_asked_for_again(server: ScriptedServer, remote: Remote) -> None:
    whole = answer(REFS)
    server.on("GET", "refs", Reply(200, whole.body, whole.headers, cut=20), whole)
    assert remote.refs().branch_heads == {"main": ID}


def test_nobody_listening_is_unreachable(server: ScriptedServer, clock: Clock) -> None:
    url = server.url
    server.close()
    with Remote(url, timing=clock.timing()) as remote, pytest.raises(Unreachable, match="is the hub running"):
        remote.refs()
    assert Unreachable.exit_code == 3


def test_retry_after_is_honoured_while_the_pack_is_being_made(
    server: ScriptedServer, remote: Remote, clock: Clock
) -> None:
    server.on("POST", "fetch/mpack", *[answer(NOT_READY, 503, Retry_After="3")] * 7, answer({**OFFER, "size": 9}))
    assert remote.fetch_mpack().size == 9
    assert clock.slept == [3.0] * 7


def test_wait_ends_at_the_bound_and_names_the_job(server: ScriptedServer, clock: Clock) -> None:
    server.on("POST", "fetch/mpack", answer(NOT_READY, 503, Retry_After="4"))
    with (
        Remote(server.url, timing=clock.timing(wait_seconds=10)) as remote,
        pytest.raises(NotReady, match="being made") as caught,
    ):
        remote.fetch_mpack()
    assert clock.slept == [4.0, 4.0]
    assert str(caught.value.why[0]) == "Job j1 indexes the pack."
    assert caught.value.exit_code == 1


def test_retry_after_beyond_the_bound_is_not_waited_for_at_all(server: ScriptedServer, clock: Clock) -> None:
    server.on("POST", "fetch/mpack", answer(NOT_READY, 503, Retry_After="3600"))
    with Remote(server.url, timing=clock.timing(wait_seconds=10)) as remote, pytest.raises(NotReady):
        remote.fetch_mpack()
    assert clock.slept == []
    assert len(server.asked) == 1


def test_wait_is_shown_with_its_job(server: ScriptedServer, clock: Clock) -> None:
    shown: list[str] = []

    class Shown:
        def begin(self, what: str, total: int | None, unit: str = "things") -> None: ...
        def at(self, done: int) -> None: ...
        def waiting(self, sentence: str) -> None:
            shown.append(sentence)

    server.on("POST", "fetch/mpack", answer(NOT_READY, 503, Retry_After="2"), answer(OFFER))
    with Remote(server.url, timing=clock.timing(), progress=Shown()) as remote:
        remote.fetch_mpack()
    assert shown == ["waiting 2 s: Job j1 indexes the pack."]


def test_failed_background_work_is_final_and_names_the_job(server: ScriptedServer, remote: Remote) -> None:
    failed = {"error": "MPACK_INDEX_FAILED", "message": "Job j7 has failed for good.", "job_id": "j7"}
    server.on("POST", "fetch/mpack", answer(failed, 500))
    with pytest.raises(Refused, match="Job j7 has failed for good") as caught:
        remote.fetch_mpack()
    assert caught.value.code == "MPACK_INDEX_FAILED"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [(401, "CODE", "valid token"), (403, "CODE", "owner"), (404, "CODE", "address"), (409, "DIVERGED", "--force")],
)
def test_refusal_says_the_servers_sentence_and_what_to_do(
    server: ScriptedServer, remote: Remote, status: int, code: str, advice: str
) -> None:
    server.on("GET", "refs", answer({"error": code, "message": "No, because."}, status))
    with pytest.raises(Refused, match="No, because") as caught:
        remote.refs()
    assert advice in caught.value.sentence
    assert (caught.value.status, caught.value.code, caught.value.exit_code) == (status, code, 1)


def test_server_that_repeats_the_token_does_not_get_it_onto_the_terminal(
    server: ScriptedServer, remote: Remote
) -> None:
    server.on("GET", "refs", answer({"error": "X", "message": "bad token tok-secret-123"}, 401))
    with pytest.raises(Refused) as caught:
        remote.refs()
    assert "tok-secret-123" not in caught.value.sentence


def test_control_characters_of_the_server_do_not_reach_the_terminal(server: ScriptedServer, remote: Remote) -> None:
    server.on("GET", "refs", answer({"error": "X", "message": "\x1b]0;owned\x07 \u202e"}, 422))
    with pytest.raises(Refused) as caught:
        remote.refs()
    assert caught.value.sentence.isprintable()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_refused_and_not_followed(server: ScriptedServer, remote: Remote, status: int) -> None:
    server.on("GET", "refs", Reply(status, b"", {"Location": f"{server.root}/elsewhere"}))
    server.on("GET", "/elsewhere", answer(REFS))
    with pytest.raises(Unreachable, match="redirect"):
        remote.refs()
    assert [asked.path for asked in server.asked] == ["/ada/notes/refs"]


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff\xfe", b"[" * 200_000, b""])
def test_answer_that_is_no_json_object_is_no_hub(server: ScriptedServer, remote: Remote, body: bytes) -> None:
    server.on("GET", "refs", Reply(200, body))
    with pytest.raises(Unreachable, match="no hub"):
        remote.refs()
    assert len(server.asked) == 1


CALLS: list[tuple[str, str, dict[str, object], Callable[[Remote], object]]] = [
    ("refs", "branch_heads", {"branch_heads": {"main": "x"}}, lambda remote: remote.refs()),
    ("refs", "branch_heads", {"branch_heads": None}, lambda remote: remote.refs()),
    ("filter-objects", "missing", {"missing": ["A" * 64]}, lambda remote: remote.filter_objects([ID])),
    ("push/mpack/presign", "upload", {"mpack_key": "k", "upload": {"method": "DELETE", "url": "http://h/"}},
     lambda remote: remote.presign(ID, 1, "main", ID, None)),
    ("push/mpack/presign", "upload.headers",
     {"mpack_key": "k", "upload": {"method": "PUT", "url": "http://h/", "headers": {"X": "a\r\nb"}}},
     lambda remote: remote.presign(ID, 1, "main", ID, None)),
    ("push/mpack", "ok", {"ok": False}, lambda remote: remote.push("k", "main", ID, expected_head=None)),
    ("push/mpack", "push_id", {"ok": True, "branch_heads": {}, "push_id": "../../x", "jobs": []},
     lambda remote: remote.push("k", "main", ID, expected_head=None)),
    ("pushes/p", "status", {"status": "great", "jobs": []}, lambda remote: remote.push_status("p")),
    ("fetch/mpack", "mpack_id", {**OFFER, "mpack_id": f"../{ID}"}, lambda remote: remote.fetch_mpack()),
    ("fetch/mpack", "size", {**OFFER, "size": True}, lambda remote: remote.fetch_mpack()),
    ("fetch/mpack", "mpack_id", {**OFFER, "mpack_id": None}, lambda remote: remote.fetch_mpack()),
    ("fetch/mpack", "tips", {**OFFER, "tips": {}}, lambda remote: remote.fetch_mpack()),
]  # fmt: skip


@pytest.mark.parametrize(("path", "field", "said", "call"), CALLS)
def test_answer_of_another_shape_is_refused_by_the_name_of_the_field(
    server: ScriptedServer,
    remote: Remote,
    path: str,
    field: str,
    said: dict[str, object],
    call: Callable[[Remote], object],
) -> None:
    server.on("GET", path, answer(said))
    server.on("POST", path, answer(said))
    with pytest.raises(Unreachable, match=f"«{field}»"):
        call(remote)


def test_empty_repository_offers_no_pack(server: ScriptedServer, remote: Remote) -> None:
    server.on("POST", "fetch/mpack", answer({"mpack_id": None, "url": None, "size": 0, "tips": {}}))
    offer = remote.fetch_mpack()
    assert (offer.mpack_id, offer.tips) == (None, {})
    assert json.loads(server.asked[0].body) == {"want": [], "have": []}
