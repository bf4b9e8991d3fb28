"""HTTP to a server that is watched: time-outs everywhere, errors in one line."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import httpx

from probes.attach.errors import ServerError

API_KEY_VARIABLE = "HERDSCOPE_SERVER_API_KEY"
TIMEOUT_S = 5.0
MAX_BYTES = 16 * 1024 * 1024
_KEPT_ORIGINS = 16


class ServerHttp:
    """Talks to one server. The API key comes from the environment, never from the command line."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"{url!r} is no server: write http://HOST:PORT")
        self.url = url.rstrip("/").removesuffix("/v1")
        key = os.environ.get(API_KEY_VARIABLE)
        self.origins: tuple[str, ...] = ()
        """Addresses (HOST:PORT) that its latest connections come from, as the server sees and logs them."""
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self.url, timeout=TIMEOUT_S, headers=self.headers)

    @property
    def host(self) -> str:
        """The server's host name."""
        return urlsplit(self.url).hostname or ""

    def text(self, path: str) -> str:
        """GET a text. Raise ServerError."""
        return self._ask("GET", path).text

    def json(self, path: str) -> Any:
        """GET a JSON value. Raise ServerError."""
        try:
            return self._ask("GET", path).json()
        except ValueError:
            raise ServerError(f"{self.url}{path} answered with something that is no JSON") from None

    def exists(self, path: str) -> bool:
        """Whether GET answers with success. Raise ServerError only when the server cannot be reached."""
        try:
            return self._request("GET", path).is_success
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def post(self, path: str, body: Any = None, timeout_s: float = TIMEOUT_S) -> httpx.Response:
        """POST a JSON value. Raise ServerError."""
        return self._ask("POST", path, json=body, timeout=timeout_s)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if not answer.is_success:
            raise ServerError(f"{self.url}{path} answered {answer.status_code}: {_one_line(answer.text)}")
        if len(answer.content) > MAX_BYTES:
            raise ServerError(f"{self.url}{path} answered with more than {MAX_BYTES} bytes")
        return answer

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._client.request(method, path, extensions={"trace": self._connected}, **options)

    def _connected(self, event: str, info: dict[str, Any]) -> None:
        """Note where a new connection comes from, before anything is sent over it."""
        if event == "connection.connect_tcp.complete":
            host, port, *_ = info["return_value"].get_extra_info("client_addr")
            self.origins = (*self.origins, f"{host}:{port}")[-_KEPT_ORIGINS:]

    def _unreachable(self, error: httpx.HTTPError) -> ServerError:
        return ServerError(f"{self.url} cannot be reached: {_one_line(str(error)) or type(error).__name__}")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
