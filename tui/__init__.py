"""The command line and the Textual console."""
