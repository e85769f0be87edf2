"""Which deployment a command talks to."""

import os

from tidemark.core.errors import ConfigError
from tidemark.settings import ENV_FILE_VARIABLE, Settings, settings


def connect(stack: str | None) -> Settings:
    """Settings of the local stack named, else of the ``TIDEMARK_*`` variables, else of the local stack that runs.

    Raises ConfigError when there is no such stack, it does not run, none or more than one runs, or settings are
    incomplete.
    """
    if stack is None and any(name.startswith("TIDEMARK_") for name in os.environ):
        return settings()
    from tidemark.stack.local import PROJECT, LocalStack, running_stacks

    if stack is None:
        running = running_stacks(PROJECT)
        if len(running) != 1:
            raise ConfigError(
                "which deployment?",
                expected="one local stack that runs, or TIDEMARK_* variables",
                found=f"running: {', '.join(running)}" if running else "neither",
                hint="Name one with --stack" if running else "Start one with 'tidemark up'",
            )
        stack = running[0]
    file = LocalStack(stack, root=PROJECT).env_file
    if not file.exists():
        raise ConfigError("no such local stack", expected=f"a file {file}", found=stack)
    if stack not in running_stacks(PROJECT):
        hint = f"Start it with 'tidemark up --name {stack}'"
        raise ConfigError("the local stack does not run", found=stack, hint=hint)
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        del os.environ[name]  # of another deployment: a variable would win over the stack's file
    os.environ[ENV_FILE_VARIABLE] = str(file)
    return settings()
