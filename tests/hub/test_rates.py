"""Rate limits by cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import msgpack
import pytest
from werkzeug.test import TestResponse

from hub import records
from hub.errors import TooMany
from hub.rates import HEAVY_CALLS, MIB, Rates, cost_of
from hub.settings import Settings
from tests.hub.offers import Offer, commit, push, refused, snapshot
from tests.hub.world import MUSE_ACCEPT, World

pytestmark = pytest.mark.integration

DEFAULTS: dict[str, Any] = {item.name: item.default for item in fields(Settings) if item.name.startswith("rate_")}
ABROAD = {"REMOTE_ADDR": "192.0.2.7"}


def ask(world: World, address: str = "192.0.2.7", *, token: str | None = None, **headers: str) -> TestResponse:
    sent = world.headers(token) | headers
    return world.client.get("/alice/data/refs", headers=sent, environ_overrides={"REMOTE_ADDR": address})


def too_many(answer: TestResponse) -> None:
    refused(answer, 429, "in one minute")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


def test_pushes_as_large_as_they_may_be_pass_with_the_defaults() -> None:
    """The real client's 34 calls for 12,000 objects, as large as it sends them inline; ten such pushes in a minute."""
    calls = [("muse.refs", 0), ("muse.filter_objects", 12_000 * 66), ("muse.presign", 12_000 * 66)]
    calls += [("muse.push_objects", 400 * (64 * 1024 + 92))] * 30 + [("muse.push", 512 * MIB)]
    rates = Rates(**{name.removeprefix("rate_"): value for name, value in DEFAULTS.items()})
    for _ in range(10):
        for call, size in calls:
            rates.spend("token", "one", cost_of(call, size))


def test_push_of_twelve_thousand_objects_passes_with_the_defaults(new_world: Callable[..., World]) -> None:
    world = new_world(**DEFAULTS)
    contents = {records.object_id(content): content for content in (b"%d" % number for number in range(12_000))}
    tree = snapshot({f"{object_id[:2]}/{object_id}": object_id for object_id in contents})
    missing = msgpack.unpackb(world.post("/filter-objects", {"object_ids": sorted(contents)}, muse=True).data)[
        "missing"
    ]
    for start in range(0, len(missing), 400):
        some = [{"object_id": item, "content": contents[item]} for item in missing[start : start + 400]]
        answer = world.post("/push/objects", {"objects": some}, muse=True)
        assert (answer.status_code, msgpack.unpackb(answer.data)["stored"]) == (200, 400)
    answer = push(world, "muse", Offer([commit(tree)], [tree]))
    assert answer.status_code == 200, answer.data


def test_units_that_are_spent_come_back_with_the_next_minute_only() -> None:
    rates = Rates(per_token=3, per_address=3)
    for _ in range(3):
        rates.spend("token", "one", 1)
    with pytest.raises(TooMany) as caught:
        rates.spend("token", "one", 1)
    assert 1 <= caught.value.retry_after <= 60
    rates.spend("token", "other", 3)
    rates.spend("address", "one", 3)


def test_call_that_costs_more_than_a_minute_may_be_had_once() -> None:
    rates = Rates(per_token=10, per_address=10)
    rates.spend("token", "one", 500)
    with pytest.raises(TooMany):
        rates.spend("token", "one", 1)


def test_cost_is_by_kind_and_by_bytes() -> None:
    assert cost_of("muse.refs", 0) == 1
    assert cost_of("muse.refs", 3 * MIB) == 4
    assert cost_of("muse.fetch", 0) > cost_of("muse.refs", 0)
    assert cost_of("muse.push_objects", None) > 10


def test_heavy_calls_are_calls_of_the_hub(world: World) -> None:
    assert {rule.endpoint for rule in world.app.url_map.iter_rules()} >= HEAVY_CALLS


class TestRequests:
    @pytest.fixture
    def world(self, new_world: Callable[..., World]) -> World:
        return new_world(rate_per_token=5, rate_per_address=3)

    def test_address_is_refused_when_its_units_are_spent_and_others_are_not(self, world: World) -> None:
        assert [ask(world).status_code for _ in range(3)] == [200] * 3
        too_many(ask(world))
        assert ask(world, "192.0.2.8").status_code == 200
        assert ask(world, token="").status_code == 200

    def test_token_is_counted_whatever_the_address(self, world: World) -> None:
        assert [ask(world, f"192.0.2.{n}", token="").status_code for n in range(5)] == [200] * 5
        too_many(ask(world, token=""))
        assert ask(world, token=world.user("bob")).status_code == 200

    def test_muse_client_reads_a_sentence_and_others_json(self, world: World) -> None:
        for _ in range(3):
            ask(world)
        answer = ask(world, Accept=MUSE_ACCEPT)
        too_many(answer)
        assert answer.mimetype == "text/plain"
        assert ask(world).get_json()["error"] == "RATE_LIMITED"

    def test_forged_header_makes_no_other_address(self, world: World) -> None:
        answers = [ask(world, **{"X-Forwarded-For": f"198.51.100.{n}"}) for n in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429]

    def test_bytes_count_also_when_their_number_is_not_announced(self, world: World) -> None:
        def send(**environ: Any) -> int:
            return world.client.post(
                "/alice/data/negotiate", data=b"x", environ_overrides={**ABROAD, **environ}
            ).status_code

        assert send() == 422
        assert send(HTTP_TRANSFER_ENCODING="chunked") == 429

    def test_who_guesses_tokens_is_refused_before_they_are_looked_up(self, new_world: Callable[..., World]) -> None:
        world = new_world(**DEFAULTS)
        statuses = [ask(world, token=f"ph_{number}").status_code for number in range(62)]
        assert statuses == [401] * 60 + [429] * 2
        assert ask(world, token="").status_code == 429
        assert ask(world, "192.0.2.8", token="").status_code == 200

    def test_caller_on_this_machine_without_a_token_is_not_counted(self, world: World) -> None:
        """As long as no proxy is known of: all the world may come through one that is here."""
        assert {ask(world, "127.0.0.1").status_code for _ in range(9)} == {200}

    def test_health_and_signed_urls_are_not_counted(self, world: World) -> None:
        for _ in range(9):
            assert world.client.get("/health", environ_overrides=ABROAD).status_code == 200
            assert world.client.get("/-/downloads/x", environ_overrides=ABROAD).status_code == 404


def test_behind_a_proxy_the_address_is_the_one_that_it_adds(new_world: Callable[..., World]) -> None:
    """What the client itself wrote into the header comes before it."""
    world = new_world(rate_per_address=1, trusted_proxies=1)

    def through(client: str, forged: str) -> int:
        return ask(world, "127.0.0.1", **{"X-Forwarded-For": f"{forged}, {client}"}).status_code

    assert through("198.51.100.1", "10.0.0.1") == 200
    assert through("198.51.100.1", "10.0.0.2") == 429
    assert through("198.51.100.2", "10.0.0.1") == 200


def test_limits_are_off_when_both_are_nought(world: World) -> None:
    assert {ask(world, token=f"ph_{number}").status_code for number in range(70)} == {401}
