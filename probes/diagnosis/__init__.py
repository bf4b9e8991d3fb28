"""Why is this deployment slower than it should be, and which change would help: pure functions over evidence."""
