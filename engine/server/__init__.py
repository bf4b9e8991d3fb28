"""The engine as an OpenAI-compatible HTTP server: a client of the engine's channel, in a process of its own."""
