"""Who calls S3, for boto3: keys, a profile or what AWS's clients find by themselves, and a role on top of any of them.

Spark's clients get the same identity by ``tidemark.spark.s3_conf``.
"""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials

# The name in AWS's logs of what a role did.
ROLE_SESSION = "tidemark"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Identity:
    """The settings that decide who calls, and how the role's keys are fetched. An empty text means: not set."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    profile: str = ""
    role_arn: str = ""
    external_id: str = field(default="", repr=False)
    sts_endpoint: str = ""
    region: str = ""
    ca_bundle: str = ""
    proxy: str = ""

    def session(self) -> boto3.Session:
        """A session of this identity, one per process, so that all clients share the refreshing of a role's keys.

        Raises botocore's ProfileNotFound. Other failures come with the first call of a client.
        """
        return _session(self)

    def current(self) -> "ReadOnlyCredentials | None":
        """The keys of this moment, for clients that can't refresh them; None if there are none.

        Keys of a role are valid for 15 minutes at least: botocore replaces older ones. Raises what STS's client raises.
        """
        found = self.session().get_credentials()
        return found.get_frozen_credentials() if found else None


def connection_options(ca_bundle: str, proxy: str) -> tuple[str | None, dict[str, str] | None]:
    """The arguments ``verify`` of a client and ``proxies`` of its Config."""
    return ca_bundle or None, {"http": proxy, "https": proxy} if proxy else None


class _Role(CredentialProvider):
    """The keys of a role. botocore fetches them when a call needs them, and again 15 minutes before they expire."""

    METHOD = "assume-role"

    def __init__(self, identity: S3Identity, own: "Credentials", session: botocore.session.Session) -> None:
        super().__init__()
        verify, proxies = connection_options(identity.ca_bundle, identity.proxy)
        external = {"ExternalId": identity.external_id} if identity.external_id else {}
        fetcher = AssumeRoleCredentialFetcher(
            partial(
                session.create_client,
                region_name=identity.region,
                endpoint_url=identity.sts_endpoint or None,
                verify=verify,
                config=Config(proxies=proxies, connect_timeout=10, retries={"mode": "standard", "max_attempts": 3}),
            ),
            own,
            identity.role_arn,
            extra_args={"RoleSessionName": ROLE_SESSION, **external},
        )
        self._found = DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)

    def load(self) -> Any:
        return self._found


@lru_cache(maxsize=16)
def _session(identity: S3Identity) -> boto3.Session:
    own = botocore.session.Session(profile=identity.profile or None)
    if identity.access_key:
        own.set_credentials(identity.access_key, identity.secret_key, identity.session_token or None)
    if not identity.role_arn:
        return boto3.Session(botocore_session=own)
    calling = botocore.session.Session(profile=identity.profile or None)
    credentials = own.get_credentials()
    role: list[CredentialProvider] = [_Role(identity, credentials, own)] if credentials else []
    calling.register_component("credential_provider", CredentialResolver(role))
    return boto3.Session(botocore_session=calling)
