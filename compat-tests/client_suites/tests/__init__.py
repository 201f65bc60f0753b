"""How a client's suite is built and judged, without running one."""
