"""The examples of the documentation run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import arenaplan

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


@pytest.mark.parametrize("name", ["batch.md", "gate.md", "maps.md", "serving.md"])
def test_the_examples_of_a_page_run(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


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


def test_every_exception_has_a_cure_on_its_page() -> None:
    from arenaplan import errors
    from arenaplan.cures import CURES

    page = (ROOT / "docs" / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", page, re.MULTILINE))
    classes = {
        name: found
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.PlannerError)
    }
    assert set(CURES) == set(classes) == set(rows)  # To mend it: a cure, then `make errors`.
    for name, found in classes.items():
        assert CURES[name] in rows[name]
        cause = " ".join((found.__doc__ or "").strip().partition("\n\n")[0].split())
        assert cause.replace("``", "`") in rows[name], name
        assert all(f"`{base.__name__}`" in rows[name] for base in found.__bases__)


def test_every_error_of_the_core_has_an_exception() -> None:
    kinds = re.findall(r'=> "(\w+)",', (ROOT / "src" / "base" / "error.rs").read_text())
    assert len(kinds) > 20
    # These are KeyboardInterrupt and OSError.
    for kind in set(kinds) - {"Interrupted", "FileUnreadable"}:
        assert issubclass(getattr(arenaplan.errors, kind), arenaplan.PlannerError)
