"""A model behind TensorFlow Serving's REST interface, with the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.serving.signature import Signature, choose, from_types

_SHOWN = 300  # characters of a server's message


class RestModel:
    """A model of TensorFlow Serving at `http://HOST:PORT`.

    Args:
        server: "http://localhost:8501", or with https.
        name: of the served model.
        timeout: seconds that a request may take.
    """

    def __init__(self, server: str, name: str, timeout: float):
        self.server = server.rstrip("/")
        self.name = name
        self.timeout = timeout
        self._url = f"{self.server}/v1/models/{urllib.parse.quote(name, safe='')}"

    def signature(self, name: str) -> Signature:
        """Asks the server for the signature of this name.

        Raises:
            UserError: no answer, no such model or signature, or no TensorFlow Serving.
        """
        answer = self._ask(f"{self._url}/metadata", None)
        try:
            definitions = answer["metadata"]["signature_def"]["signature_def"]
            signatures = {
                key: from_types(_types(value, "inputs"), _types(value, "outputs"))
                for key, value in definitions.items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise self._stranger() from error
        return choose(signatures, name, f"{self.name!r} at {self.server}")

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as nested lists.

        Raises:
            UserError: no answer in time, or what the server refuses.
        """
        strings = {
            key: [{"b64": base64.b64encode(value).decode()} for value in values]
            for key, values in inputs.items()
        }
        answer = self._ask(f"{self._url}:predict", {"signature_name": name, "inputs": strings})
        try:
            outputs = answer["outputs"]
        except (KeyError, TypeError) as error:
            raise self._stranger() from error
        if len(signature.outputs) == 1:  # then TensorFlow Serving leaves its name away
            return {signature.outputs[0]: outputs}
        if not isinstance(outputs, dict):
            raise self._stranger()
        return outputs

    def close(self) -> None:
        """Does nothing: every request is a connection of its own."""

    def _ask(self, url: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(
                url, data, {"Content-Type": "application/json"} if data else {}
            )
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                content = response.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (urllib.error.URLError, TimeoutError) as error:
            raise self._silence(getattr(error, "reason", error)) from error
        except http.client.HTTPException as error:
            raise self._stranger() from error
        except (OSError, ValueError) as error:
            raise self._silence(error) from error
        try:
            return json.loads(content)
        except ValueError as error:
            raise self._stranger() from error

    def _refusal(self, error: urllib.error.HTTPError) -> UserError:
        try:
            message = json.loads(error.read())["error"]
        except (ValueError, KeyError, TypeError, OSError):
            return UserError(
                f"{self.server} answers with {error.code} {error.reason}, not as TensorFlow "
                "Serving does: is it the port of its --rest_api_port?"
            )
        return UserError(f"{self.name!r} at {self.server}: {str(message)[:_SHOWN]}")

    def _silence(self, reason: Any) -> UserError:
        if isinstance(reason, TimeoutError):
            return UserError(
                f"{self.server} has not answered within {self.timeout:g} seconds: "
                "raise --timeout_secs, or see what the server does."
            )
        return UserError(
            f"no connection to {self.server} ({reason}): does TensorFlow Serving run there, "
            "with --rest_api_port?"
        )

    def _stranger(self) -> UserError:
        return UserError(f"{self.server} does not answer as TensorFlow Serving does.")


def _types(definition: Mapping[str, Any], side: str) -> dict[str, str]:
    return {name: tensor.get("dtype", "") for name, tensor in definition.get(side, {}).items()}
