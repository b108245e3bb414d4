"""Fetching a source file once, whole or not at all."""

from __future__ import annotations

import os
import shutil
import urllib.request
from http.client import HTTPException
from pathlib import Path

from t2t_keras.errors import UserError

_TIMEOUT_SECONDS = 60


def fetch(url: str, path: str | os.PathLike) -> Path:
    """Downloads `url` to `path` unless that exists, and returns `path`.

    Raises:
        UserError: the download failed; the message names the URL and the file to place by hand.
    """
    path = Path(path)
    if path.exists():
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            partial.open("wb") as file,
            urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,
        ):
            shutil.copyfileobj(response, file)
            expected = response.headers.get("Content-Length")
            if expected is not None and file.tell() != int(expected):
                raise OSError(f"got {file.tell()} bytes of {expected}")
        partial.rename(path)
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(
            f"{url} could not be downloaded ({error}): place it by hand as {path}, then run again."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path
