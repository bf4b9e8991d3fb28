from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sessions.codec import encode
from sessions.recording.segment import fold, unfold
from sessions.recording.state import pack_keyframe, unpack_keyframe
from tests.sessions.recording.synthetic import session


def test_recorders_of_one_process_do_not_disturb_each_other() -> None:
    """A recorder, a flight recorder and a replay each have a thread."""
    messages = [message for _, batch in session(40) for message in batch]
    raw = [(number, encode(message)) for number, message in enumerate(messages)]
    state = pack_keyframe(messages[:100])

    def work() -> None:
        for _ in range(5):
            assert [record.message for record in unfold(fold(raw)).records] == messages
            assert pack_keyframe(messages[:100]) == state
            assert unpack_keyframe(state) == messages[:100]

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work) for _ in range(4)]:
            done.result()
