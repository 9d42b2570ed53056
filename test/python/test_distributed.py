"""One process is a program of its own; of several is test_ranks.py."""

import pytest

import nabla as nb


def test_one_process_is_rank_0_of_1_and_waits_for_nobody():
    assert (nb.distributed.rank(), nb.distributed.size()) == (0, 1)
    nb.distributed.barrier()


def test_the_time_to_wait_is_kept_and_must_be_positive():
    before = nb.distributed.timeout()
    nb.distributed.set_timeout(7.5)
    assert nb.distributed.timeout() == 7.5
    with pytest.raises(ValueError):
        nb.distributed.set_timeout(-1)
    assert nb.distributed.timeout() == 7.5
    nb.distributed.set_timeout(before)
