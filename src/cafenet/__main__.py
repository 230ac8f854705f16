"""`python -m cafenet` is the `cafenet` command."""

import sys

from cafenet.cli import main

sys.exit(main())
