"""The client commands, each a module of its name (``command_names``), and the parts that one command alone has.

``app`` puts them together; it and all here need the extra ``cli``.
"""
