"""A server for tests that answers like vLLM or SGLang, with recorded scrapes and streams where there are some."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StubServer:
    """Speaks one dialect. `metrics` is what /metrics answers; posts to other paths are remembered in `posted`."""

    def __init__(
        self, kind: str, metrics: str, stream: bytes | None = None, profile_s: float = 0.0, port: int = 0
    ) -> None:
        self.kind = kind
        self.metrics = metrics
        self.stream = stream
        self.profile_s = profile_s
        self.posted: list[tuple[str, Any]] = []
        self.failing = False
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(*stub.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                parsed = json.loads(body) if body else None
                stub.posted.append((self.path, parsed))
                if self.path == "/v1/completions":
                    self._answer(*stub.complete(parsed))
                elif self.path == "/stop_profile":
                    time.sleep(stub.profile_s)
                    self._answer(200, b"{}", "application/json")
                else:
                    self._answer(*stub.post(self.path, parsed))

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: str) -> tuple[int, bytes, str]:
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [{"id": "tiny", "owned_by": self.kind, "max_model_len": 1024}]}
        }
        if self.kind == "vllm":
            answers["/version"] = {"version": "0.32.0"}
        else:
            answers["/server_info"] = {
                "pp_size": 2, "tp_size": 1, "ep_size": 1, "pp_async_batch_depth": 0, "version": "0.5.15",
                "context_length": 4096,
            }  # fmt: skip
        if self.failing:
            return 500, b"broken", "text/plain"
        if path == "/metrics":
            return 200, self.metrics.encode(), "text/plain"
        if path in answers:
            return 200, json.dumps(answers[path]).encode(), "application/json"
        return 404, b"not found", "text/plain"

    def post(self, path: str, _body: Any) -> tuple[int, bytes, str]:
        if path in ("/start_profile", "/set_internal_state"):
            return 200, json.dumps({"updated": True, "server_args": {}}).encode(), "application/json"
        return 404, b"not found", "text/plain"

    def complete(self, body: Any) -> tuple[int, bytes, str]:
        if body["prompt"] == "refuse":
            return 400, b'{"error": {"message": "too long"}}', "application/json"
        if self.stream is not None:
            return 200, self.stream, "text/event-stream"
        chunks = [{"choices": [{"text": "x", "finish_reason": None}]} for _ in range(body["max_tokens"] - 1)]
        chunks.append({"choices": [{"text": "x", "finish_reason": "length"}]})
        usage = {"prompt_tokens": 5, "completion_tokens": body["max_tokens"]}
        lines = [*map(json.dumps, chunks), json.dumps({"choices": [], "usage": usage}), "[DONE]"]
        return 200, "".join(f"data: {line}\n\n" for line in lines).encode(), "text/event-stream"
