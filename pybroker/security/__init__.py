"""Who connects, and who may do what: rules and values, apart from sockets and handlers."""
