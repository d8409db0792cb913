"""The test of a module has the same path as the module: src/escrowmq/a/b.py ↔ tests/unit/a/test_b.py."""

from __future__ import annotations

from pathlib import Path

from tests.unit.sources import ROOT, Module, modules

UNIT = ROOT / "tests" / "unit"

# Layers in which every module has a unit test of its own; the others are also covered by tests against the process.
COVERED = ("core", "journal", "wire")

# Modules without a unit test file, with the reasons.
WITHOUT_TEST: dict[str, str] = {
    "escrowmq.core.messages.formats": "a protocol only; the formats are tested with their wire protocols",
    "escrowmq.core.ports": "protocols only, nothing in it runs",
    "escrowmq.wire.amqp010.codec.errors": "two exceptions; they are tested where they are raised",
    "escrowmq.wire.amqp010.ports": "protocols and the results of handlers, nothing in it runs",
    "escrowmq.wire.amqp010.states": "names only; the tests of controls and attaching have a case for each",
    "escrowmq.wire.amqp10.codec.errors": "one exception; it is tested where it is raised",
    "escrowmq.core.queues.host": "a protocol only",
    "escrowmq.wire.selectors.values": "a protocol, and names; the filters are tested with them",
    "escrowmq.core.queues.discipline": "an interface; the disciplines are tested through it",
}

# Test files that mirror no module, and their subjects.
ABOUT_THE_REPOSITORY = {
    "test_layers.py": "the imports of all modules",
    "test_tests_mirror_sources.py": "this rule",
    "test_style.py": "the text of all sources",
    "test_guarantees.py": "tools/guarantees.py",
    "test_configuration_page.py": "tools/configuration.py",
    "test_commands_page.py": "tools/commands.py",
    "test_branches_page.py": "tools/branches.py",
    "test_pages.py": "tools/pages.py",
    "test_gen_amqp.py": "tools/gen_amqp.py",
    "test_gen_amqp010.py": "tools/gen_amqp010.py",
    "test_gen_proto.py": "tools/gen_proto.py",
    "test_documentation.py": "the pages, the Makefile and the locks",
    "test_collection.py": "tests that are left out by default",
}


def test_path_of(module: Module) -> Path:
    """Return the path of a module's unit test."""
    _, *folders, name = module.name.split(".")
    return UNIT.joinpath(*folders, f"test_{name}.py")


test_path_of.__test__ = False  # type: ignore[attr-defined]


def needs_test(module: Module) -> bool:
    # tools/gen_amqp.py --check and tools/gen_proto.py --check compare these with their sources.
    generated = module.path.name == "spec.py" or module.path.name.endswith("_pb2.py")
    return module.layer in COVERED and not module.is_package and not generated and module.name not in WITHOUT_TEST


def test_every_module_of_the_pure_layers_has_its_unit_test() -> None:
    missing = [
        f"{module.name}: no {test_path_of(module).relative_to(ROOT)}"
        for module in modules().values()
        if needs_test(module) and not test_path_of(module).exists()
    ]
    assert not missing, "\n".join(missing)


def test_every_unit_test_mirrors_a_module() -> None:
    mirrored = {test_path_of(module) for module in modules().values() if module.layer}
    lost = [
        str(path.relative_to(ROOT))
        for path in sorted(UNIT.rglob("test_*.py"))
        if path not in mirrored and path.relative_to(UNIT).as_posix() not in ABOUT_THE_REPOSITORY
    ]
    assert not lost, "these mirror no module:\n" + "\n".join(lost)


def test_the_exceptions_are_still_needed() -> None:
    gone = [name for name in WITHOUT_TEST if name not in modules() or test_path_of(modules()[name]).exists()]
    assert not gone
