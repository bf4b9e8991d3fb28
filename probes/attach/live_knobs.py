"""The one setting that a server lets us change while it runs: SGLang's limit on a slot's requests."""

from __future__ import annotations

from probes.attach.http import ServerHttp


def set_sglang_micro_batch(http: ServerHttp, limit: int) -> None:
    """Let new admissions fill a slot to at most `limit` requests; those running stay where they are.

    Raise ServerError.
    """
    http.post("/set_internal_state", {"server_args": {"pp_max_micro_batch_size": limit}})
