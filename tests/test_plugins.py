import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

import pytest

from fedsim import plugins
from fedsim.cli.plugin_kinds import FOLDERS
from fedsim.config import Config
from fedsim.errors import UnknownPluginError
from fedsim.plugins import DISTRIBUTION, Plugin, at, available, install_command, load, name_of, path_of

FOLDER = "plugin_garden"
PLUGIN = '''"""{summary}

More about it.
"""

from fedsim.plugins import Plugin


class It(Plugin):
    pass


PLUGIN = It
'''

PLUGINS = '''"""Lilies."""

from fedsim.plugins import Plugin


class Lily(Plugin):
    """Base of the lilies."""


class Tiger(Lily):
    """A tiger lily.

    More about it.
    """


class Turban(
    Lily
):
    """A turban lily."""


PLUGINS = {
    "tiger_lily": Tiger,
    "martagon": Turban,
}
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which modules can be imported, with a package of plugins."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / FOLDER
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("LIMIT = 3\n")
    (package / "rose.py").write_text(PLUGIN.format(summary="A rose."))
    (package / "aster.py").write_text(PLUGIN.format(summary="An aster."))
    (package / "lilies.py").write_text(PLUGINS)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in (FOLDER, "my_lab")]:
        del sys.modules[name]


def _private(root: Path, source: str) -> None:
    (root / "my_lab").mkdir()
    (root / "my_lab" / "__init__.py").write_text("")
    (root / "my_lab" / "fast.py").write_text(source)


def test_plugins_of_their_own_file_and_of_a_shared_one_are_available_sorted_by_name(root: Path) -> None:
    assert [(found.name, found.summary, found.plugin.__name__) for found in available(FOLDER)] == [
        ("aster", "An aster.", "It"),
        ("martagon", "A turban lily.", "Turban"),
        ("rose", "A rose.", "It"),
        ("tiger_lily", "A tiger lily.", "Tiger"),
    ]


def test_a_family_may_be_a_single_module(root: Path) -> None:
    family = f"{FOLDER}.lilies"
    assert [found.name for found in available(family)] == ["martagon", "tiger_lily"]
    assert load(family, "martagon").__name__ == "Turban"
    with pytest.raises(UnknownPluginError, match=r"^no lilie is called 'lily'; there are: martagon, tiger_l"):
        load(family, "lily")
    with pytest.raises(UnknownPluginError, match=rf"from the base class in {family}\); there are: martagon"):
        load(family, "pathlib.Path")


def test_a_plugin_is_imported_when_its_class_is_asked_for(root: Path) -> None:
    (root / FOLDER / "thistle.py").write_text('"""A thistle."""\n\nPLUGIN = 1 / 0\n')
    thistle = available(FOLDER)[3]
    assert (thistle.name, thistle.summary) == ("thistle", "A thistle.")
    with pytest.raises(ZeroDivisionError):
        _ = thistle.plugin


@pytest.mark.parametrize("family", FOLDERS.values())
def test_what_the_sources_say_is_what_the_modules_are(family: str) -> None:
    place = import_module(family)
    names = [info.name for info in iter_modules(getattr(place, "__path__", []))]
    described: dict[str, object] = {}
    for module in [import_module(f"{family}.{name}") for name in names] or [place]:
        if hasattr(module, "PLUGIN"):
            described[module.__name__.rpartition(".")[2]] = module
        described |= getattr(module, "PLUGINS", {})
    said = {name: (inspect.getdoc(source) or "").partition("\n")[0] for name, source in described.items()}
    assert {info.name: info.summary for info in available(family)} == said


@pytest.mark.parametrize("family", FOLDERS.values())
def test_a_built_in_plugin_has_its_name(family: str) -> None:
    for found in available(family):
        plugin = load(family, found.name)
        assert name_of(plugin) == path_of(plugin) == found.name


def test_a_plugin_is_loaded_by_its_name(root: Path) -> None:
    assert load(FOLDER, "rose").__module__ == f"{FOLDER}.rose"


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("rosé", "did you mean 'rose'? "),
        ("rsoe", "did you mean 'rose'? "),
        ("zinnia", ""),
        ("base", "did you mean 'aster'? "),
        ("lilies", ""),
        ("", ""),
        ("ro se", "did you mean 'rose'? "),
        (".rose", "did you mean 'rose'? "),
        ("my_lab.fast", ""),
        ("rose.bud", "did you mean 'rose'? "),
    ],
)
def test_an_unknown_name_is_told_the_nearest_one(name: str, guess: str, root: Path) -> None:
    with pytest.raises(UnknownPluginError) as caught:
        load(FOLDER, name)
    names = "aster, martagon, rose, tiger_lily"
    assert str(caught.value) == f"no plugin_garden is called {name!r}; {guess}there are: {names}"
    assert not caught.value.is_there


def test_the_kind_is_named_in_the_singular() -> None:
    with pytest.raises(UnknownPluginError, match=r"no algorithm is called 'fedagv'; did you mean 'fedavg'\?"):
        load("fedsim.algorithms", "fedagv")


def test_a_private_plugin_is_named_by_its_dotted_path(root: Path) -> None:
    _private(root, PLUGIN.format(summary="Fast."))
    plugin = load("fedsim.algorithms", "my_lab.fast")
    assert plugin.__module__ == "my_lab.fast"
    assert name_of(plugin) == name_of(plugin(Config())) == "my_lab.fast"
    del sys.modules["my_lab.fast"].PLUGIN  # then its class is named
    assert name_of(plugin) == "my_lab.fast.It"


def test_a_class_that_is_no_plugin_is_told_so(root: Path) -> None:
    _private(root, "class It: ...\n")
    with pytest.raises(UnknownPluginError, match=r"'my_lab.fast.It' \(it is not derived from the base class"):
        load("fedsim.algorithms", "my_lab.fast.It")


@pytest.mark.parametrize("source", ["", "PLUGIN = 3\n", "class It: ...\nPLUGIN = It\n"])
def test_a_private_module_without_a_plugin_is_told_what_is_missing(source: str, root: Path) -> None:
    _private(root, source)
    with pytest.raises(
        UnknownPluginError, match=r"module 'my_lab.fast' offers no plugin: end it with PLUGIN ="
    ) as caught:
        load("fedsim.algorithms", "my_lab.fast")
    assert caught.value.is_there


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_thing\n", "No module named 'no_such_thing'"),
        ("import my_lab.missing\n", "No module named 'my_lab.missing'"),
        ("from fedsim.plugins import no_such_name\n", "cannot import name 'no_such_name'"),
    ],
)
def test_a_plugin_that_lacks_an_import_of_its_own_says_so(source: str, reason: str, root: Path) -> None:
    _private(root, source)
    with pytest.raises(UnknownPluginError, match=f"'my_lab.fast' cannot be imported: {reason}") as caught:
        load("fedsim.algorithms", "my_lab.fast")
    assert isinstance(caught.value.__cause__, ImportError)
    assert caught.value.is_there


def test_any_other_error_of_a_plugin_is_its_authors_to_see(root: Path) -> None:
    _private(root, "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load("fedsim.algorithms", "my_lab.fast")


def test_a_plugin_is_made_from_its_settings() -> None:
    config = Config()
    assert Plugin(config).config is config


def test_the_settings_are_the_type_argument_of_the_base_unless_the_class_names_others() -> None:
    class Speed(Config):
        pass

    class Fast(Plugin[Speed]):
        pass

    class Derived(Fast):
        pass

    class Other(Speed):
        pass

    class Named(Plugin[Speed]):
        Config = Other

    bounded = TypeVar("bounded", bound=Other)

    class Base(Plugin[bounded]):
        pass

    settings = [cls.Config for cls in (Plugin, Fast, Derived, Named, Base)]
    assert settings == [Config, Speed, Speed, Other, Other]


def test_a_dotted_path_leads_to_a_module_or_to_what_is_in_one(root: Path) -> None:
    _private(root, "class Net:\n    size = 3\n")
    assert at("my_lab.fast") is sys.modules["my_lab.fast"]
    assert at("my_lab.fast.Net.size") == 3
    assert (
        at("my_lab.fast.Met") is at("my_lab.nowhere.at.all") is at("no.such.lab") is at("my_lab..x") is None
    )


def test_a_module_on_the_path_that_lacks_an_import_says_so(root: Path) -> None:
    _private(root, "import no_such_thing\n")
    with pytest.raises(ImportError, match="no_such_thing"):
        at("my_lab.fast.Net")


def test_the_distribution_is_called_as_pyproject_says() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert pyproject["project"]["name"] == DISTRIBUTION


def test_an_extra_is_installed_from_the_checkout_that_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_PACKAGE", tmp_path / "a clone" / "fedsim")
    assert install_command("ray") == f"pip install -e '{tmp_path}/a clone[ray]'"


def test_an_extra_of_an_installed_wheel_is_installed_by_the_name_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").mkdir()
    monkeypatch.setattr(plugins, "_PACKAGE", tmp_path)
    assert install_command("ray") == "pip install 'fedsim-des[ray]'"


def test_nothing_tells_to_install_the_other_project_of_that_name() -> None:
    root = Path(__file__).parents[1]
    files = [root / "README.md", root / "pyproject.toml", *root.glob("docs/**/*.md")]
    files += root.glob("fedsim/**/*.py")
    other = re.compile(r"\bfedsim\[|pip install [^`\n]*\bfedsim(?![-/\w])")
    assert [file for file in files if other.search(file.read_text("utf-8"))] == []
