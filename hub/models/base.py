"""The declarative base, and how a 64-digit id lies in a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import LargeBinary, MetaData
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator, UserDefinedType

from hub.models.sets import Ids


class Base(DeclarativeBase):
    """What Flask-SQLAlchemy builds `db.Model` from."""

    metadata = MetaData(schema="hub")


db = SQLAlchemy(model_class=Base)

if TYPE_CHECKING:
    Model = Base
else:
    Model = db.Model


class Digest(TypeDecorator[str]):
    """A SHA-256 id: 64 lower-case hex digits in Python, 32 bytes in the column."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> bytes | None:
        """Hex to bytes."""
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: Any, _dialect: Dialect) -> str | None:
        """Bytes to hex."""
        return None if value is None else bytes(value).hex()


class Digests(UserDefinedType[list[str]]):
    """Many ids in one column of type `bytea[]`, sent in the binary form of `Ids`."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Postgres' name of the type."""
        return "BYTEA[]"

    def bind_processor(self, dialect: Dialect) -> Callable[[list[str] | None], Ids | None]:
        """Hex to bytes."""
        del dialect
        return lambda value: None if value is None else Ids(map(bytes.fromhex, value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], list[str] | None]:
        """Bytes to hex."""
        del dialect, coltype
        return lambda value: None if value is None else [bytes(item).hex() for item in value]


def driver_url(database_url: str) -> str:
    """A libpq URL as SQLAlchemy says it for psycopg 3."""
    return f"postgresql+psycopg://{database_url.partition('://')[2]}"
