"""``python -m comparator``."""

import sys

from comparator.run import main

sys.exit(main())
