"""The examples of the documentation run."""

import doctest
import importlib
import pkgutil
import re
import shutil
from pathlib import Path

import pytest

import arenaplan
import snippets

ROOT = Path(__file__).parents[2]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(arenaplan.__path__, "arenaplan.")
    if not module.name.endswith(("__main__", "._core"))
]


@pytest.mark.parametrize("name", ["arenaplan", *MODULES])
def test_the_examples_of_a_module_run(name: str) -> None:
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(importlib.import_module(name), optionflags=options).failed == 0


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from test_cli import model

    monkeypatch.chdir(tmp_path)
    model(tmp_path / "model.onnx", batch="batch")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {"array": np.ones((1, 3), np.float32)}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)


@pytest.mark.parametrize("name", ["batch.md", "maps.md", "serving.md"])
def test_the_examples_of_a_page_run(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "```c " in page.read_text() and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    snippets.check_page(page)


def test_output_that_differs_from_a_page_is_found() -> None:
    assert snippets.agrees(["a … c", "…", "end"], ["a b c", "1", "2", "end"])
    assert not snippets.agrees(["a … c"], ["a b d"])
    assert not snippets.agrees(["1,024 bytes"], ["1,025 bytes"])
    assert not snippets.agrees(["a"], ["a", "b"])


def test_a_command_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ arenaplan plan missing.onnx\n```\n")
    with pytest.raises(snippets.Wrong, match="ends with 2"):
        snippets.check_page(page)
    page.write_text("```console\n$ arenaplan pack missing.csv\n…\n$ echo $?\n1\n```\n")
    with pytest.raises(snippets.Wrong, match=r"-1\n\+2"):
        snippets.check_page(page)


def test_rows_of_the_comparison_are_what_the_planners_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    figures = importlib.import_module("figures")
    assert figures.check(["light_squeezenet", "unet_small"], runtime=False) == []
    page = figures.PAGE.read_text()
    monkeypatch.setattr(figures, "PAGE", ROOT / "docs" / "glossary.md")
    (row,) = figures.check(["unet_small"], runtime=False)
    assert row in page


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    names = re.findall(r"^::: arenaplan\.(\w+)$", pages, re.MULTILINE)
    assert sorted(names) == sorted(set(arenaplan.__all__) - {"__version__"})


TRAINING = (ROOT / "docs" / "training.md").read_text().partition("\n## Import a training step")


def test_the_examples_of_writing_and_training_a_model_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TRAINING[0], re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "training.md", "exec"), names)
    shapes = names["shapes"]
    assert isinstance(shapes, dict)
    assert (shapes["x"], shapes["w2"]) == ((64, 784), (128, 10))


RECIPES = [
    recipe
    for page in ((ROOT / "docs" / "integrations.md").read_text(), TRAINING[2])
    for recipe in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", RECIPES, ids=[str(i) for i in range(len(RECIPES))])
def test_the_recipes_for_other_runtimes_run(recipe: str) -> None:
    for package in re.findall(r"^(?:import|from) (\w+)", recipe, re.MULTILINE):
        pytest.importorskip(package)
    exec(compile(recipe, "recipe", "exec"), {})


def test_every_exception_is_a_planner_error_and_is_documented() -> None:
    from arenaplan import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and value.__module__ == errors.__name__:
            assert issubclass(value, errors.PlannerError), name
            assert value.__doc__, name


def test_every_error_of_the_core_has_an_exception() -> None:
    kinds = re.findall(r'=> "(\w+)",', (ROOT / "src" / "base" / "error.rs").read_text())
    assert len(kinds) > 20
    # These are KeyboardInterrupt and OSError.
    for kind in set(kinds) - {"Interrupted", "FileUnreadable"}:
        assert issubclass(getattr(arenaplan.errors, kind), arenaplan.PlannerError)
