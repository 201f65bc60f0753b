"""A person at a terminal, or a script: options and their errors, results and how a command fails."""
