"""The page of a day's certificate, and the files to save."""

import json
import re
from functools import partial
from typing import Annotated

from fastapi import HTTPException, Path, Query, Request
from fastapi.responses import Response

from tidemark.core.certificate import DayCertificate
from tidemark.core.codec import encode
from tidemark.core.layout import Layout
from tidemark.pages.part import Part, read_parts
from tidemark.s3 import ObjectStore
from tidemark.tables.certificates import day_certificates
from tidemark_airflow.connections import task_settings
from tidemark_airflow.pages.access import PathDay, Readable
from tidemark_airflow.pages.responses import html

_FILES = {
    "json": (re.compile(r"\d{4,}\.json"), "application/json"),
    "objects": (re.compile(r"[0-9a-f]{64}\.objects"), "text/plain; charset=utf-8"),
}


def show_certificate(
    request: Request, stream: Readable, day: PathDay, version: Annotated[int | None, Query(ge=1)] = None
) -> Response:
    """The certificate of a version of the day, to be read; of the newest, if none is named."""
    settings = task_settings()
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    found: Part[dict[int, DayCertificate]] = read_parts(
        {"The certificate": partial(day_certificates, store, layout, day)}
    )["The certificate"]
    known = found.value or {}
    shown = max(known, default=0) if version is None else version
    if found.error is None and shown not in known:
        which = "no certificate" if version is None else f"no certificate of version {version}"
        raise HTTPException(404, f"{day} of stream {stream} has {which}.")
    own = known.get(shown)
    return html(
        request,
        "certificate",
        stream=stream,
        day=day,
        version=shown,
        certificate=Part(value=own, error=found.error),
        objects=own.seal["objects"] if own else None,
        text=json.dumps(encode(own), indent=2, sort_keys=True, ensure_ascii=False) if own else "",
    )


def save_certificate(stream: Readable, day: PathDay, name: Annotated[str, Path()]) -> Response:
    """A certificate of the day, or the list of objects that one names, to be saved as a file."""
    settings = task_settings()
    layout = Layout(prefix=settings.prefix, stream=stream)
    kind = _FILES.get(name.rpartition(".")[2])
    known = kind is not None and kind[0].fullmatch(name)
    body = ObjectStore(settings).get(f"{layout.certificate_prefix}{day}/{name}") if known else None
    if kind is None or body is None:
        raise HTTPException(404, f"{day} of stream {stream} has no certificate {name}.")
    file = f"{stream}-{day}-{name}" if name.endswith(".json") else name  # the certificate names its list
    return Response(body, media_type=kind[1], headers={"Content-Disposition": f'attachment; filename="{file}"'})
