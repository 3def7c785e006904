"""Images in the prompts of users, and of requests of given lengths."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from kvcache.models.catalog import load_model
from kvcache.shape.images import ImageTokens
from workloads.effects import served_requests
from workloads.images import ImageUse, RequestImages, with_images
from workloads.load import load_preset
from workloads.populations.at_limit import AtLimit
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.population_file import population_from_mapping
from workloads.requests import RequestTable, independent_requests

LONG = 10**6  # tokens: nothing is cut


@cache
def shape() -> ImageTokens:
    rule = load_model("qwen3-vl-8b").image_rule
    assert rule is not None
    return rule.of(640, 480)


def with_use(population: Population, per_request: int, per_conversation: int) -> Population:
    use = ImageUse(width=640, height=480, per_request=per_request, per_conversation=per_conversation, shape=shape())
    return replace(population, images=use)


def images_of(table: RequestTable) -> RequestImages:
    assert table.images is not None
    return table.images


def offsets(table: RequestTable, row: int) -> list[int]:
    found = images_of(table)
    return found.offset[found.start[row] : found.start[row] + found.num[row]].tolist()


@pytest.mark.parametrize(("per_request", "per_conversation"), [(1, 0), (0, 2), (2, 1)])
def test_prompts_are_longer_by_the_tokens_of_their_images(per_request: int, per_conversation: int) -> None:
    chat = load_preset("chat")
    text = chat.draw(20, 8, 3, LONG, stationary_start=False)
    table = with_use(chat, per_request, per_conversation).draw(20, 8, 3, LONG, stationary_start=False)
    assert (table.prompt_tokens - text.prompt_tokens).tolist() == (images_of(table).num * shape().tokens).tolist()
    assert (table.output_tokens == text.output_tokens).all()
    table.validate()


@given(st.integers(0, 2), st.integers(0, 2), st.integers(0, 50), st.booleans())
def test_images_lie_in_order_within_the_prompt_and_later_turns_have_them_too(
    per_request: int, per_conversation: int, seed: int, stationary: bool
) -> None:
    if per_request + per_conversation == 0:
        return
    population = with_use(load_preset("chat"), per_request, per_conversation)
    table = population.draw(6, 6, seed, 40_000, stationary_start=stationary)
    for row in range(table.num_requests):
        at = offsets(table, row)
        ends = [offset - shape().before + shape().tokens for offset in at]
        assert all(end <= later - shape().before for end, later in zip(ends, at[1:], strict=False))
        assert not at or (at[0] >= population.system_prompt_tokens and ends[-1] < table.prompt_tokens[row])
        before = int(table.follows[row])
        if before >= 0 and table.span_start[before] == table.span_start[row]:
            assert at[: len(offsets(table, before))] == offsets(table, before)


def test_a_file_without_any_image_is_the_same_workload() -> None:
    tables: dict[str, Any] = dict(load_preset("chat").tables)
    none = population_from_mapping({**tables, "images": {"width": 640, "height": 480}}, name="chat")
    assert none.images is None
    assert none == population_from_mapping(tables, name="chat")


def test_means_in_equilibrium_are_those_of_the_draws() -> None:
    population = with_use(load_preset("chat"), 1, 1)
    table = population.draw(3000, 6, 1, 20_000)
    expected = equilibrium(population, 20_000)
    assert expected.prompt == pytest.approx(float(table.prompt_tokens.mean()), rel=0.03)


def test_a_message_too_long_beside_its_images_is_shortened_and_they_are_not() -> None:
    population = with_use(load_preset("chat"), 3, 0)
    table = population.draw(200, 4, 0, 3000)
    assert (table.prompt_tokens + table.output_tokens <= 3000).all()
    assert (table.prompt_tokens >= population.system_prompt_tokens + 3 * shape().tokens).all()
    with pytest.raises(InputError, match="its system prompt and images have 1,418 tokens"):
        population.draw(1, 1, 0, 1419)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"at_limit": AtLimit(does="truncate", kept_share=0.5)}, "go on beyond the longest context"),
        ({"retrieved": load_preset("rag").retrieved}, "retrieved passages"),
    ],
)
def test_what_would_move_images_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        replace(with_use(load_preset("chat"), 1, 0), **changes)


def test_without_a_model_nobody_knows_their_tokens() -> None:
    with pytest.raises(InputError, match="only a model tells how many tokens they become; ask about a model"):
        load_preset("vision-chat").draw(1, 1, 0, LONG)


def test_requests_of_the_same_text_have_the_same_images_and_others_have_others() -> None:
    table = independent_requests(arrival_s=[0.0, 1.0, 2.0], prompt_tokens=[10, 10, 10], output_tokens=[1, 1, 1])
    table = replace(table, span_content=np.array([7, 7, 8]))
    use = ImageUse(width=640, height=480, per_request=2, shape=shape())
    found = images_of(longer := with_images(table, use, 4))
    assert longer.prompt_tokens.tolist() == [10 + 2 * shape().tokens] * 3
    assert [found.content[start : start + 2].tolist() for start in found.start.tolist()] == [[0, 1], [0, 1], [2, 3]]
    assert offsets(longer, 2) == [4 + 1, 4 + 1 + shape().tokens]
    kept = images_of(served_requests(replace(longer, prompt_tokens=np.array([9999, 5, 5], np.int32)), 100))
    assert kept.start.tolist() == [0, 2]
