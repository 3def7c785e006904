"""vLLM's encoder cache, and which images a step encodes.

An image is encoded as a whole in the step that first computes a token of it, unless its embeddings are in the cache,
which requests with the same image share. A step encodes no more embeddings than its budget; where an image does not fit
it, or the cache, the request stops before it. Embeddings stay until their request has computed the image's tokens, and
beyond that until others need their place: those that nobody has needed for longest go first.

Read from vLLM 0.33: `vllm/v1/core/encoder_cache_manager.py`, `Scheduler._try_schedule_encoder_inputs`.
"""

from dataclasses import dataclass, field

from conformance.reference.vllm.requests import Image, Request
from simulator.engines.vllm.images import EncoderLimits


class EncoderCacheManager:
    """Embeddings by the image's identity, and which requests refer to them."""

    def __init__(self, cache_size: int) -> None:
        self.num_free_slots = cache_size
        self.num_freeable_slots = cache_size  # free ones, too
        self.cached: dict[int, set[int]] = {}  # by image: the requests that refer to it
        self.freeable: dict[int, int] = {}  # images that no request refers to, with their embeddings, the oldest first
        self.of_request: dict[int, set[int]] = {}  # places of a request's images that it refers to

    def check_and_update_cache(self, request: Request, place: int) -> bool:
        """Whether the image is cached, and now referred to."""
        image = request.images[place]
        if image.content not in self.cached:
            return False
        if not self.cached[image.content]:
            self.num_freeable_slots -= self.freeable.pop(image.content)
        self._refer(request, place)
        return True

    def can_allocate(self, image: Image, budget: int, num_planned: int) -> bool:
        """Whether it fits the budget, and the cache beside `num_planned` embeddings; what must go, goes now."""
        if image.embeddings > budget:
            return False
        needed = image.embeddings + num_planned
        if needed > self.num_free_slots and needed > self.num_freeable_slots:
            return False
        while needed > self.num_free_slots:
            content = next(iter(self.freeable))
            self.num_free_slots += self.freeable.pop(content)
            del self.cached[content]
        return True

    def allocate(self, request: Request, place: int) -> None:
        image = request.images[place]
        assert self.num_free_slots >= image.embeddings, "an image was planned that does not fit"
        self.cached.setdefault(image.content, set())
        self._refer(request, place)
        self.num_free_slots -= image.embeddings
        self.num_freeable_slots -= image.embeddings

    def free_encoder_input(self, request: Request, place: int) -> None:
        """A request needs an image no longer; it may have the same one again at another place."""
        image, places = request.images[place], self.of_request.get(request.id, set())
        places.discard(place)
        if not places:
            self.of_request.pop(request.id, None)
        if not self.cached.get(image.content) or any(request.images[each].content == image.content for each in places):
            return
        self.cached[image.content].discard(request.id)
        if not self.cached[image.content]:
            self.freeable[image.content] = image.embeddings
            self.num_freeable_slots += image.embeddings

    def free(self, request: Request) -> None:
        """A request needs none of its images."""
        for place in sorted(self.of_request.get(request.id, ())):
            self.free_encoder_input(request, place)

    def free_computed(self, request: Request) -> None:
        """It needs none of those whose tokens are computed."""
        computed = request.num_computed_tokens - request.num_output_placeholders
        for place in sorted(self.of_request.get(request.id, ())):
            if request.images[place].end <= computed:
                self.free_encoder_input(request, place)

    def _refer(self, request: Request, place: int) -> None:
        self.cached[request.images[place].content].add(request.id)
        self.of_request.setdefault(request.id, set()).add(place)


@dataclass(kw_only=True)
class EncoderPlan:
    """What one request encodes in a step, places of its images; `budget` is what is left then."""

    num_new_tokens: int
    budget: int
    encoded: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)  # the same images again


class Encoder:
    """The encoder's side of a scheduler."""

    def __init__(self, limits: EncoderLimits | None) -> None:
        """None: prompts have no images."""
        self.limits = limits
        self.cache = EncoderCacheManager(limits.encoder_cache_size if limits else 0)
        self.budget = 0  # of the step that is decided
        self.encoded: dict[Request, list[int]] = {}  # in it

    def new_step(self) -> None:
        self.budget = self.limits.max_num_encoder_input_tokens if self.limits else 0
        self.encoded = {}

    def plan(self, request: Request, num_computed: int, num_new_tokens: int) -> EncoderPlan:
        """Which images these tokens need, and up to which of them the request gets."""
        found, end = EncoderPlan(num_new_tokens=num_new_tokens, budget=self.budget), num_computed + num_new_tokens
        contents, num_planned = set[int](), 0
        for place, image in enumerate(request.images if num_new_tokens else ()):
            if image.end <= num_computed:
                continue
            if image.offset >= end:
                break
            if image.content in contents:
                found.repeated.append(place)
                continue
            if self.cache.check_and_update_cache(request, place):
                continue
            if not self.cache.can_allocate(image, found.budget, num_planned):
                before = image.offset - num_computed
                found.num_new_tokens = min(num_new_tokens, before) if before > 0 else 0
                break
            if min(end, image.last) <= max(num_computed, image.first):  # these tokens are its marks alone
                continue
            num_planned += image.embeddings
            found.budget -= image.embeddings
            contents.add(image.content)
            found.encoded.append(place)
        return found

    def commit(self, request: Request, plan: EncoderPlan) -> None:
        """The request is scheduled with these tokens."""
        if not plan.encoded:
            return
        self.encoded[request] = plan.encoded
        self.budget = plan.budget
        for place in plan.encoded:
            self.cache.allocate(request, place)
        for place in plan.repeated:
            self.cache.check_and_update_cache(request, place)

    def unschedule(self, request: Request) -> None:
        """A request that was scheduled in this step is preempted: its part of the budget comes back."""
        self.budget += sum(request.images[place].embeddings for place in self.encoded.pop(request, ()))
