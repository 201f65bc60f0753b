"""What is expected to stop a demo, the tour or a use now and then, and is said in one line."""


class RunFailed(RuntimeError):
    """Its text is all that a person needs."""
