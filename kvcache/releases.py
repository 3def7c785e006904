"""Which releases of vLLM are known."""

Release = tuple[int, int, int]

OLDEST_RELEASE: Release = (0, 4, 1)  # of the servers that the memory model was compared with
FIRST_V1_RELEASE: Release = (0, 8, 0)  # the first that schedules with engine V1 unless told otherwise (release notes)
NEWEST_RELEASE: Release = (0, 32, 0)  # whose rules are known


def release_text(release: Release) -> str:
    """(0, 32, 0) → `0.32.0`."""
    return ".".join(map(str, release))


def check_known_memory(release: Release) -> None:
    """Raise ValueError for a release too old for the memory model."""
    if release < OLDEST_RELEASE:
        raise ValueError(
            f"vllm_version is {release_text(release)}; memory is known from {release_text(OLDEST_RELEASE)} on; give a "
            "later release"
        )


def check_simulated(release: Release) -> None:
    """Raise ValueError for a release whose scheduler is not simulated."""
    if release < FIRST_V1_RELEASE:
        raise ValueError(
            f"vllm_version is {release_text(release)}, which schedules with engine V0; engine V1 is simulated, the "
            f"default from {release_text(FIRST_V1_RELEASE)} on; give a later release ('headcount memory' knows older)"
        )


def newer_than_known(release: Release) -> str | None:
    """What is said of a release whose own rules are not known yet."""
    if release <= NEWEST_RELEASE:
        return None
    known = release_text(NEWEST_RELEASE)
    return f"{release_text(release)} is newer than any that was looked at: the rules of {known} apply"
