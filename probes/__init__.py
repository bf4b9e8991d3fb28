"""The instruments: GPU and host probes, traces, attached servers, and the diagnosis that reads them."""
