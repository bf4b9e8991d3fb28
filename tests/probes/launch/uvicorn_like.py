"""A program that a test launches as `vllm serve`: vLLM's endpoints on --port behind uvicorn, with its access log."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route


async def models(_request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]})


async def version(_request: Request) -> Response:
    return JSONResponse({"version": "0.1"})


async def metrics(_request: Request) -> Response:
    return PlainTextResponse("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n")


ROUTES = [Route("/v1/models", models), Route("/version", version), Route("/metrics", metrics)]

if __name__ == "__main__":
    uvicorn.run(Starlette(routes=ROUTES), host="127.0.0.1", port=int(sys.argv[sys.argv.index("--port") + 1]))
