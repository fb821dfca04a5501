"""The composition root: open the services, put the hub together."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Flask, Response
from sqlalchemy import event
from sqlalchemy.orm import sessionmaker
from werkzeug.middleware.proxy_fix import ProxyFix

from hub.api import account, collaborators, repositories, tree
from hub.models.base import db, driver_url
from hub.models.ping import ping_idle
from hub.services import Services, s3_settings
from hub.settings import Settings, environment, from_env
from hub.web import web
from hub.wire import counting, download, errors, mpack, muse, releases, transfer
from hub.wire.codec import answer
from hub.wire.context import Hub, take_page
from hub.work import Work
from storage import Store, open_store


def create_app(
    settings: Settings | None = None,
    *,
    archive: Store | None = None,
    cache: Store | None = None,
    statement_seconds: int = 0,
) -> Flask:
    """The hub as a WSGI application.

    `settings` None: from the environment (SettingsError when it does not suffice). `archive` and `cache` replace the
    S3 stores, in tests. `statement_seconds`: how long a statement may take in the database; 0: as long as it takes.
    """
    settings = settings or from_env(environment())
    app = Flask("hub", static_folder=None)
    app.config["SQLALCHEMY_DATABASE_URI"] = driver_url(settings.database_url)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": 10, "max_overflow": 10}
    # A slash more or less is another path, not a redirect: the Muse client follows none.
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    db.init_app(app)
    with app.app_context():
        ping_idle(db.engine)
        if statement_seconds:
            event.listen(db.engine, "connect", partial(_limit_statements, statement_seconds))
        sessions = sessionmaker(db.engine, expire_on_commit=False)
    services = Services(
        settings=settings,
        sessions=sessions,
        archive=archive or open_store(s3_settings(settings), role="archive"),
        cache=cache or open_store(s3_settings(settings), role="cache"),
    )
    app.extensions["packhouse"] = Hub(services, Work(services))
    for blueprint in (
        muse.wire,
        mpack.wire,
        releases.wire,
        transfer.wire,
        download.wire,
        account.api,
        repositories.api,
        collaborators.api,
        tree.api,
        web,
    ):
        app.register_blueprint(blueprint)
    # Another remote's URL to the client: the same repository, fetched in parts.
    app.register_blueprint(muse.wire, name="parts", url_prefix="/<owner>/<slug>/-/parts", url_defaults={"page": 0})
    app.register_blueprint(muse.wire, name="page", url_prefix="/<owner>/<slug>/-/page/<int(min=1):page>")
    app.url_value_preprocessor(take_page)
    app.add_url_rule("/health", view_func=health)
    errors.register(app)
    counting.register(app, settings)
    if settings.trusted_proxies:
        hops = settings.trusted_proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops, x_host=hops)  # type: ignore[method-assign]
    return app


def _limit_statements(seconds: int, connection: Any, _: object) -> None:
    """Set the limit on a new connection of the pool."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [f"{seconds}s"])
    connection.commit()


def health() -> Response:
    """Answer while the process serves requests."""
    return answer({"status": "ok"})
