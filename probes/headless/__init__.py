"""The probe without a console: samples this host and sends what it sees to one or more sinks."""
