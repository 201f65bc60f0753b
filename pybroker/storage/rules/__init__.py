"""What a batch has to be, what producers and transactions may do, and what may go: decisions without a file."""
