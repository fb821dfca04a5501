"""Counts every request against the rate limits, before anything else is done for it."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address

from flask import Flask, Response, request

from hub.rates import Rates, cost_of
from hub.settings import Settings


def register(app: Flask, settings: Settings) -> None:
    """Count the requests of this application."""
    rates = Rates(per_token=settings.rate_per_token, per_address=settings.rate_per_address)

    @app.before_request
    def count() -> None:
        # A signed URL was handed out by a call that was counted.
        call = str(request.endpoint)
        if call == "health" or request.blueprint == "transfer":
            return
        token, address = request.headers.get("Authorization"), _address(settings)
        size = None if request.headers.get("Transfer-Encoding") else request.content_length or 0
        if token is not None:
            if address is not None:
                rates.check("refused", address)
            rates.spend("token", hashlib.sha256(token.encode()).hexdigest(), cost_of(call, size))
        elif address is not None:
            rates.spend("address", address, cost_of(call, size))

    @app.after_request
    def count_refused(response: Response) -> Response:
        address = _address(settings)
        if response.status_code == 401 and address is not None and "Authorization" in request.headers:
            rates.note("refused", address)
        return response


def _address(settings: Settings) -> str | None:
    """The caller's address; None when it says nothing: behind a proxy on this machine that nobody told us of."""
    address = request.remote_addr or ""
    try:
        local = ip_address(address).is_loopback
    except ValueError:
        return None
    return None if local and not settings.trusted_proxies else address
