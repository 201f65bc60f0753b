"""What each statement does, as functions of a session's context."""
