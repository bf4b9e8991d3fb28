"""The command line: one file a command, found by the registry in main.py."""
