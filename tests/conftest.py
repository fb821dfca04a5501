"""Real servers for the tests, and connections that leave nothing behind.

One Postgres and one S3 server serve the whole run, xdist or not: the process that pytest was started in (the
controller) runs them in a temporary directory, each worker makes a database and a bucket of its own there.
They end with the controller: by its own clean-up, or by the kernel when it is killed. TEST_DATABASE_URL names
a server to use instead (the user must be a superuser; databases are made and dropped in it).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg import sql

from tests.servers import Servers

if TYPE_CHECKING:
    from storage import S3Settings, S3Store, Store

ROOT = Path(__file__).parent.parent
# More examples: pytest --hypothesis-profile=deep; of the queue's property test alone: --histories=N.
hypothesis.settings.register_profile("fast", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=200, print_blob=True)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=2_000, print_blob=True)
hypothesis.settings.load_profile("fast")

CONNECT_SECONDS = 10
SERVERS = pytest.StashKey[Servers]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make property` says."""
    parser.addoption("--histories", type=int, help="how many random histories the queue's property test runs")


def pytest_configure(config: pytest.Config) -> None:
    """Give the controller its servers, and stop them when pytest ends, by whatever way."""
    if not hasattr(config, "workerinput"):
        servers = Servers()
        config.stash[SERVERS] = servers
        config.add_cleanup(servers.stop)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker where the servers are."""
    servers = node.config.stash[SERVERS]
    servers.launch()
    node.workerinput["postgres_url"] = servers.postgres_url()
    node.workerinput["s3"] = servers.s3()


def _worker_input(config: pytest.Config) -> dict[str, Any] | None:
    return getattr(config, "workerinput", None)


def migrate(database_url: str) -> None:
    """Bring the database to the newest schema, with the real migrations."""
    config = Config(ROOT / "setup.cfg")
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["database_url"] = database_url
    command.upgrade(config, "heads")


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """A superuser's URL of the server, for tests that make databases of their own."""
    given = _worker_input(request.config)
    return str(given["postgres_url"]) if given else request.config.stash[SERVERS].postgres_url()


@pytest.fixture(scope="session")
def new_database(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Return the URL of a fresh, empty database at every call; all are dropped at the end."""
    names: list[str] = []

    def create() -> str:
        name = f"packhouse_test_{secrets.token_hex(6)}"
        with psycopg.connect(postgres_url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        names.append(name)
        return postgres_url.rpartition("/")[0] + f"/{name}"

    yield create
    with psycopg.connect(postgres_url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        for name in names:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def database_url(new_database: Callable[[], str]) -> str:
    """The URL of a migrated database: one per xdist worker."""
    url = new_database()
    migrate(url)
    return url


@pytest.fixture
def db(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose work is rolled back after the test."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def _clean_rows(database_url: str) -> Iterator[None]:
    """Delete all rows of the schemas tasks and hub after the test, once its connections are closed."""
    yield
    _delete_all_rows(database_url)


@pytest.fixture
def connect(database_url: str, _clean_rows: None) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """Return a further connection to the test's database at every call; all are rolled back and closed after
    the test.
    """
    connections: list[psycopg.Connection[Any]] = []

    def open_one() -> psycopg.Connection[Any]:
        connection = psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS)
        connections.append(connection)
        return connection

    yield open_one
    for connection in connections:
        connection.close()


@pytest.fixture
def committed_db(database_url: str, _clean_rows: None) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose test may commit: all rows of the schemas tasks and hub are deleted after the
    test.
    """
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        yield connection
        connection.rollback()


def _delete_all_rows(database_url: str) -> None:
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        # A connection that a test forgot must fail the test, not hang the run.
        connection.execute("SET lock_timeout = '10s'")
        # Foreign keys are not checked in this role, so the order of the tables does not matter.
        connection.execute("SET session_replication_role = replica")
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('tasks', 'hub')"
        ).fetchall()
        for schema, table in tables:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table)))


@pytest.fixture(scope="session")
def s3_settings(request: pytest.FixtureRequest) -> S3Settings:
    """The real S3 server, with a fresh bucket: one per xdist worker."""
    from storage import S3Settings, S3Store

    given = _worker_input(request.config)
    fields = given["s3"] if given else request.config.stash[SERVERS].s3()
    bucket = f"test-{secrets.token_hex(6)}"
    settings = S3Settings(**fields, public_endpoint_url=None, region="us-east-1", bucket=bucket)
    with closing(S3Store(settings)) as store:
        store.ensure_bucket()
    return settings


@pytest.fixture(scope="session")
def _s3(s3_settings: S3Settings) -> Iterator[S3Store]:
    from storage import S3Store

    with closing(S3Store(s3_settings)) as store:
        yield store


@pytest.fixture
def s3_store(_s3: S3Store) -> Store:
    """A store on the real S3 server that is empty at first: every test has its own prefix."""
    from storage import Prefixed

    return Prefixed(_s3, f"{secrets.token_hex(6)}/")


@pytest.fixture
def memory_store() -> Store:
    """The strict store in memory, empty."""
    from storage import MemoryStore

    return MemoryStore()
