"""The MQTT carrier: the same channel over a broker, for probes and engines on other hosts."""
