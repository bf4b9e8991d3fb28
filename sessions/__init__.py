"""What a diagnostic session is: its messages, the channels that carry them, its recordings and its benchmark runs."""
