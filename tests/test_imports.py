"""Which modules may import which, checked on the source of every module without running it."""

import ast
import configparser
import graphlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bert_jax.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
ACCELERATOR = {"jax", "jaxlib", "flax", "optax", "orbax"}
INPUT = {"tensorflow", "tensorflow_datasets"}
SHARED = {
    "data_pipeline.atomic",
    "data_pipeline.bucket",
    "data_pipeline.checks",
    "data_pipeline.pretraining.batch_contract",
    "data_pipeline.config",
    "data_pipeline.errors",
    "data_pipeline.directories",
    "data_pipeline.interrupts",
    "data_pipeline.json_text",
    "data_pipeline.stand_in",
    "data_pipeline.corpus.vocabulary_file",
}
# What `bert_jax` may import besides, which needs numpy or the library `tokenizers`.
TOKENIZING = {
    "data_pipeline.corpus.byte_bpe",
    "data_pipeline.corpus.special_tokens",
    "data_pipeline.corpus.tokenizer_json",
    "data_pipeline.corpus.tokenizer_rules",
    "data_pipeline.corpus.truncation",
    "data_pipeline.corpus.wordpiece",
}
PACKAGES = ["bert_jax", "data_pipeline", "experiments"]
JOINING = {"cli", "pretraining", "studies", "tasks", "__init__.py"}
MOST_LAYERS = 9
"""Longest chain of directories, each of which imports the next."""
MOST_IMPORTS_INSIDE_FUNCTIONS = 15
OURS = {"bert_jax", "data_pipeline", "experiments", "benchmarks", "tests"}


def modules(directory: str) -> list[Path]:
    return sorted((ROOT / directory).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it; `from a import b` gives a, and a.b if that is a
    module of ours."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; name the package"
            yield node.module or ""
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in inner if file_of(name).exists())


def file_of(name: str) -> Path:
    """Where a module of ours lies."""
    return (ROOT / name.replace(".", "/")).with_suffix(".py")


def reached(names: Iterable[str]) -> set[str]:
    """These modules and those of ours that they import, and so on."""
    found: set[str] = set()
    new = set(names)
    while new:
        found |= new
        new = {n for name in new for n in imports(file_of(name)) if file_of(n).exists()} - found
    return found


def top(name: str) -> str:
    return name.partition(".")[0]


@pytest.mark.parametrize("directory", [*PACKAGES, "benchmarks", "tests"])
def test_modules_of_ours_that_are_imported_exist(directory: str) -> None:
    """Also where a function imports them, which no other test may call."""
    missing = {
        (path.name, name)
        for path in modules(directory)
        for name in imports(path)
        if top(name) in OURS and not file_of(name).exists() and not file_of(name).with_suffix("").is_dir()
    }
    assert missing == set()


def joins_both(path: Path) -> bool:
    """The commands, the fine-tuning tasks, and the package's own functions."""
    return path.relative_to(ROOT).parts[1] in JOINING


def wrong_arrows(path: Path) -> list[str]:
    """Imports of a module that the architecture forbids."""
    names = set(imports(path))
    package = path.relative_to(ROOT).parts[0]
    if package == "data_pipeline":
        return sorted(n for n in names if top(n) in ACCELERATOR | (OURS - {"data_pipeline"}))
    if package == "experiments":
        allowed = {"dataclasses", "typing", "bert_jax.config", "bert_jax.model_config", "bert_jax.objectives"}
        allowed |= {"bert_jax.objectives.experiment", "bert_jax.study", "data_pipeline.config"}
        return sorted(n for n in names if n not in allowed and top(n) != "experiments")
    if joins_both(path):
        return sorted(n for n in names if top(n) in INPUT | {"tests", "benchmarks"})
    forbidden = INPUT | {"experiments", "benchmarks", "tests"}
    wrong = {n for n in names if top(n) in forbidden}
    wrong |= {n for n in names if top(n) == "data_pipeline" and n not in SHARED | TOKENIZING}
    return sorted(wrong | {n for n in names if n.startswith("bert_jax.tasks")})


@pytest.mark.parametrize("directory", PACKAGES)
def test_arrows_between_packages(directory: str) -> None:
    found = {str(path.relative_to(ROOT)): wrong_arrows(path) for path in modules(directory)}
    assert found, f"no module in {directory}"
    assert not {path: wrong for path, wrong in found.items() if wrong}


def test_configuration_and_what_both_packages_share_need_the_standard_library_alone() -> None:
    found = reached(
        {
            *("bert_jax.config", "bert_jax.model_config", "bert_jax.finetuning_config"),
            *("bert_jax.workdir.finetuning", *SHARED),
        }
    )
    for name in set(found) - {"data_pipeline.bucket_client"}:  # imported where a bucket is named
        names = {top(n) for n in imports(file_of(name))}
        assert not names - sys.stdlib_module_names - OURS, name


# Reading a `pytorch_model.bin` needs torch, `prepare --runner` Beam. Each says so if it is not installed.
OPTIONAL = {"apache_beam", "torch"}


def requirements() -> set[str]:
    """The distributions that this package requires by name."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = settings["options"]["install_requires"].splitlines()
    return {re.split(r"[^\w.-]", line)[0] for line in lines if line and not line.startswith("#")}


def test_what_is_imported_from_outside_is_required_by_name() -> None:
    names = {top(name) for directory in PACKAGES for path in modules(directory) for name in imports(path)}
    outside = names - set(sys.stdlib_module_names) - OURS
    providers = importlib.metadata.packages_distributions()
    assert {"jax", "numpy", "google"} <= outside
    assert [name for name in outside - OPTIONAL if not requirements() & set(providers[name])] == []


def imports_at_top(path: Path) -> Iterator[str]:
    """Dotted names that are imported as soon as a module is; `from a import b` gives both a and a.b."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def with_all_at_top(paths: Iterable[Path]) -> set[Path]:
    """Modules of this repository and those that are imported with them, through any number of others."""
    found, to_read = set(), list(paths)
    while to_read:
        path = to_read.pop()
        if path not in found:
            found.add(path)
            files = [ROOT / name.replace(".", "/") for name in imports_at_top(path) if top(name) in OURS]
            candidates = [file for name in files for file in (name.with_suffix(".py"), name / "__init__.py")]
            to_read += [file for file in candidates if file.exists()]
    return found


def test_flags_of_commands_are_read_without_heavy_imports() -> None:
    # What the functions of these modules import, and so the modules that only they import, may be heavy.
    read = ["bert_jax/tasks/__init__.py", "experiments/__init__.py", "bert_jax/cli/main.py"]
    read += [f"bert_jax/cli/flags/{name.replace('-', '_')}.py" for name in COMMANDS]
    reached = with_all_at_top(ROOT / name for name in read)
    assert len(reached) > len(read)
    heavy = {
        str(path.relative_to(ROOT)): {top(name) for name in imports_at_top(path)} & (ACCELERATOR | INPUT)
        for path in reached
    }
    assert not {path: names for path, names in heavy.items() if names}


def test_help_imports_neither_jax_nor_tensorflow() -> None:
    # One process for all: what one of them imports, it is blamed for.
    program = f"""
import sys, bert_jax.cli.main, bert_jax.tasks
commands = [["--help"], ["experiments"], ["pretrain", "base", "--help"], ["compile", "base", "--help"]]
commands += [[name, "--help"] for name in bert_jax.cli.main.COMMANDS]
commands += [["finetune", name, "--help"] for name in bert_jax.tasks.TASKS]
for command in commands:
    try:
        bert_jax.cli.main.main(command)
    except SystemExit:
        pass
    heavy = {sorted(ACCELERATOR | INPUT)!r} + ["numpy"] * (command[0] != "finetune")
    if found := [name for name in heavy if name in sys.modules]:
        sys.exit(f"{{command}} imports {{found}}")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_run_starts_without_what_its_libraries_import_and_it_does_not_use() -> None:
    # They were a third of the CPU time that a start took.
    unused = ["keras", "matplotlib", "scipy.stats", "sklearn", "google.cloud.storage"]
    program = f"""
import sys, bert_jax.cli.pretrain
if found := [name for name in {unused!r} if name in sys.modules]:
    sys.exit(f"{{found}} are imported")
from data_pipeline.tensorflow_cpu import tf
assert tf.keras.__version__ >= "3", "tf.keras is another one"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def graph(directory: str) -> dict[str, set[str]]:
    """The modules of a package by name, each with those of the package that it imports, wherever in it."""
    return {
        (name := ".".join(path.relative_to(ROOT).with_suffix("").parts)): {
            n for n in imports(path) if top(n) == directory and file_of(n).exists()
        }
        - {name}
        for path in modules(directory)
    }


def part(name: str) -> str:
    """The directory of a module in `bert_jax`, or the module where it lies in none."""
    return ".".join(name.split(".")[:2])


def directories_of_bert_jax() -> dict[str, set[str]]:
    """The directories of `bert_jax`, each with those that it imports; a module in none counts as one."""
    arrows: dict[str, set[str]] = {}
    for name, imported in graph("bert_jax").items():
        arrows.setdefault(part(name), set()).update({part(n) for n in imported} - {part(name)})
    return arrows


@pytest.mark.parametrize("directory", PACKAGES)
def test_files_import_one_another_in_one_direction(directory: str) -> None:
    graphlib.TopologicalSorter(graph(directory)).prepare()  # raises CycleError, which names the files


def test_directories_of_bert_jax_import_one_another_in_one_direction() -> None:
    graphlib.TopologicalSorter(
        directories_of_bert_jax()
    ).prepare()  # raises CycleError, which names the directories


def test_directories_of_bert_jax_form_few_layers() -> None:
    arrows = directories_of_bert_jax()
    layer: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(arrows).static_order():
        layer[name] = 1 + max((layer[below] for below in arrows[name]), default=0)
    assert max(layer.values()) <= MOST_LAYERS, sorted(layer.items(), key=lambda item: item[1])


def test_few_functions_import() -> None:
    # Each for a reason that stands beside it: an optional package, or a heavy one that is rarely needed.
    inside = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("bert_jax")
        if "tasks" not in path.parts
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(inside) <= MOST_IMPORTS_INSIDE_FUNCTIONS, sorted(inside)


def test_the_model_knows_no_training() -> None:
    known = ("bert_jax.model_config", "bert_jax.mesh", "bert_jax.model", "bert_jax.task")
    for path in modules("bert_jax/model"):
        ours = {n for n in imports(path) if top(n) == "bert_jax"}
        assert not {n for n in ours if not n.startswith(known)}, path
