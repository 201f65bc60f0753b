"""Records and files of a log as a person reads and writes them.  Asks no broker."""
