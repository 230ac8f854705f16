"""`python -m cafenet` is the `cafenet` command."""

import sys

from cafenet.cli.main import main

sys.exit(main())
