"""The settings: what they are (tables), what they say now (layers), and how they are described and altered."""
