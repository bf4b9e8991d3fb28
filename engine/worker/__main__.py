"""Entry point of a rank: `python -m engine.worker`."""

from __future__ import annotations

import os
import sys
import time
import traceback

import torch

from engine.link import LinkClosed
from engine.worker.environment import EXIT_ORPHANED, connect, rank_environment
from engine.worker.groups import PeerLost
from engine.worker.process import RankProcess

EXIT_PEER_LOST = 75
PEER_LOST_GRACE_S = 5.0
"""Time for the driver to find the rank that really died, before this one ends by itself."""


def main() -> int:
    """Serve until the driver says stop; the exit code tells the driver who is to blame."""
    environment = rank_environment(os.environ)
    link = connect(os.environ)
    torch.set_grad_enabled(False)
    try:
        RankProcess(link, environment).serve()
    except LinkClosed:
        return EXIT_ORPHANED
    except PeerLost as error:
        print(f"another rank is gone: {error}", file=sys.stderr, flush=True)
        time.sleep(PEER_LOST_GRACE_S)
        return EXIT_PEER_LOST
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The process groups' own threads may be stuck on a dead peer: leave without waiting for them.
    os._exit(code)
