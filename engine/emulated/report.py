"""What-if rows, validation tables and calibrations as text."""

from __future__ import annotations

from collections.abc import Sequence

from engine.emulated.calibrate import Calibration, errors
from engine.emulated.validation import Table
from engine.emulated.whatif import Row

BAR_WIDTH = 40


def rows_text(rows: Sequence[Row]) -> str:
    """A table of the rows; columns in which all rows agree are told once, above it."""
    constant, varying = _split_columns(rows)
    head = [*varying, "tok/s", "band", "theory", "/GPU", "/user", "ITL ms", "H", "waves", "busy", "W/GPU", "J/tok"]
    cells = [[*(_setting(row)[name] for name in varying), *_figures(row)] for row in rows]
    lines = ["EMULATED  " + ", ".join(f"{name} {value}" for name, value in constant.items()), ""]
    lines += columns([head, *cells])
    for row in rows:
        if row.short_bytes:
            lines.append(f"{_name(row, varying)}: does not fit, each GPU lacks {row.short_bytes / 1e9:.0f} GB")
    return "\n".join(lines)


def chart_text(rows: Sequence[Row]) -> str:
    """Bars of tok/s, one a row; the dots reach to the band's upper end."""
    _, varying = _split_columns(rows)
    most = max(row.tokens_per_s.high for row in rows)
    names = [_name(row, varying) for row in rows]
    wide = max(map(len, names))
    lines = ["EMULATED tok/s (bar) and the band's upper end (dots)"]
    for name, row in zip(names, rows, strict=True):
        bar = round(BAR_WIDTH * row.tokens_per_s.mid / most)
        dots = round(BAR_WIDTH * row.tokens_per_s.high / most) - bar
        lines.append(f"{name:<{wide}}  {'█' * bar}{'·' * dots}  {row.tokens_per_s.mid:.4g}")
    return "\n".join(lines)


def validation_text(tables: Sequence[Table]) -> str:
    """Each table's rates beside the predictions, with MAPE and signed error."""
    lines: list[str] = []
    for table in tables:
        predicted = [row.predicted(table.hardware, table.model) for row in table.rows]
        error = errors(predicted, [row.value for row in table.rows])
        lines += [f"{table.title} (profile fitted to: {table.fitted_to})"]
        head = ["", "measured tok/s", "EMULATED", "error"]
        body = [
            [str(row), f"{row.value:.4g}", f"{p:.4g}", f"{100 * (p / row.value - 1):+.1f} %"]
            for row, p in zip(table.rows, predicted, strict=True)
        ]
        lines += [f"  {line}" for line in columns([head, *body])]
        lines += [f"  {error}", ""]
    return "\n".join(lines).rstrip()


def calibration_text(calibration: Calibration) -> str:
    """What was fitted and how far it can be trusted."""
    fitted = ", ".join(f"{name} {value:.4g}" for name, value in calibration.fitted.items()) or "nothing"
    unseen = calibration.leave_one_out
    trust = f"leave-one-out {unseen}" if unseen else "too few runs to leave one out: the band is an unfitted profile's"
    return f"fitted {fitted}; on the runs {calibration.error}; {trust}; band +-{100 * calibration.band:.0f} %"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells padded to their column, flush right but for the first column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def _setting(row: Row) -> dict[str, str]:
    setting, knobs = row.setting, row.setting.knobs
    return {
        "GPUs": str(setting.gpus),
        "engine": f"{knobs.parallelism}{setting.ranks}",
        "depth": str(knobs.async_depth),
        "admission": knobs.admission,
        "cap": str(knobs.max_micro_batch),
        "graphs": "on" if knobs.cuda_graphs else "off",
        "C": str(setting.concurrency),
    }


def _split_columns(rows: Sequence[Row]) -> tuple[dict[str, str], list[str]]:
    settings = [_setting(row) for row in rows]
    constant = {k: v for k, v in settings[0].items() if k != "C" and all(s[k] == v for s in settings)}
    return constant, [k for k in settings[0] if k not in constant]


def _name(row: Row, varying: Sequence[str]) -> str:
    setting = _setting(row)
    return " ".join(f"{key}={setting[key]}" for key in varying)


def _figures(row: Row) -> list[str]:
    rate = row.tokens_per_s
    return [
        f"{rate.mid:.4g}",
        f"{rate.low:.4g}-{rate.high:.4g}",
        f"{row.theory_tokens_per_s:.4g}",
        f"{row.tokens_per_s_per_gpu:.3g}",
        f"{row.tokens_per_s_per_user:.3g}",
        _number(row.itl_ms, ".3g"),
        _number(row.herd_index, ".2f"),
        _number(row.waves, ".2f"),
        _number(row.occupancy, ".0%"),
        _number(row.watts, ".0f"),
        _number(row.joules_per_token, ".3g"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
