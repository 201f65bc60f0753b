"""Brokers as processes: ``pybroker serve``, several of them under a supervisor, the container image, their machine.

Standard library and the broker; nothing here needs the extra ``cli``.
"""
