"""Where results that were kept lie."""

from __future__ import annotations

from pathlib import Path


def results_folder() -> Path:
    """The user's own results, one JSON file a run."""
    from platformdirs import user_data_path

    return user_data_path("herdscope") / "results"
