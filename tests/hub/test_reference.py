"""The HTTP reference names every route, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hub.world import World

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
PARAMETERS = {
    "<owner>": "OWNER", "<slug>": "SLUG", "<uuid:push_id>": "ID", "<uuid:token_id>": "ID", "<tag>": "TAG",
    "<name>": "NAME", "<path:name>": "NAME",
}  # fmt: skip

PARTS = re.compile(r"/-/(parts|page/<int\(min=1\):page>)")
"""The Muse client's routes once more, below other remote URLs: the page says so once."""


def as_documented(rule: str) -> str:
    """The rule below its repository, its parameters as the page writes them."""
    path = PARTS.sub("", rule).removeprefix("/<owner>/<slug>")
    return re.sub("<[^>]*>", lambda found: PARAMETERS[found[0]], path)


def test_the_reference_has_a_heading_for_every_route(world: World) -> None:
    documented = set(re.findall(r"^### `(\w+ /\S+)`$", PAGE.read_text(), re.MULTILINE))
    served = {
        f"{method} {as_documented(rule.rule)}"
        for rule in world.app.url_map.iter_rules()
        if rule.rule.startswith(("/<owner>/<slug>/", "/api/"))
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert documented == served
