"""The GPUs of this machine, by name. NVML only: it costs milliseconds, where CUDA would cost seconds."""

from __future__ import annotations


def gpu_names() -> list[str]:
    """Names of the NVIDIA GPUs that an engine started here could use; empty without a driver."""
    import pynvml

    from tui.cli.engine_defaults import cuda_devices

    usable = cuda_devices()
    names: list[str] = []
    try:
        pynvml.nvmlInit()
        for index in range(usable):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
            names.append(name.decode() if isinstance(name, bytes) else str(name))
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return ["GPU"] * usable
    return names
