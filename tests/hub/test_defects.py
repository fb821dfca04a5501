"""What another server of this protocol does wrong, row by row, and the tests that show it right here.

Beside it the checklist that a server of the Muse client must pass. A name is `file::test` or `file::Class::test`, below
tests/; that it exists, and is not skipped, is tested. Rows of things that this hub does not have are listed as such.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.hub.world import History, World

TESTS = Path(__file__).parents[1]
BAD, MUSE, ACCESS = "hub/test_bad_push.py", "hub/test_wire_muse.py", "hub/test_access.py"
CONTRACT, MANY, REQUEST = "hub/test_contract_muse.py", "hub/test_many_pushes.py", "hub/test_bad_request.py"
UPLOADS, RELEASES, BODY = "hub/test_uploads.py", "hub/test_releases.py", "hub/test_fetch_body.py"

DEFECTS: dict[int, tuple[str, list[str]]] = {
    1: ("refs in JSON: no clone, pull, fetch or ls-remote", [
        f"{CONTRACT}::TestReceive::test_clone_is_two_requests_without_a_token",
        f"{MUSE}::TestForm::test_every_answer_is_msgpack_with_text_keys",
    ]),
    2: ("content of objects never hashed", [
        f"{BAD}::test_object_with_the_wrong_id_is_refused_in_a_chunk",
        f"{BAD}::test_wrong_content_is_refused_though_the_object_is_held",
    ]),
    3: ("ids of snapshots and commits never recomputed, references unchecked", [
        f"{BAD}::test_bad_records_are_refused",
    ]),
    4: ("a second repository with the same content is empty", [
        f"{MUSE}::TestObjects::test_second_repository_with_the_same_content_is_complete",
    ]),
    5: ("a snapshot id stored first with another manifest", [
        f"{BAD}::test_bad_records_are_refused",
        f"{MUSE}::TestObjects::test_second_repository_with_the_same_content_is_complete",
    ]),
    6: ("snapshots of other repositories by their id", [
        f"{MUSE}::TestObjects::test_second_repository_learns_nothing_of_the_first",
    ]),
    7: ("private objects readable by anybody", [f"{ACCESS}::test_private_repository_is_not_there_for_strangers"]),
    8: ("any token may ask what a private repository holds", [
        f"{ACCESS}::test_private_repository_is_not_there_for_strangers",
        f"{ACCESS}::test_public_repository_may_be_read_by_all_and_written_by_few",
    ]),
    9: ("any token writes releases and tags", [
        f"{RELEASES}::test_only_writers_change_releases", f"{RELEASES}::test_only_writers_tag",
    ]),
    10: ("pages of private repositories readable by anybody", [
        f"{ACCESS}::test_every_route_of_a_repository_is_covered",
    ]),
    11: ("a second push path without rights", [f"{ACCESS}::test_every_route_of_a_repository_is_covered"]),
    13: ("fast-forward over commits of another branch refused", [
        f"{MUSE}::TestPush::test_fast_forward_through_commits_of_another_branch",
        f"{CONTRACT}::TestPush::test_branch_through_commits_of_another",
    ]),
    14: ("two children of one head both accepted", [f"{MANY}::TestManyPushes::test_one_wins_and_the_others_are_told"]),
    15: ("no right reported as diverged", [
        f"{ACCESS}::test_public_repository_may_be_read_by_all_and_written_by_few",
        f"{CONTRACT}::TestPush::test_refusal_is_read_by_a_client_that_is_still_sending",
    ]),
    16: ("branch names that are paths elsewhere", ["hub/test_names.py::test_bad_branch_name_is_refused"]),
    17: ("unchanged objects sent again", [f"{MUSE}::TestFetch::test_one_changed_file_is_one_object"]),
    18: ("up to date, and walked through the whole history", [
        f"{MUSE}::TestNegotiate::test_ready_at_once_when_the_client_has_it",
        f"{CONTRACT}::TestReceive::test_pull_negotiates_and_gets_the_difference",
    ]),
    19: ("limits that real repositories exceed, and 500 for garbage", [
        f"{REQUEST}::test_msgpack_garbage_is_refused",
        f"{CONTRACT}::TestReceive::test_fetch_names_all_local_commits",
        f"{MUSE}::TestObjects::test_hundred_thousand_ids_are_one_request",
        "hub/test_bombs.py::test_flat_manifest_of_many_files_is_taken",
    ]),
    20: ("empty objects missing for ever", [
        f"{MUSE}::TestObjects::test_empty_object_is_always_held",
        f"{MUSE}::TestPush::test_empty_file_is_in_the_tree_and_never_sent",
    ]),
    21: ("records rewritten, times normalised", [
        f"{MUSE}::TestFetch::test_record_comes_back_as_it_was_sent_without_the_delta",
        f"{MUSE}::TestFetch::test_time_comes_back_in_its_own_offset",
        "hub/test_bombs.py::test_delta_of_any_form_is_kept_and_never_decoded",
    ]),
    22: ("uploads to the store never recorded as held", [f"{UPLOADS}::test_a_push_adopts_what_was_uploaded"]),
    23: ("one query an object", [f"{MUSE}::TestObjects::test_300000_ids_are_one_request_in_bounded_memory"]),
    24: ("answers built in memory, without a look at their size", [
        f"{BODY}::TestSize::test_answer_has_the_size_that_was_planned",
        f"{BODY}::TestTooLarge::test_no_body_is_kept_and_the_refusal_costs_no_read",
        "hub/test_parts.py::test_parts_bring_all_oldest_first_until_nothing_is_left",
    ]),
    25: ("a store that fails is taken for one without the object", [
        f"{REQUEST}::test_store_that_does_not_answer_is_a_503_and_stores_no_row",
    ]),
    26: ("torn objects after a crash", [
        "storage/test_store.py::TestPut::test_body_that_fails_on_the_way_leaves_nothing",
    ]),
    27: ("a new store client for every request", [
        "hub/test_defects.py::test_stores_are_opened_with_the_application_and_kept",
    ]),
    28: ("a push of many objects refused for its number of requests", [
        f"{CONTRACT}::TestPush::test_objects_go_in_requests_of_400",
        "hub/test_rates.py::test_push_of_twelve_thousand_objects_passes_with_the_defaults",
    ]),
    29: ("a default branch that the client can't clone", [
        "hub/test_identity.py::test_first_branch_without_a_slash_is_the_default",
    ]),
    31: ("a label moved to another commit", [
        f"{RELEASES}::test_one_label_sits_on_many_commits_and_a_tag_never_moves",
    ]),
    32: ("releases rewritten, their commit unchecked", [
        f"{CONTRACT}::TestReleases::test_release_is_json_in_and_msgpack_out",
        f"{RELEASES}::test_a_bad_release_is_refused_by_its_field",
    ]),
    37: ("tokens without scope, that can't be revoked; collaborators ignored", [
        f"{ACCESS}::test_token_that_names_nobody_is_refused_everywhere",
        f"{ACCESS}::test_those_with_the_right_may_write",
        f"{ACCESS}::test_only_the_hash_of_a_token_is_stored",
    ]),
    38: ("follow-up work lost on restart", [
        "system/test_killed_worker.py::test_a_clone_survives_the_kill_of_the_worker_that_indexes",
    ]),
}  # fmt: skip
"""Row → what is wrong there, and the tests here."""

NOT_OURS = {
    12: "webhooks", 30: "webhooks and notifications", 33: "merges and commits made by the server", 34: "issues",
    35: "pages over the whole history", 36: "raw files by path", 39: "the proxy's configuration",
}  # fmt: skip

CHECKLIST: dict[int, tuple[str, list[str]]] = {
    1: ("push, merge, clone, byte for byte", [
        f"{CONTRACT}::TestReceive::test_clone_is_two_requests_without_a_token",
        f"{CONTRACT}::TestReceive::test_private_repository_is_pulled_with_a_token_and_not_there_without",
        "hub/test_fetch_property.py::test_every_fetch_brings_exactly_what_is_missing",
    ]),
    2: ("no redirect, no JSON", [f"{CONTRACT}::TestForm::test_no_request_is_redirected_and_none_answered_in_json"]),
    3: ("wrong data is 422 and nothing is stored", [
        f"{BAD}::test_bad_records_are_refused", f"{BAD}::test_time_that_is_not_canonical_is_refused",
        f"{BAD}::test_bad_path_is_refused", "hub/test_names.py::test_bad_branch_name_is_refused",
    ]),
    4: ("of 50 pushes at once one wins", [f"{MANY}::TestManyPushes::test_one_wins_and_the_others_are_told"]),
    5: ("conflict, force, fast-forward through others, repeat", [
        f"{CONTRACT}::TestPush::test_rejected_then_forced",
        f"{CONTRACT}::TestPush::test_branch_through_commits_of_another",
        f"{CONTRACT}::TestPush::test_repeat_after_a_lost_answer_succeeds",
    ]),
    6: ("only new objects; one negotiate when up to date", [
        f"{CONTRACT}::TestReceive::test_pull_negotiates_and_gets_the_difference",
    ]),
    7: ("presigned uploads: held, wrong, interrupted, expired", [
        f"{CONTRACT}::TestPush::test_large_objects_are_put_to_presigned_urls",
        f"{UPLOADS}::test_other_bytes_are_refused_at_the_push_and_removed",
        f"{UPLOADS}::test_an_upload_counts_as_held_once_it_has_arrived",
        f"{UPLOADS}::test_after_a_url_that_is_not_good_any_more_the_next_push_works",
    ]),
    8: ("a second repository with the same content", [
        f"{MUSE}::TestObjects::test_second_repository_with_the_same_content_is_complete",
        f"{MUSE}::TestObjects::test_second_repository_learns_nothing_of_the_first",
    ]),
    9: ("refusals for size are short and say the way", [
        f"{MUSE}::TestFetch::test_answer_that_the_client_cannot_take_is_refused_with_a_way_out",
        "hub/test_parts.py::test_plain_url_refuses_and_names_the_commands",
    ]),
    10: ("private repositories are 404 on all routes", [
        f"{ACCESS}::test_private_repository_is_not_there_for_strangers",
        f"{ACCESS}::test_private_repository_sounds_like_one_that_does_not_exist",
    ]),
}  # fmt: skip

NAMED = [("defect", number, name) for number, (_, names) in DEFECTS.items() for name in names]
NAMED += [("point", number, name) for number, (_, names) in CHECKLIST.items() for name in names]


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests of a file that are not skipped, those of classes with the class's name."""
    found: set[str] = set()

    def walk(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{node.name}::")
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = " ".join(ast.unparse(item) for item in node.decorator_list)
                if "skip" not in marks and "xfail" not in marks:
                    found.add(prefix + node.name)

    walk(ast.parse((TESTS / file).read_text()).body, "")
    return frozenset(found)


@pytest.mark.parametrize(("kind", "number", "name"), NAMED)
def test_named_test_exists(kind: str, number: int, name: str) -> None:
    file, _, test = name.partition("::")
    assert (TESTS / file).is_file(), f"{kind} {number}: {file}"
    assert names_in(file)
    assert not test or test in names_in(file), f"{kind} {number}: {name}"


@pytest.mark.integration
def test_stores_are_opened_with_the_application_and_kept(world: World, history: History) -> None:
    services = world.hub.services
    assert world.push_muse(history, history.line(1)[0]).status_code == 200
    assert (services.archive, services.cache) == (world.archive, world.cache)
    assert world.app.extensions["packhouse"].services is services


def test_every_row_is_accounted_for() -> None:
    assert sorted([*DEFECTS, *NOT_OURS]) == list(range(1, 40))
    assert list(CHECKLIST) == list(range(1, 11))
