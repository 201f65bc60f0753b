"""Sockets and the event loop: frames in, replies out; the only part that knows asyncio."""
