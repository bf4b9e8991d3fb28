"""The emulated cluster: the real scheduler against a roofline clock, with declared hardware and model."""
