"""A program that a test launches as `vllm serve`: answers like vLLM on --port, and ends by itself when told to."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.probes.attach.stub_server import StubServer


def main() -> None:
    stub = StubServer("vllm", "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n", port=port())
    print("Started server process", sys.argv[1:], flush=True)
    while not Path(os.environ["DIE_FILE"]).exists():
        time.sleep(0.05)
    print("CUDA out of memory", flush=True)
    stub.close()
    sys.exit(9)


def port() -> int:
    return int(sys.argv[sys.argv.index("--port") + 1])


if __name__ == "__main__":
    main()
