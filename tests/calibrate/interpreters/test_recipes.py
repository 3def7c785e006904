"""Recipes: the nearest one for a release, each with its source and the release that it was tried with."""

import pytest

from calibrate.interpreters.recipe import (
    PACKAGES,
    SGLANG,
    Package,
    default_release,
    find_recipe,
    recipe_lines,
    release_key,
)


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("0.32.0", "0.32"),
        ("0.32.1", "0.32"),
        ("0.28.1", "0.27"),
        ("0.9.2", "0.27"),
        ("0.33.1", "0.33"),
        ("1.0.0", "0.33"),
    ],
)
def test_an_unknown_release_takes_the_nearest_recipe(version: str, line: str) -> None:
    assert find_recipe(version).line == line
    assert find_recipe(version).is_for(version) == version.startswith(f"{line}.")


def test_the_release_that_is_installed_by_default_is_the_newest_that_runs_whole() -> None:
    assert (default_release(), default_release(SGLANG)) == ("0.32.0", "0.5.23")
    newer = [line for line in recipe_lines() if release_key(f"{line}.0") > release_key(default_release())]
    assert all(find_recipe(f"{line}.0").limit for line in newer)


@pytest.mark.parametrize("version", ["0.32", "latest", "0.32.0; rm", "../0.32.0", "0.32.0+cpu", "", "٠.٣٢.٠"])
def test_what_is_no_release_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is not a release of vLLM"):
        find_recipe(version)


@pytest.mark.parametrize(
    ("package", "line"), [(package, line) for package in PACKAGES.values() for line in recipe_lines(package)]
)
def test_every_recipe_names_its_source_and_installs_the_release_it_was_tried_with(package: Package, line: str) -> None:
    recipe = find_recipe(f"{line}.0", package)
    assert recipe.line == line
    assert recipe.source
    assert recipe.is_for(recipe.tried)
    assert any(f"=={recipe.tried}" in name for name in recipe.packages_without_dependencies(recipe.tried))
    assert recipe.allows_python("3.11")
