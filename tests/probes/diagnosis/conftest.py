"""Prints the confusion matrix of the labelled set after the tests."""

from __future__ import annotations

import pytest

REPORT: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REPORT:
        terminalreporter.section("diagnosis of labelled deployments")
        for text in REPORT:
            terminalreporter.write_line(text)
