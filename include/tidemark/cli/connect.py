"""The deployment that a command uses."""

import os

from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.core.errors import RequestError
from tidemark.settings import Settings, settings


def connect(stack: str | None) -> Settings:
    """The settings of the named local stack, or else of the ``TIDEMARK_*`` variables, or else of the running stack."""
    if stack is None and any(name.startswith("TIDEMARK_") for name in os.environ):
        return settings()
    from tidemark.installation import PROJECT
    from tidemark.stack.local import LocalStack, running_stacks

    if stack is None:
        running = running_stacks(PROJECT)
        if len(running) != 1:
            raise RequestError(
                "cannot tell which deployment to use",
                expected="one running local stack, or TIDEMARK_* variables",
                found=f"running: {', '.join(running)}" if running else "neither",
                hint="Name one with --stack" if running else "Start one with 'tidemark up'",
            )
        stack = running[0]
    file = LocalStack(stack, root=PROJECT).env_file
    if not file.exists():
        raise RequestError("no such local stack", expected=f"a file {file}", found=stack)
    if stack not in running_stacks(PROJECT):
        hint = f"Start it with 'tidemark up --name {stack}'"
        raise RequestError("the local stack is not running", found=stack, hint=hint)
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        del os.environ[name]  # another deployment's variable would override the stack's file
    os.environ[ENV_FILE_VARIABLE] = str(file)
    return settings()


def connect_s3(stack: str | None) -> Settings:
    """``connect`` for a command that reads S3. Raises ServiceError at once if S3 does not answer."""
    from tidemark.s3 import require_s3

    found = connect(stack)
    require_s3(found)
    return found
