"""Which images a step encodes, and the encoder's cache, compiled: as in `conformance.reference.vllm.encoder`."""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays

ENCODED, REPEATED = 0, 1  # what a planned image is


@kernel
def new_step(a: Arrays, replica: int) -> None:
    state = a.encoders[replica]
    state.budget = a.pools[a.replicas[replica].pool].encoder_budget
    state.embeddings = 0
    state.patches = state.pairs = 0.0


@rare_kernel
def plan(a: Arrays, replica: int, request: int, computed: int, tokens: int) -> int:
    """Find the images that these tokens need; returns how many of the tokens the request gets."""
    state, of = a.encoders[replica], a.images_of[request]
    state.num_planned = 0
    state.planned_budget = state.budget
    end, embeddings = computed + tokens, 0
    for place in range(of.num):
        image = a.images[of.start + place]
        if image.end <= computed:
            continue
        if image.offset >= end:
            break
        if is_planned(a, replica, of.start, image.content):
            note(a, replica, place, REPEATED)
            continue
        slot = find(a, replica, image.content)
        if slot != NONE:
            refer(a, replica, request, place, slot)
            continue
        if not can_allocate(a, replica, image.embeddings, embeddings):
            return max(image.offset - computed, 0)
        if min(end, image.last) <= max(computed, image.first):  # these tokens are its marks alone
            continue
        embeddings += image.embeddings
        state.planned_budget -= image.embeddings
        note(a, replica, place, ENCODED)
    return tokens


@kernel
def note(a: Arrays, replica: int, place: int, what: int) -> None:
    state = a.encoders[replica]
    a.planned_images[replica, state.num_planned, 0] = place
    a.planned_images[replica, state.num_planned, 1] = what
    state.num_planned += 1


@kernel
def is_planned(a: Arrays, replica: int, start: int, content: int) -> bool:
    """Whether the same image is encoded for the same request, whose images begin at `start`."""
    for number in range(a.encoders[replica].num_planned):
        image = a.images[start + a.planned_images[replica, number, 0]]
        if a.planned_images[replica, number, 1] == ENCODED and image.content == content:
            return True
    return False


@kernel
def find(a: Arrays, replica: int, content: int) -> int:
    """The slot of a cached image, or NONE."""
    for slot in range(a.encoder_cache.shape[1]):
        if a.encoder_cache[replica, slot].content == content:
            return slot
    return NONE


@kernel
def can_allocate(a: Arrays, replica: int, embeddings: int, planned: int) -> bool:
    """Whether an image fits the budget, and the cache beside those planned; what must go, goes now."""
    state = a.encoders[replica]
    needed = embeddings + planned
    if embeddings > state.planned_budget or (needed > state.free_slots and needed > state.freeable_slots):
        return False
    while needed > state.free_slots:
        oldest = NONE
        for slot in range(a.encoder_cache.shape[1]):
            held = a.encoder_cache[replica, slot]
            if held.content == NONE or held.references > 0:
                continue
            if oldest == NONE or held.freed < a.encoder_cache[replica, oldest].freed:
                oldest = slot
        gone = a.encoder_cache[replica, oldest]
        state.free_slots += gone.embeddings
        gone.content = NONE
    return True


@rare_kernel
def commit(a: Arrays, replica: int, request: int) -> None:
    """The request is scheduled with the tokens that were planned for."""
    state, of = a.encoders[replica], a.images_of[request]
    of.step = a.replicas[replica].step
    of.embeddings = 0
    of.patches = of.pairs = 0.0
    for number in range(state.num_planned):
        if a.planned_images[replica, number, 1] == ENCODED:
            allocate(a, replica, request, a.planned_images[replica, number, 0])
    if of.embeddings == 0:
        return
    state.budget = state.planned_budget
    add_to_step(a, replica, request, 1)
    for number in range(state.num_planned):
        if a.planned_images[replica, number, 1] == REPEATED:
            place = a.planned_images[replica, number, 0]
            refer(a, replica, request, place, find(a, replica, a.images[of.start + place].content))


@kernel
def allocate(a: Arrays, replica: int, request: int, place: int) -> None:
    """Give an image a slot of the cache."""
    state, of = a.encoders[replica], a.images_of[request]
    image, slot = a.images[of.start + place], find(a, replica, NONE)
    held = a.encoder_cache[replica, slot]
    held.content = image.content
    held.embeddings = image.embeddings
    held.references = 0
    state.free_slots -= image.embeddings
    refer(a, replica, request, place, slot)
    of.embeddings += image.embeddings
    of.patches += image.patches
    of.pairs += image.pairs


@kernel
def add_to_step(a: Arrays, replica: int, request: int, sign: int) -> None:
    """Enter what a request encodes into the step's sums, or take it out."""
    state, of = a.encoders[replica], a.images_of[request]
    state.embeddings += sign * of.embeddings
    state.patches += sign * of.patches
    state.pairs += sign * of.pairs


@rare_kernel
def unschedule(a: Arrays, replica: int, request: int) -> None:
    """A request that was scheduled in this step is preempted: its part of the budget comes back."""
    state, of = a.encoders[replica], a.images_of[request]
    if of.step == a.replicas[replica].step:
        state.budget += of.embeddings
        add_to_step(a, replica, request, -1)
        of.step = 0


@kernel
def refer(a: Arrays, replica: int, request: int, place: int, slot: int) -> None:
    """A request needs a cached image; if it is there for nobody else, it can go no longer."""
    of, held = a.images_of[request], a.encoder_cache[replica, slot]
    if a.image_flags[of.flags + place] > 0:
        return
    if held.references == 0:
        a.encoders[replica].freeable_slots -= held.embeddings
    if not refers_to(a, request, held.content):
        held.references += 1
    a.image_flags[of.flags + place] = 1
    of.num_held += 1


@kernel
def refers_to(a: Arrays, request: int, content: int) -> bool:
    of = a.images_of[request]
    for place in range(of.num):
        if a.image_flags[of.flags + place] > 0 and a.images[of.start + place].content == content:
            return True
    return False


@kernel
def free_one(a: Arrays, replica: int, request: int, place: int) -> None:
    """A request needs an image no longer; it may have the same one again at another place."""
    of, state = a.images_of[request], a.encoders[replica]
    content = a.images[of.start + place].content
    a.image_flags[of.flags + place] = 0
    of.num_held -= 1
    if refers_to(a, request, content):
        return
    held = a.encoder_cache[replica, find(a, replica, content)]
    held.references -= 1
    if held.references == 0:
        held.freed = state.num_freed
        state.num_freed += 1
        state.freeable_slots += held.embeddings


@rare_kernel
def free_computed(a: Arrays, replica: int, request: int) -> None:
    """A step of the request is over: it needs none of the images whose tokens are computed."""
    of, req = a.images_of[request], a.requests[request]
    for place in range(of.num):
        if a.image_flags[of.flags + place] > 0 and a.images[of.start + place].end <= req.computed - req.placeholders:
            free_one(a, replica, request, place)


@rare_kernel
def free(a: Arrays, replica: int, request: int) -> None:
    """The request needs none of its images."""
    of = a.images_of[request]
    for place in range(of.num):
        if a.image_flags[of.flags + place] > 0:
            free_one(a, replica, request, place)


@kernel
def take_step_s(a: Arrays, replica: int) -> float:
    """What the step that was decided last takes longer for the images that it encodes."""
    state, p = a.encoders[replica], a.pools[a.replicas[replica].pool]
    if state.patches == 0.0:
        return 0.0
    encoder_s = p.encoder_start_s + state.patches * p.encoder_patch_s + state.pairs * p.encoder_pair_s
    encoder_s = max(encoder_s, p.encoder_floor_s)
    a.totals[replica].encoder_s += encoder_s
    a.totals[replica].embeddings += state.embeddings
    return float(encoder_s)
