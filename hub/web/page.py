"""A page as it leaves the hub. It shows what others have pushed, so nothing in it may run or load."""

from __future__ import annotations

from typing import Any

from flask import Response, render_template, request

from hub.wire.codec import API, accepts_msgpack

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def page(name: str, **values: Any) -> Response:
    """The template `web/NAME.html` with these values."""
    return Response(render_template(f"web/{name}.html", **values), headers=HEADERS)


def error_page(status: int, sentence: str, headers: dict[str, str] | None) -> Response:
    """What a browser shows of an error."""
    shown = page("error", status=status, sentence=sentence)
    shown.status_code = status
    shown.headers.update(headers or {})
    return shown


def wants_page() -> bool:
    """Whether the caller is a browser: it alone names HTML. The API answers in JSON whoever asks."""
    html = "text/html" in request.headers.get("Accept", "")
    return html and not accepts_msgpack() and not request.path.startswith(API)
