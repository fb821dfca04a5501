"""The hub's settings. The only reader of the environment.

Precedence: arguments to `create_app` over the environment over the defaults below.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

MIB = 1024 * 1024


class SettingsError(ValueError):
    """A setting is missing, unknown or contradictory; the message names it and what would be right."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that differs between two installations.

    Sizes are bytes, times are seconds.
    """

    database_url: str = field(repr=False)
    """libpq URL, `postgresql://user:password@host:port/name`."""
    s3_endpoint_url: str
    s3_access_key: str = field(repr=False)
    s3_secret_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    """Signs the hub's own upload and download URLs; at least 32 characters."""
    s3_public_endpoint_url: str | None = None
    """The endpoint as clients reach it, for presigned URLs; None: the same as `s3_endpoint_url`."""
    s3_region: str = "us-east-1"
    s3_bucket: str = "packhouse"
    presign: bool = True
    """Hand out presigned URLs; False: every byte goes through the hub."""
    max_mpack_bytes: int = 4096 * MIB
    max_body_bytes: int = 64 * MIB
    """Cap of one Part A body of objects, and of every small request."""
    max_bundle_bytes: int = 512 * MIB
    """Cap of one Part A `/push` body: commits and full manifests."""
    max_object_bytes: int = 1024 * MIB
    multipart_bytes: int = 1024 * MIB
    """A larger pack is uploaded in parts."""
    part_bytes: int = 16 * MIB
    """Size of such a part; S3 takes at least 5 MiB."""
    upload_seconds: int = 6 * 3600
    """Lifetime of an upload URL; a slow client may use the last of many hours later."""
    download_seconds: int = 3600
    rate_per_token: int = 30_000
    """Units that a token may spend in a minute, in each web process; 0: no limit. `hub.rates` says what costs what."""
    rate_per_address: int = 6_000
    """The same for an address that sends no token."""
    trusted_proxies: int = 0
    """How many proxies before the hub add to X-Forwarded-For, -Proto and -Host; 0: these headers are ignored."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        if not self.database_url.startswith(("postgresql://", "postgres://")):
            raise SettingsError("DATABASE_URL must begin with postgresql://")
        if not self.s3_endpoint_url.startswith(("http://", "https://")):
            raise SettingsError("S3_ENDPOINT_URL must begin with http:// or https://")
        if len(self.secret_key) < 32:
            raise SettingsError("PACKHOUSE_SECRET_KEY must have at least 32 characters")
        if self.part_bytes < 5 * MIB:
            raise SettingsError("PACKHOUSE_PART_BYTES must be at least 5242880 (5 MiB), the least that S3 takes")
        for name in ("max_mpack_bytes", "max_body_bytes", "max_bundle_bytes", "max_object_bytes", "multipart_bytes"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{ENVIRONMENT[name]} must be at least 1")


ENVIRONMENT: dict[str, str] = {
    "database_url": "DATABASE_URL",
    "s3_endpoint_url": "S3_ENDPOINT_URL",
    "s3_public_endpoint_url": "S3_PUBLIC_ENDPOINT_URL",
    "s3_region": "S3_REGION",
    "s3_bucket": "S3_BUCKET",
    "s3_access_key": "S3_ACCESS_KEY_ID",
    "s3_secret_key": "S3_SECRET_ACCESS_KEY",
    "secret_key": "PACKHOUSE_SECRET_KEY",
    "presign": "PACKHOUSE_PRESIGN",
    "max_mpack_bytes": "PACKHOUSE_MAX_MPACK_BYTES",
    "max_body_bytes": "PACKHOUSE_MAX_BODY_BYTES",
    "max_bundle_bytes": "PACKHOUSE_MAX_BUNDLE_BYTES",
    "max_object_bytes": "PACKHOUSE_MAX_OBJECT_BYTES",
    "multipart_bytes": "PACKHOUSE_MULTIPART_BYTES",
    "part_bytes": "PACKHOUSE_PART_BYTES",
    "upload_seconds": "PACKHOUSE_UPLOAD_SECONDS",
    "download_seconds": "PACKHOUSE_DOWNLOAD_SECONDS",
    "rate_per_token": "PACKHOUSE_RATE_PER_TOKEN",
    "rate_per_address": "PACKHOUSE_RATE_PER_ADDRESS",
    "trusted_proxies": "PACKHOUSE_TRUSTED_PROXIES",
}
"""Field → environment variable."""

BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def environment() -> dict[str, str]:
    """Return a copy of the environment, for `from_env` and for programs that are started."""
    return dict(os.environ)


def config_home(environ: Mapping[str, str]) -> Path:
    """Where a user's configuration lies: XDG_CONFIG_HOME, else `.config` in the home directory.

    The rule is that of the XDG Base Directory Specification, which ignores a relative path.
    """
    named = environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if named.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"


def _value(variable: str, text: str, kind: object) -> str | int | bool:
    if kind == "bool":
        if text.lower() not in BOOLEANS:
            raise SettingsError(f"{variable} must be one of {', '.join(BOOLEANS)}")
        return BOOLEANS[text.lower()]
    if kind == "int":
        if not text.isascii() or not text.isdigit():
            raise SettingsError(f"{variable} must be a whole number")
        return int(text)
    return text


def from_env(environ: Mapping[str, str]) -> Settings:
    """Read the settings from `environ`.

    Raises SettingsError for a missing or malformed variable, and for a `PACKHOUSE_…` one that nobody reads.
    """
    unknown = {name for name in environ if name.startswith("PACKHOUSE_")} - set(ENVIRONMENT.values()) - ELSEWHERE
    if unknown:
        raise SettingsError(f"{min(unknown)} is not a setting; known are {', '.join(sorted(ENVIRONMENT.values()))}")
    kinds = {item.name: item.type for item in fields(Settings)}
    given = {
        name: _value(variable, environ[variable], kinds[name])
        for name, variable in ENVIRONMENT.items()
        if environ.get(variable)
    }
    missing = [ENVIRONMENT[name] for name in REQUIRED if name not in given]
    if missing:
        raise SettingsError(f"{', '.join(missing)} must be set (see README, «Settings»)")
    return Settings(**given)  # type: ignore[arg-type]  # each value was made from its field's own type above


REQUIRED = ("database_url", "s3_endpoint_url", "s3_access_key", "s3_secret_key", "secret_key")
ELSEWHERE = {"PACKHOUSE_ONCE", "PACKHOUSE_TOKEN", "PACKHOUSE_STATE"}
"""Variables of the command line, not of the hub."""
