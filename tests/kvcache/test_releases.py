"""Which releases are answered for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.memory.budget import memory_budget
from kvcache.memory.terms import parse_version
from kvcache.models.catalog import find_gpu, load_model
from kvcache.releases import (
    FIRST_V1_RELEASE,
    NEWEST_RELEASE,
    OLDEST_RELEASE,
    check_known_memory,
    check_simulated,
    newer_than_known,
    release_text,
)

releases = st.tuples(*[st.integers(0, 40)] * 3)


@given(release=releases)
def test_a_release_is_known_or_told(release: tuple[int, int, int]) -> None:
    assert parse_version(release_text(release)) == release
    for check, first in ((check_known_memory, OLDEST_RELEASE), (check_simulated, FIRST_V1_RELEASE)):
        if release >= first:
            check(release)
        else:
            with pytest.raises(ValueError, match=f"vllm_version is {release_text(release)}"):
                check(release)
    assert (newer_than_known(release) is None) == (release <= NEWEST_RELEASE)


def test_no_budget_for_a_release_that_nobody_looked_at() -> None:
    arch, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    assert memory_budget(arch, gpu, vllm_version="0.4.1", max_model_len=8192).fits
    with pytest.raises(ValueError, match=r"vllm_version is 0.4.0; memory is known from 0.4.1 on; give a later release"):
        memory_budget(arch, gpu, vllm_version="0.4.0", max_model_len=8192)
