"""A scrape of whichever server it comes from."""

from __future__ import annotations

from probes.attach.exposition import Scrape
from probes.attach.sglang_scrape import read_sglang
from probes.attach.snapshot import NotAServer, ServerSnapshot
from probes.attach.vllm_scrape import read_vllm


def read_scrape(text: str) -> ServerSnapshot:
    """Read a server's /metrics. Raise NotAServer for text of another kind."""
    scrape = Scrape(text)
    if scrape.has_prefix("sglang:"):
        return read_sglang(scrape)
    if scrape.has_prefix("vllm:"):
        return read_vllm(scrape)
    raise NotAServer("these metrics are neither SGLang's nor vLLM's: for SGLang start it with --enable-metrics")
