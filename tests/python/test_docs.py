"""The examples of the documentation run."""

import doctest
import importlib
import pickle
import pkgutil
import re
import shutil
from pathlib import Path

import pytest

import arenaplan
import arenaplan as ap
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


@pytest.mark.parametrize("name", ["README.md", "docs/manual.md"])
def test_the_examples_of_the_readme_and_the_manual_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    from test_cli import model

    monkeypatch.chdir(tmp_path)
    model(tmp_path / "model.onnx", batch="batch")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {"array": np.ones((1, 3), np.float32)}
    for block in blocks:
        exec(compile(block, name, "exec"), names)


OTHERS = {
    *(
        "device.md",
        "exchange.md",
        "integrations.md",
        "jax.md",
        "manual.md",
        "operators-of-your-own.md",
    ),
    *("torch.md", "training.md"),
}
"""Pages whose examples need a device or another framework, or have tests of their own."""
PAGES = sorted(
    page
    for page in (ROOT / "docs").glob("*.md")
    if page.name not in OTHERS and "```python" in page.read_text()
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs" / "tutorials" / "models" / "doorbell.tflite", tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)


def commands_that_run(document: Path, folder: Path) -> list[snippets.Block]:
    """Return blocks that show the output of a command on models that are in a folder."""
    found = []
    for block in snippets.blocks_of(document.read_text()):
        first, *rest = [*block.text.splitlines(), ""]
        models = re.findall(r"\S+\.(?:onnx|tflite)\b", re.sub(r"-o \S+", "", first))
        shows = block.language == "console" and first.startswith("$ arenaplan")
        if shows and rest[0] and rest[0][0] != "$":
            found += [block] if all((folder / model).exists() for model in models) else []
    return found


@pytest.mark.parametrize("with_shared", [False, True], ids=["own models", "shared models"])
def test_output_that_documents_show_is_that_of_the_commands(
    with_shared: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    import light_models

    monkeypatch.chdir(tmp_path)
    tutorials = ROOT / "docs" / "tutorials"
    shutil.copy(light_models.path("resnet50"), tmp_path)
    shutil.copy(tutorials / "models" / "doorbell.tflite", tmp_path)
    blocks = snippets.blocks_of((tutorials / "server.md").read_text())
    (script,) = [block.text for block in blocks if block.title == "scorer.py"]
    exec(compile(script, "scorer.py", "exec"), {})
    if with_shared:
        for model in (request.getfixturevalue("shared") / "models" / "tflite").glob("*.tflite"):
            shutil.copy(model, tmp_path)
    counts = {}
    for name in ("README", "docs/manual", "docs/index", "docs/memories", "docs/integrations"):
        shown = commands_that_run(ROOT / f"{name}.md", tmp_path)
        counts[name] = len(shown)
        for block in shown:
            assert snippets.run_commands(block.text, f"{name}:{block.line}") == block.text
    assert list(counts.values()) == ([4, 6, 1, 1, 1] if with_shared else [4, 1, 1, 1, 0])


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
    names = re.findall(r"^::: arenaplan\.([\w.]+)$", pages, re.MULTILINE)
    top = set(arenaplan.__all__) - {"__version__"}
    wings = {name for name in top if hasattr(getattr(arenaplan, name), "__path__")}
    assert {"classic", "report", "train"} <= wings
    below = {
        f"{wing}.{name}"
        for wing in wings
        for name in getattr(arenaplan, wing).__all__
        if name not in top
    }
    assert sorted(names) == sorted((top - wings) | below)


def test_the_package_has_few_names() -> None:
    assert len(arenaplan.__all__) <= 45


TRAINING = (ROOT / "docs" / "training.md").read_text().partition("\n## Import a training step")


def test_the_examples_of_writing_and_training_a_model_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TRAINING[0], re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "training.md", "exec"), names)
    assert names["factor"] == 2.0**16, "gradients in float16 overflow above"
    shapes = names["shapes"]
    assert isinstance(shapes, dict)
    assert (shapes["x"], shapes["w2"]) == ((64, 784), (128, 10))


RECIPES = [
    recipe
    for page in (
        (ROOT / "docs" / "integrations.md").read_text(),
        (ROOT / "docs" / "jax.md").read_text(),
        (ROOT / "docs" / "torch.md").read_text(),
        TRAINING[2],
    )
    for recipe in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", RECIPES, ids=[str(i) for i in range(len(RECIPES))])
def test_the_recipes_for_other_runtimes_run(recipe: str) -> None:
    for package in re.findall(r"^(?:import|from) (\w+)", recipe, re.MULTILINE):
        pytest.importorskip(package)
    exec(compile(recipe, "recipe", "exec"), {})


def test_every_exception_is_a_planner_error_and_is_documented() -> None:
    from arenaplan.base import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            assert issubclass(value, errors.PlannerError), name
            assert value.__doc__, name


def test_every_class_of_errors_is_a_kind_and_every_kind_that_is_raised_is_listed() -> None:
    kinds = ap.errors.kinds()
    classes = {
        name
        for name, found in vars(ap.errors).items()
        if isinstance(found, type) and issubclass(found, ap.PlannerError)
    }
    assert classes - {"PlannerError"} <= kinds.keys()
    assert all(kinds[name].of.__name__ == name for name in classes - {"PlannerError"})
    package = Path(ap.__file__).parent
    raised = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r'\bfault\(\s*"(\w+)"', path.read_text())
    }
    assert len(raised) > 20
    assert raised <= kinds.keys()


def test_a_kind_survives_pickling_and_has_its_cure() -> None:
    error = pickle.loads(pickle.dumps(ap.errors.fault("SizeOverflow", "too large")))
    assert (error.kind, str(error)) == ("SizeOverflow", "too large")
    assert "symbolic" in error.cure


def test_every_error_of_the_core_has_a_kind() -> None:
    kinds = re.findall(r'=> "(\w+)",', (ROOT / "src" / "base" / "error.rs").read_text())
    assert len(kinds) > 20
    # These are KeyboardInterrupt and OSError.
    for kind in set(kinds) - {"Interrupted", "FileUnreadable"}:
        assert kind in ap.errors.kinds()
