import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hub.cli import packhouse
from hub.client.address import parse_hub
from hub.client.credentials import Credentials
from hub.client.errors import BadInput
from hub.settings import config_home
from tests.hub.client.scripted import Reply, ScriptedServer, answer

TOKEN = "tok-secret-123"
ME = {"name": "ada", "scopes": ["read", "write"], "expires_at": None, "label": "laptop"}
REFS = {"branch_heads": {}, "default_branch": "main"}


class Home:
    """A user's home; runs commands as that user."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / ".config" / "packhouse" / "credentials"

    def run(self, *arguments: str, stdin: str | None = None, token: str | None = None) -> Result:
        environ = {"HOME": str(self.path), "XDG_CONFIG_HOME": None, "PACKHOUSE_TOKEN": token}
        return CliRunner().invoke(packhouse, list(arguments), env=environ, input=stdin)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def known(server: ScriptedServer, home: Home) -> Home:
    """A home with a token for the server."""
    server.on("GET", "/api/whoami", answer(ME))
    server.on("GET", "refs", answer(REFS))
    assert home.run("login", server.root, stdin=f"{TOKEN}\n").exit_code == 0
    server.asked.clear()
    return home


def authority(server: ScriptedServer) -> str:
    return server.root.removeprefix("http://")


def test_login_tries_the_token_and_keeps_it_where_nobody_else_reads(server: ScriptedServer, home: Home) -> None:
    server.on("GET", "/api/whoami", answer(ME))
    result = home.run("login", server.url, stdin=f"{TOKEN}\n")
    assert result.stdout == f"Logged in to {authority(server)} as ada (token «laptop»: read, write)\n"
    assert server.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert home.file.read_text() == f"machine {authority(server)} token {TOKEN}\n"
    assert home.file.stat().st_mode & 0o777 == 0o600
    assert home.file.parent.stat().st_mode & 0o777 == 0o700
    assert TOKEN not in result.output


def test_token_that_the_hub_refuses_is_not_kept(server: ScriptedServer, home: Home) -> None:
    server.on("GET", "/api/whoami", answer({"error": "UNAUTHENTICATED", "message": "Unknown token."}, 401))
    result = home.run("login", server.root, stdin="wrong\n")
    assert (result.exit_code, home.file.exists()) == (1, False)


def test_empty_token_is_wrong_usage(server: ScriptedServer, home: Home) -> None:
    assert home.run("login", server.root, "--token-stdin", stdin="\n").exit_code == 2
    assert server.asked == []


def test_kept_token_is_sent_by_the_commands(server: ScriptedServer, known: Home) -> None:
    assert known.run("ls-remote", server.url).exit_code == 0
    assert server.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"


def test_token_of_the_environment_wins(server: ScriptedServer, known: Home) -> None:
    known.run("ls-remote", server.url, token="other")
    assert server.asked[0].headers["Authorization"] == "Bearer other"


def test_kept_token_is_sent_to_no_other_hub(known: Home) -> None:
    other = ScriptedServer()
    try:
        other.on("GET", "refs", answer(REFS))
        assert known.run("ls-remote", other.url).exit_code == 0
        assert "Authorization" not in other.asked[0].headers
    finally:
        other.close()


def test_token_is_not_sent_where_a_redirect_leads(server: ScriptedServer, known: Home) -> None:
    other = ScriptedServer()
    try:
        server.on("GET", "/ada/moved/refs", Reply(307, b"", {"Location": f"{other.url}/refs"}))
        assert known.run("ls-remote", f"{server.root}/ada/moved").exit_code == 3
        assert other.asked == []
    finally:
        other.close()


def test_token_never_goes_over_plain_http_unless_told_so(home: Home) -> None:
    result = home.run("login", "http://hub.invalid", stdin=f"{TOKEN}\n")
    assert (result.exit_code, "plain http" in result.stderr) == (2, True)
    assert home.run("login", "http://hub.invalid", "--insecure", stdin=f"{TOKEN}\n").exit_code == 3
    assert not home.file.exists()


def test_logout_forgets(server: ScriptedServer, known: Home) -> None:
    assert known.run("logout", server.url).stdout == f"Logged out from {authority(server)}\n"
    assert known.run("logout", server.url).stdout == f"Not logged in to {authority(server)}\n"
    known.run("ls-remote", server.url)
    assert "Authorization" not in server.asked[0].headers


def test_whoami_asks_the_hub(server: ScriptedServer, known: Home) -> None:
    assert known.run("whoami", server.root).stdout == "ada (token «laptop»: read, write)\n"
    said = json.loads(known.run("whoami", server.root, "--json").stdout)
    assert (said["name"], said["hub"]) == ("ada", authority(server))
    assert known.run("whoami", "https://other.invalid").exit_code == 2


def test_file_that_others_can_read_is_not_used(server: ScriptedServer, known: Home) -> None:
    known.file.chmod(0o640)
    result = known.run("ls-remote", server.url)
    assert (result.exit_code, "chmod 600" in result.stderr) == (2, True)


@pytest.mark.parametrize("text", ["machine a\n", "token x\n", "\x00\n", "machine a token b c\n"])
def test_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(BadInput, match="is damaged"):
        Credentials(path).find("a")


def test_other_hubs_stay_when_one_is_changed(tmp_path: Path) -> None:
    kept = Credentials(tmp_path / "deep" / "credentials")
    kept.save("b", "2")
    kept.save("a", "1")
    kept.save("b", "3")
    assert kept.remove("a")
    assert (kept.find("a"), kept.find("b")) == (None, "3")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["credentials"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Hub.Example.org/ada/notes", "hub.example.org"),
        ("https://hub:443", "hub"),
        ("http://hub:443", "hub:443"),
        ("http://[::1]:8000/", "[::1]:8000"),
    ],
)
def test_token_belongs_to_host_and_port(url: str, expected: str) -> None:
    assert parse_hub(url).authority == expected


def test_configuration_lies_where_the_environment_says() -> None:
    assert config_home({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x")
    assert config_home({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path("/h/.config")


# --- repo create over HTTP ------------------------------------------------------------------------

MADE = {"repo_id": "r", "owner": "ada", "name": "notes", "visibility": "private", "default_branch": "trunk"}


def test_repository_is_created_over_http(server: ScriptedServer, known: Home) -> None:
    server.on("POST", "/api/repositories", answer(MADE | {"domain": "code", "url": server.url}, 201))
    options = ("--private", "--default-branch", "trunk", "--domain", "midi")
    result = known.run("repo", "create", server.url, *options)
    assert result.stdout == f"Repository {server.url} created (private).\n"
    asked = server.asked_for("/api/repositories")[0]
    assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
    names = {"owner": "ada", "name": "notes", "visibility": "private"}
    assert asked.json == names | {"default_branch": "trunk", "domain": "midi"}
    assert json.loads(known.run("repo", "create", server.url, "--json").stdout)["repo_id"] == "r"


def test_repository_that_exists_is_a_conflict(server: ScriptedServer, known: Home) -> None:
    server.on("POST", "/api/repositories", answer({"error": "EXISTS", "message": "ada/notes exists."}, 409))
    result = known.run("repo", "create", server.url)
    assert (result.exit_code, result.stderr) == (1, "Error: ada/notes exists. (HTTP 409)\n")
