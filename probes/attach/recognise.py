"""Which server answers at an address."""

from __future__ import annotations

import msgspec

from probes.attach.errors import ServerError
from probes.attach.http import ServerHttp
from probes.attach.snapshot import ServerKind


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """A server, its version ("" when it does not say) and the models it serves; `slots` is what its pipeline allows in
    flight, when it says."""

    kind: ServerKind
    version: str
    models: list[str]
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    slots: int | None = None
    max_context: int | None = None


def recognise(http: ServerHttp) -> Recognised:
    """Tell SGLang, vLLM and our own engine apart by their endpoints. Raise ServerError for anything else."""
    entries = _models(http)
    models = [str(entry.get("id", "")) for entry in entries]
    owner = str(entries[0].get("owned_by", "")) if entries else ""
    context = next((_whole(entry["max_model_len"]) for entry in entries if "max_model_len" in entry), None)
    if owner == "herdscope":
        return Recognised(kind="herdscope", version="", models=models, max_context=context)
    if info := _sglang_info(http):
        pp = _whole(info.get("pp_size"))
        depth = _whole(info.get("pp_async_batch_depth")) or 0
        return Recognised(
            kind="sglang",
            version=str(info.get("version", "")),
            models=models,
            pp=pp,
            tp=_whole(info.get("tp_size")),
            ep=_whole(info.get("ep_size")),
            slots=None if pp is None else pp + depth,
            max_context=_whole(info.get("context_length")) or context,
        )
    if owner == "vllm" or http.exists("/version"):
        version = http.json("/version").get("version", "") if http.exists("/version") else ""
        return Recognised(kind="vllm", version=str(version), models=models, max_context=context)
    raise ServerError(f"{http.url} is neither SGLang nor vLLM nor ours (models owned by {owner or 'nobody'})")


def _models(http: ServerHttp) -> list[dict[str, object]]:
    answer = http.json("/v1/models")
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise ServerError(f"{http.url}/v1/models is not what an OpenAI-compatible server answers")
    return data


def _sglang_info(http: ServerHttp) -> dict[str, object] | None:
    """The server arguments, under the endpoint's new or old name."""
    for path in ("/server_info", "/get_server_info"):
        info: object = http.json(path) if http.exists(path) else None
        if isinstance(info, dict) and ("pp_size" in info or "tp_size" in info):
            return info
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
