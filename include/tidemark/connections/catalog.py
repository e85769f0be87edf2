"""One Iceberg catalog, as Spark and pyiceberg reach it.

Properties have the names of Iceberg's Java library, which pyiceberg mostly shares; the others are translated here.
``spark.NAME`` and ``pyiceberg.NAME`` are for one side only, and override what it would get.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from tidemark.connections.jdbc import sqlalchemy_url
from tidemark.connections.shown import has_secret_word, looks_like_address, open_address, shown

CatalogType = Literal["jdbc", "rest", "glue", "hive", "nessie"]

_SPARK, _PYICEBERG = "spark.", "pyiceberg."
_TIDEMARKS = {
    "type": "set TIDEMARK_CATALOG_TYPE",
    "catalog-impl": "set TIDEMARK_CATALOG_TYPE",
    "io-impl": "leave it out: tables are in S3",
    "cache-enabled": "leave it out: every reader must see other processes' commits",
}
_SCHEMES = {
    "jdbc": (r"jdbc:(sqlite:\S|postgresql://[^/\s])", "jdbc:sqlite:PATH or jdbc:postgresql://HOST:PORT/DATABASE"),
    "rest": (r"https?://[^/\s]", "https://HOST"),
    "hive": (r"thrift://[^/\s]", "thrift://HOST:PORT"),
    "nessie": (r"https?://[^/\s]", "https://HOST/api/v2"),
}
_PROPERTY = re.compile("[A-Za-z0-9._-]+")  # the pattern by which Spark hides values matches no other names
_PEM = "-----BEGIN"
# HTTP clients refuse such a header, and show it.
_NOT_IN_HEADERS = re.compile(r"[\x00-\x1f\x7f]")
# Clients send these values as they are, in Latin-1, the encoding of headers. They send passwords as Base64.
_SENT = re.compile(r"((spark|pyiceberg)[.])?(header[.].+|(.+[.-])?token)", re.IGNORECASE)
_BEYOND_LATIN_1 = re.compile("[^\x00-\xff]")
_NESSIE_API = re.compile(r"/api/v[12]/?$")
# What only pyiceberg knows, and what both know instead.
_REGION = "client.region"
_ONE_SIDED = {
    "glue.region": _REGION,
    "glue.access-key-id": "the S3 identity, or pyiceberg.glue.access-key-id",
    "glue.secret-access-key": "the S3 identity, or pyiceberg.glue.secret-access-key",
    "glue.session-token": "the S3 identity, or pyiceberg.glue.session-token",
    "glue.profile-name": "the S3 identity, or pyiceberg.glue.profile-name",
}
_SIGNING = {
    "rest.access-key-id": "client.access-key-id",
    "rest.secret-access-key": "client.secret-access-key",
    "rest.session-token": "client.session-token",
}
# Pyiceberg passes it on as it is, and boto3 wants a number.
_NUMBER = "glue.max-retries"
# Pyiceberg wants a mapping for these: auth.basic.username is {"auth": {"basic": {"username": ...}}}.
_NESTED = ("auth", "ssl")


def checked_uri(kind: CatalogType, uri: str) -> str:
    """The address, if it fits the type; empty without one. Raises ValueError."""
    if kind == "glue":
        if uri:
            raise ValueError('a glue catalog has none; for another endpoint, set "glue.endpoint" in the properties')
        return uri
    pattern, example = _SCHEMES[kind]
    if not uri:
        raise ValueError(
            f"missing; a catalog of type {kind} needs it, such as {example}, here or as uri in"
            " TIDEMARK_CATALOG_PROPERTIES"
        )
    if not re.match(pattern, open_address(uri)):
        raise ValueError(f"expected {example} for a {kind} catalog, found {uri!r}")
    return uri


@dataclass(frozen=True, slots=True)
class CatalogConnection:
    """Its text shows no property. ``checked`` says whether both sides can use it."""

    kind: CatalogType
    uri: str  # empty: none
    warehouse: str
    properties: Mapping[str, str] = field(repr=False, hash=False)

    def checked(self) -> "CatalogConnection":
        """This connection. Raises ValueError, with no secret, if a property can't be used."""
        for name, text in self.properties.items():
            if not _PROPERTY.fullmatch(name):
                raise ValueError(f"{name!r}: a property's name may contain only letters, digits and . _ -")
            is_file = _PEM in text or text.lstrip().startswith("{")
            in_header = has_secret_word(name) and not is_file
            if in_header and (_NOT_IN_HEADERS.search(text) or (name.startswith("header.") and text != text.strip())):
                raise ValueError(f"{name}: it has a line break, or another character that a header can't have")
            if _SENT.fullmatch(name) and (wrong := _BEYOND_LATIN_1.search(text)):
                place = f"character {wrong.start() + 1} of {len(text)}"
                raise ValueError(f"{name}: {place} is not in Latin-1, so no HTTP header can contain it")
            if shown(name) and looks_like_address(text):
                try:
                    open_address(text)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
            plain = name.removeprefix(_SPARK).removeprefix(_PYICEBERG)
            if plain in _TIDEMARKS:
                raise ValueError(f"{name}: {_TIDEMARKS[plain]}")
            if name in _ONE_SIDED:
                raise ValueError(f"{name}: Spark does not know it; use {_ONE_SIDED[name]}")
        self.pyiceberg()
        return self

    def spark(self) -> dict[str, str]:
        """Properties below ``spark.sql.catalog.NAME.``."""
        found = {
            **self._warehouse(),
            **({"jdbc.schema-version": "V1"} if self.kind == "jdbc" else {}),
            **self._shared(),
            **self._only(_SPARK),
            "type": self.kind,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            # Other processes commit to the same tables; a cached table would not show their commits.
            "cache-enabled": "false",
        }
        return {**found, "uri": found.get("uri", self.uri)} if self.uri else found

    def pyiceberg(self) -> dict[str, Any]:
        """Properties for pyiceberg's catalog, ``type`` included. Raises ValueError if it has no such catalog."""
        shared, own = self._shared(), self._only(_PYICEBERG)
        if self.kind == "jdbc":
            jdbc = {key.removeprefix("jdbc."): shared.pop(key) for key in tuple(shared) if key.startswith("jdbc.")}
            jdbc.pop("schema-version", None)
            if "uri" not in own:
                own["uri"] = sqlalchemy_url(self.uri, jdbc)
        elif self.kind == "nessie":
            shared = _nessie(shared)
            ref = shared.pop("ref", "main")
            if "uri" not in own:
                own["uri"] = _nessie_rest(self.uri, ref)
        elif self.uri:
            own.setdefault("uri", self.uri)
        if self.kind == "rest":
            shared = _rest(shared)
        # Nessie's REST endpoint knows warehouses by the names that its server gives them.
        warehouse = {} if self.kind == "nessie" else self._warehouse()
        flat = {**warehouse, **shared, **own, "type": {"jdbc": "sql", "nessie": "rest"}.get(self.kind, self.kind)}
        return _nested(flat)

    def _warehouse(self) -> dict[str, str]:
        """A REST server has a warehouse of its own, or knows several by names, which are in the properties."""
        return {} if self.kind == "rest" else {"warehouse": self.warehouse}

    def _shared(self) -> dict[str, str]:
        """What both sides get; the address is in ``uri``."""
        sides = (_SPARK, _PYICEBERG)
        return {key: text for key, text in self.properties.items() if key != "uri" and not key.startswith(sides)}

    def _only(self, side: str) -> dict[str, str]:
        return {key.removeprefix(side): text for key, text in self.properties.items() if key.startswith(side)}


def _rest(given: Mapping[str, str]) -> dict[str, str]:
    """Pyiceberg's names for the authentication of a REST catalog."""
    found = {_SIGNING.get(key, key): text for key, text in given.items()}
    kind = found.pop("rest.auth.type", "").lower()
    basic = {key: found.pop(key) for key in tuple(found) if key.startswith("rest.auth.basic.")}
    if kind == "sigv4":
        found["rest.sigv4-enabled"] = "true"
    elif kind == "basic":
        found |= {"auth.type": "basic", **{key.removeprefix("rest."): text for key, text in basic.items()}}
    elif kind == "none":
        found["auth.type"] = "noop"
    elif kind not in ("", "oauth2"):
        raise ValueError(f"rest.auth.type: pyiceberg has no {kind!r}; set spark.rest.auth.type and pyiceberg.auth.type")
    return found


def _nessie_rest(uri: str, ref: str) -> str:
    """The address of Nessie's Iceberg REST endpoint, which is what pyiceberg speaks, on a branch or tag."""
    if not _NESSIE_API.search(urlsplit(uri).path):
        raise ValueError(
            "nessie: expected TIDEMARK_CATALOG_URI to end in /api/v2; or set pyiceberg.uri to the address of Nessie's"
            " Iceberg REST endpoint, such as https://HOST/iceberg/main"
        )
    return f"{_NESSIE_API.sub('', uri)}/iceberg/{quote(ref, safe='')}"


def _nessie(given: Mapping[str, str]) -> dict[str, str]:
    """The REST catalog's names for Nessie's authentication; Nessie's other settings are not pyiceberg's."""
    found = {key: text for key, text in given.items() if not key.startswith("authentication.")}
    kind = given.get("authentication.type", "NONE").upper()
    oauth = "authentication.oauth2."
    if kind == "BEARER":
        found["token"] = given.get("authentication.token", "")
    elif kind == "OAUTH2":
        missing = [key for key in ("token-endpoint", "client-id", "client-secret") if oauth + key not in given]
        if missing:
            raise ValueError(
                f"{oauth}{missing[0]}: pyiceberg needs it; or set pyiceberg.credential and pyiceberg.oauth2-server-uri"
            )
        found["oauth2-server-uri"] = given[oauth + "token-endpoint"]
        found["credential"] = f"{given[oauth + 'client-id']}:{given[oauth + 'client-secret']}"
        if scopes := given.get(oauth + "client-scopes"):
            found["scope"] = scopes
    elif kind != "NONE":
        raise ValueError(
            f"authentication.type: pyiceberg has no {kind}; set spark.authentication.type and pyiceberg.auth.type"
        )
    return found


def _nested(flat: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {_NUMBER: int(flat[_NUMBER])} if _NUMBER in flat else {}
    for name, text in flat.items():
        first, *rest = name.split(".")
        if first not in _NESTED or not rest:
            found.setdefault(name, text)
            continue
        place = found.setdefault(first, {})
        for part in rest[:-1]:
            place = place.setdefault(part, {})
        place[rest[-1]] = text
    return found
