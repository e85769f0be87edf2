"""Tokens by which librdkafka authenticates at MSK with an identity of AWS."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MskToken:
    """Called by librdkafka whenever it needs a token. It signs one with the identity of the machine where it is called.

    Without profile and role that is the default one: environment, web identity, instance.
    """

    region: str
    profile: str | None = None
    role_arn: str | None = None
    role_session: str | None = None

    def __call__(self, _config: str) -> tuple[str, float]:
        """The token, and when it expires (seconds since 1970)."""
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer

        if self.profile is not None:
            token, expires_ms = Signer.generate_auth_token_from_profile(self.region, self.profile)
        elif self.role_arn is not None:
            session = self.role_session or "tidemark"
            token, expires_ms = Signer.generate_auth_token_from_role_arn(self.region, self.role_arn, session)
        else:
            token, expires_ms = Signer.generate_auth_token(self.region)
        return token, expires_ms / 1000
