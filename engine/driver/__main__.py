"""`python -m engine.driver --socket PATH [--config JSON] [--parent PID]`: the configuration is JSON, else on stdin."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

import msgspec

from engine.config import ConfigError, EngineConfig, check_config
from engine.driver.driver import EXIT_CONFIG, Driver
from engine.driver.executors import OpenExecutor, open_executor
from engine.driver.signals import Stopped, StopSignal
from engine.parentwatch import watch_parent
from sessions.channel.interface import ChannelError


def main(arguments: list[str] | None = None, open_with: OpenExecutor = open_executor) -> int:
    """Run a driver to its end and return its exit code: 0 stopped, 1 failed, 2 a configuration that cannot work."""
    parser = argparse.ArgumentParser(prog="engine.driver", description="Runs one engine and serves it on a socket.")
    parser.add_argument("--socket", required=True, help="path of the Unix socket to serve on")
    parser.add_argument("--config", help="engine configuration as JSON; without it standard input is read")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="the driver ends when this process does")
    options = parser.parse_args(arguments)
    path = Path(options.socket)
    watch_parent(options.parent, lambda: _remove(path))
    try:
        stop = StopSignal()
        text = options.config if options.config is not None else sys.stdin.read()
        config = msgspec.json.decode(text, type=EngineConfig)
        check_config(config)
        driver = Driver(config, path, stop, open_with)
    except Stopped:
        return 0
    except (msgspec.MsgspecError, ConfigError) as error:
        print(f"error: engine configuration: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except ChannelError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    return driver.run()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
