"""Who sends a request: a user by its key, or an assumed role by its session's token."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from tidemark.stack.s3_gate.config import GateConfig, GateRole
from tidemark.stack.s3_gate.refusal import Refusal

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A verified identity: its ARN, its user's name (empty for a role), and its policies."""

    arn: str
    user: str
    policies: Sequence[Mapping[str, Any]]


def secret_of(config: GateConfig, access_key: str, token: str) -> tuple[Caller, str]:
    """Who has the key, and its secret, to check the signature with. Raises Refusal for a key or token of nobody."""
    if token:
        return _session(config, access_key, token)
    for user in config.users:
        if user.access_key == access_key:
            arn = f"arn:aws:iam::000000000000:user/{user.name}"
            return Caller(arn=arn, user=user.name, policies=user.policies), user.secret_key
    raise Refusal("InvalidAccessKeyId", "The access key is not known")


def answer(config: GateConfig, caller: Caller, body: bytes) -> bytes:
    """The answer to a call of STS, AssumeRole or GetCallerIdentity; raises Refusal."""
    form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    action = form.get("Action", "")
    if action == "GetCallerIdentity":
        result = f"<Arn>{escape(caller.arn)}</Arn><UserId>{escape(caller.arn)}</UserId><Account>000000000000</Account>"
    elif action == "AssumeRole":
        result = _assume(config, caller, form)
    else:
        raise Refusal("NotImplemented", f"The gate does not answer {action or 'a call without an action'}")
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{_NAMESPACE}"><{action}Result>{result}'
        f"</{action}Result></{action}Response>"
    ).encode()


def _assume(config: GateConfig, caller: Caller, form: Mapping[str, str]) -> str:
    arn = form.get("RoleArn", "")
    role = next((role for role in config.roles if role.arn == arn), None)
    given = form.get("ExternalId", "")
    if role is None or caller.user not in role.trusted or (role.external_id and given != role.external_id):
        raise Refusal("AccessDenied", f"User: {caller.arn} is not authorized to perform: sts:AssumeRole on {arn}")
    end = time.time() + min(config.session_s, float(form.get("DurationSeconds", "3600")))
    key = f"ASIA{secrets.token_hex(8).upper()}"
    claims = {"role": role.name, "session": form.get("RoleSessionName", ""), "key": key, "end": end}
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
    token = f"{text}.{_mac(config, text)}"
    expiration = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    session = f"{_session_arn(role, str(claims['session']))}"
    return (
        f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{_mac(config, key)}</SecretAccessKey>"
        f"<SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration></Credentials>"
        f"<AssumedRoleUser><Arn>{escape(session)}</Arn><AssumedRoleId>{key}</AssumedRoleId></AssumedRoleUser>"
    )


def _session(config: GateConfig, access_key: str, token: str) -> tuple[Caller, str]:
    text, _, mac = token.rpartition(".")
    if not hmac.compare_digest(mac.encode(), _mac(config, text).encode()):
        raise Refusal("InvalidToken", "The provided token is malformed or otherwise invalid")
    claims = json.loads(base64.urlsafe_b64decode(text))
    if claims["key"] != access_key:
        raise Refusal("InvalidToken", "The provided token is another key's")
    if claims["end"] < time.time():
        raise Refusal("ExpiredToken", "The provided token has expired")
    role = next((role for role in config.roles if role.name == claims["role"]), None)
    if role is None:
        raise Refusal("InvalidToken", "The provided token's role does not exist")
    caller = Caller(arn=_session_arn(role, claims["session"]), user="", policies=role.policies)
    return caller, _mac(config, access_key)


def _session_arn(role: GateRole, session: str) -> str:
    return f"arn:aws:sts::000000000000:assumed-role/{role.name}/{session}"


def _mac(config: GateConfig, text: str) -> str:
    return hmac.new(config.token_key.encode(), text.encode(), hashlib.sha256).hexdigest()
