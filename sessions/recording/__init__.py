"""Recordings: the *.herd session file, its writer, its reader and what is done with finished files."""
