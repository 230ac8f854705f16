"""Assertions of the shared module are explained by pytest, too; threads and seed are set for all tests one level up."""

import pytest

pytest.register_assert_rewrite("pictures")
