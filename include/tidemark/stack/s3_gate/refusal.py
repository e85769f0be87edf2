"""A request that the gate refuses, with S3's own code and status."""

from xml.sax.saxutils import escape

_STATUS = {
    "AccessDenied": 403,
    "ExpiredToken": 400,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidToken": 400,
    "MalformedXML": 400,
    "NotImplemented": 501,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
    "ServiceUnavailable": 503,
}


class Refusal(Exception):  # noqa: N818  # an answer to a client, not a failure of the gate
    """Ends a request with S3's error ``code``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return _STATUS[self.code]

    def body(self, *, service: str) -> bytes:
        """The answer's XML, in the form of ``s3`` or ``sts``."""
        error = f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>"
        if service == "sts":
            error = f"<ErrorResponse>{error}</ErrorResponse>"
        return f'<?xml version="1.0" encoding="UTF-8"?>{error}'.encode()
