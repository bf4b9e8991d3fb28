"""Other people's servers: SGLang, vLLM and our own engine, watched from outside through what they expose."""
