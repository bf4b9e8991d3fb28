"""A model of the workers that runs plans and checks every rule which a plan must keep."""

from __future__ import annotations

from collections import deque

from engine.plan import MicroBatchPlan, MicroBatchResult

VOCAB = 50
EOS = 7


def next_token(tokens: list[int]) -> int:
    """The model: a token that depends on every token before it."""
    value = len(tokens)
    for token in tokens:
        value = (value * 31 + token + 1) % 1009
    return value % VOCAB


def expected_output(prompt: list[int], max_tokens: int, ignore_eos: bool) -> list[int]:
    """What a request must produce, whatever the schedule."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        tokens.append(next_token(tokens))
        if tokens[-1] == EOS and not ignore_eos:
            break
    return tokens[len(prompt) :]


class Row:
    def __init__(self, tokens: list[int]) -> None:
        self.tokens = list(tokens)
        self.cached = 0
        self.blocks: list[int] = []


class Workers:
    """Runs each plan when it is submitted, as stages in order of submission do; hands results over oldest first."""

    def __init__(self, kv_blocks: int, block_size: int, rows: int) -> None:
        self.kv_blocks = kv_blocks
        self.block_size = block_size
        self.max_rows = rows
        self.rows: dict[int, Row] = {}
        self.results: deque[MicroBatchResult] = deque()
        self.flying: dict[int, tuple[int, set[int], set[int]]] = {}
        self.steps = 0

    def submit(self, plan: MicroBatchPlan) -> None:
        assert plan.step == self.steps, "steps are numbered without a gap"
        self.steps += 1
        for admit in plan.admit:
            assert 0 <= admit.row < self.max_rows
            assert admit.row not in self.rows_in_flight(), "a row is reused while a step still uses it"
            self.rows[admit.row] = Row(admit.tokens)
        for append in plan.append:
            row = self.rows[append.row]
            assert append.first == len(row.blocks)
            for block in append.blocks:
                assert 0 <= block < self.kv_blocks
                assert block not in self.blocks_in_flight(besides=append.row), "a block is reused while a step uses it"
                for other in self.rows.values():
                    if other is not row and block in other.blocks:
                        other.blocks = []  # its request must be gone; any later use of that row fails below
                        other.cached = -1
            row.blocks += append.blocks
        tokens: list[int] = []
        used: set[int] = set()
        for decode in plan.decode:
            row = self.rows[decode.row]
            assert decode.position == row.cached == len(row.tokens) - 1, "a decode runs the token sampled last"
            row.cached += 1
            self._sample(row, tokens)
            used.add(decode.row)
        for chunk in plan.prefill:
            row = self.rows[chunk.row]
            assert chunk.row not in used and chunk.length > 0
            assert chunk.start == row.cached
            row.cached += chunk.length
            assert chunk.last == (row.cached == len(row.tokens))
            if chunk.last:
                self._sample(row, tokens)
            else:
                self._check_cover(row)
            used.add(chunk.row)
        assert used, "an empty micro-batch"
        for slot, rows, _ in self.flying.values():
            assert slot == plan.slot or not rows & used, "a row is in two micro-batches at once"
        blocks = {block for row in used for block in self.rows[row].blocks}
        self.flying[plan.step] = (plan.slot, used, blocks)
        self.results.append(MicroBatchResult(plan.step, plan.slot, tokens, plan.step))

    def collect(self) -> MicroBatchResult | None:
        if not self.results:
            return None
        result = self.results.popleft()
        del self.flying[result.step]
        return result

    def rows_in_flight(self) -> set[int]:
        return {row for _, rows, _ in self.flying.values() for row in rows}

    def blocks_in_flight(self, besides: int) -> set[int]:
        return {block for _, rows, blocks in self.flying.values() if besides not in rows for block in blocks}

    def _sample(self, row: Row, tokens: list[int]) -> None:
        self._check_cover(row)
        row.tokens.append(next_token(row.tokens))
        tokens.append(row.tokens[-1])

    def _check_cover(self, row: Row) -> None:
        assert 0 < row.cached <= len(row.blocks) * self.block_size, "a token has no cache block"
