"""What a request or a task is handed: the database, the two stores, the settings."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session, sessionmaker

from hub.settings import Settings
from storage import S3Settings, Store


@dataclass(frozen=True, slots=True)
class Services:
    """The open services of one process.

    `archive` holds the truth: pushed packs. `cache` holds what can be built again: packs made for fetches.
    """

    settings: Settings
    sessions: sessionmaker[Session]
    archive: Store
    cache: Store


def s3_settings(settings: Settings) -> S3Settings:
    """The part of the settings that the S3 store takes."""
    return S3Settings(
        endpoint_url=settings.s3_endpoint_url,
        public_endpoint_url=settings.s3_public_endpoint_url,
        region=settings.s3_region,
        bucket=settings.s3_bucket,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
    )
