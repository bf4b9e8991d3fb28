"""SGLang and vLLM as children: their command lines, our knobs as their flags, restarts."""
