"""What is known of a topic's schema: declarations, where they are kept, and what samples tell."""
