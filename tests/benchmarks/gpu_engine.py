"""Inter-token latency of the whole engine on GPUs: `python -m tests.benchmarks.gpu_engine --model qwen3-30b-a3b`.

A closed batch of C requests with random prompts, greedy, dummy weights. Prints one row for each C: the median over
repetitions of (last token - first token) / (tokens - 1), and the bytes' floor at a measured copy rate.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import msgspec

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import parameters_of
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.distributed import DistributedExecutor
from engine.presets import model_config
from sessions.clock import MonotonicClock
from sessions.knobs import Knobs
from sessions.messages import KnobReply, KnobRequest, RequestSpec, StageFrame, SubmitRequests, TokenFrame

COPY_BYTES_PER_S = 4.3e12
BYTES = {"bfloat16": 2, "float32": 4}


class Round(msgspec.Struct, frozen=True):
    """One closed batch. Times in ms."""

    itl: float
    ttft: float
    busy: float
    tokens_per_s: float
    prompt_tokens_per_s: float


class Bench:
    """One engine, many closed batches."""

    def __init__(self, config: EngineConfig) -> None:
        started = time.monotonic()
        self.config = config
        self.executor = DistributedExecutor(config, on_log=lambda line: print(f"  [{line.rank}] {line.text}"))
        self.core = EngineCore(config, self.executor, MonotonicClock())
        self.model = model_config(config.model)
        self._commands = 0
        print(f"{config.model}: ready in {time.monotonic() - started:.1f} s, {self.executor.capabilities.hardware}")

    def closed_batch(self, concurrency: int, prompt: int, output: int, seed: int) -> Round:
        """Run C requests to their end."""
        draw = random.Random(seed)
        vocab = self.model.vocab
        self._commands += 1
        specs = [
            RequestSpec(
                id=f"{self._commands}-{number}",
                prompt=[draw.randrange(vocab) for _ in range(prompt)],
                max_tokens=output,
                ignore_eos=True,
            )
            for number in range(concurrency)
        ]
        begun = time.monotonic_ns()
        self.core.handle(SubmitRequests(source="bench", t_ns=begun, id=str(self._commands), requests=specs))
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        busy = spans = finished = 0
        while finished < concurrency:
            for message in self.core.step(1.0):
                if isinstance(message, TokenFrame):
                    for event in message.events:
                        first.setdefault(event.request, message.t_ns)
                        last[event.request] = message.t_ns
                    finished += len(message.finished)
                elif isinstance(message, StageFrame):
                    decodes = [span for span in message.spans if not span.prefill_tokens]
                    busy += sum(span.end - span.start for span in decodes)
                    spans += len(decodes)
        itl = [(last[name] - first[name]) / (output - 1) / 1e6 for name in first]
        took = (max(last.values()) - begun) / 1e9
        return Round(
            itl=statistics.median(itl),
            ttft=statistics.median((at - begun) / 1e6 for at in first.values()),
            busy=busy / max(1, spans) / 1e6,
            tokens_per_s=concurrency * output / took,
            prompt_tokens_per_s=concurrency * prompt / ((max(first.values()) - begun) / 1e9),
        )

    def turn(self, knob: str, value: object) -> KnobReply:
        """Turn a knob and wait for the reply."""
        self._commands += 1
        self.core.handle(
            KnobRequest(source="bench", t_ns=0, id=str(self._commands), knob=knob, value=value)  # type: ignore[arg-type]
        )
        while True:
            for message in self.core.step(1.0):
                if isinstance(message, KnobReply):
                    return message

    def distinct_experts(self, concurrency: int, prompt: int) -> float:
        """Mean distinct experts a layer in decode steps of this batch size."""
        draw = random.Random(99)
        self._commands += 1
        specs = [
            RequestSpec(
                id=f"{self._commands}-{number}",
                prompt=[draw.randrange(self.model.vocab) for _ in range(prompt)],
                max_tokens=12,
                ignore_eos=True,
            )
            for number in range(concurrency)
        ]
        self.core.handle(SubmitRequests(source="bench", t_ns=0, id=str(self._commands), requests=specs))
        seen = finished = 0
        counting = False
        while finished < concurrency:
            for message in self.core.step(1.0):
                if isinstance(message, TokenFrame):
                    finished += len(message.finished)
                    seen += len(message.events)
            if seen >= concurrency and not counting:
                counting = True
                self.executor.count_experts(True)
        counts = self.executor.count_experts(False)
        distinct = [value for rank in counts for value in rank.distinct.values()]
        return statistics.mean(distinct) if distinct else float("nan")


def floor_ms(model: ModelConfig, batch: int) -> float:
    """Time to read once what a decode step of `batch` must read (cache aside), at the copy rate.

    Distinct experts D(b) = E (1 - (1 - k/E)^b). The embedding is a look-up and is left out.
    """
    share = 1 - (1 - model.experts_per_token / model.experts) ** batch
    total = 0.0
    for parameter in parameters_of(model):
        if parameter.name == "embed":
            continue
        size = BYTES[parameter.dtype or model.dtype]
        total += parameter.elements() * size * (share if parameter.stacked else 1.0)
    return total / COPY_BYTES_PER_S * 1e3


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3-30b-a3b")
    parser.add_argument("--concurrency", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--no-telemetry", action="store_true", help="send no spans")
    parser.add_argument("--depth", type=int, default=0, help="micro-batches in flight; 0: the stages")
    parser.add_argument("--experts", action="store_true", help="count the distinct experts a layer")
    parser.add_argument("--eager", action="store_true", help="also run C=1 without graphs")
    parser.add_argument("--toggles", type=int, default=0, help="toggle graphs this often and report memory")
    chosen = parser.parse_args()
    config = EngineConfig(
        model=chosen.model,
        load_format="dummy",
        pp=chosen.pp,
        ep=chosen.ep,
        max_context=max(4096, chosen.prompt + chosen.output),
        max_running=256,
        telemetry=not chosen.no_telemetry,
        knobs=Knobs(
            cuda_graphs=True,
            async_depth=chosen.depth or chosen.pp,
            admission="rebalance",
            parallelism="ep" if chosen.ep > chosen.pp else "pp",
        ),
    )
    bench = Bench(config)
    try:
        columns = ("ITL ms", "GPU ms", "floor", "TTFT ms", "tok/s", "distinct", "prompt/s")
        print("   C " + " ".join(f"{name:>8}" for name in columns))
        for concurrency in map(int, chosen.concurrency.split(",")):
            bench.closed_batch(concurrency, chosen.prompt, 8, seed=1)
            rounds = [
                bench.closed_batch(concurrency, chosen.prompt, chosen.output, seed=seed)
                for seed in range(2, 2 + chosen.repeat)
            ]
            middle = sorted(rounds, key=lambda done: done.itl)[len(rounds) // 2]
            distinct = bench.distinct_experts(concurrency, chosen.prompt) if chosen.experts else float("nan")
            print(
                f"{concurrency:>4} {middle.itl:>8.3f} {middle.busy:>8.3f} {floor_ms(bench.model, concurrency):>8.2f} "
                f"{middle.ttft:>8.1f} {middle.tokens_per_s:>8.0f} {distinct:>8.1f} {middle.prompt_tokens_per_s:>8.0f}",
                flush=True,
            )
        if chosen.eager:
            bench.turn("cuda_graphs", False)
            print(f"eager C=1: {bench.closed_batch(1, chosen.prompt, 32, seed=3).itl:.2f} ms", flush=True)
            bench.turn("cuda_graphs", True)
        took = []
        for _ in range(chosen.toggles):
            took += [bench.turn("cuda_graphs", on).took_ms for on in (False, True)]
            bench.closed_batch(2, 16, 4, seed=1)
        if took:
            print(f"{chosen.toggles} toggles: largest {max(took):.1f} ms")
    finally:
        bench.executor.close()


if __name__ == "__main__":
    main()
