"""Load for an engine: which requests arrive when, as state machines that are told the time, and a driver for them."""
