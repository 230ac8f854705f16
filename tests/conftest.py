"""Every test starts from the same random numbers and runs on one thread."""

import pytest
import torch

pytest.register_assert_rewrite("networks")


@pytest.fixture(autouse=True)
def _same_numbers_on_one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)
