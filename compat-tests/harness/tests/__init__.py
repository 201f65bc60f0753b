"""What the harness promises to those who run commands with it."""
