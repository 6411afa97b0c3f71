"""What a set of files publishes, read and checked as a whole without touching network or disk.

`read_files` reports every error that it finds, each with its place; `check_references` needs to know
what is published already. `collect` is the one function here that reads a disk.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from schemas.errors import Place, Refused
from topology.code_workflows.bundles import Bundle
from topology.code_workflows.declarations import declares_workflow
from topology.code_workflows.files import read_code_file
from topology.code_workflows.source import PythonFile, read_python
from topology.collection import MAX_FILES, collect
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.parts import Parts, Source, id_of
from topology.problems import Problems, combined
from topology.queues import QueueSpec
from topology.references import KnownNames, Reference, unknown_references
from topology.topology_files import SECTIONS, read_topology_file
from topology.triggers import TriggerSpec
from topology.workflow_files import read_workflow_file
from topology.workflows import WorkflowSpec
from topology.yaml_source import Document, read_yaml

__all__ = ["KnownNames", "Publication", "check_references", "collect", "read_files"]

Part = TypeVar("Part", int, str)

_WORKFLOW_KEYS = frozenset({"name", "steps", "version"})


@dataclass
class Publication:
    """Specs in order of file name. `references` are checked against what is published by `check_references`; `sources`
    say where event types are declared.
    """

    workflows: list[WorkflowSpec] = field(default_factory=list)
    triggers: list[TriggerSpec] = field(default_factory=list)
    connectors: list[ConnectorSpec] = field(default_factory=list)
    queues: list[QueueSpec] = field(default_factory=list)
    event_types: list[EventTypeSpec] = field(default_factory=list)
    bundles: list[Bundle] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list, repr=False)
    sources: dict[str, Source] = field(default_factory=dict, repr=False)


def read_files(files: Mapping[str, str], *, dev: bool = False) -> Publication:
    """Read files by name. Raises Refused: the first error, with all of them in `details["errors"]`."""
    if not files:
        raise Refused("E_SPEC_INVALID", "nothing to publish: no file was given")
    if len(files) > MAX_FILES:
        raise Refused("E_SPEC_INVALID", f"{len(files)} files; at most {MAX_FILES} are published at once")
    parts = _Reading(files, dev=dev).read()
    errors = sorted([*parts.errors, *_repeated(parts)], key=_order)
    if errors:
        raise combined(errors)
    return _assembled(parts)


def check_references(publication: Publication, known: KnownNames) -> None:
    """Everything named must be published, before or now. Raises Refused as `read_files` does."""
    errors = unknown_references(publication.references, _with_published(publication, known))
    if errors:
        raise combined(sorted(errors, key=_order))


class _Reading:
    """One pass over the files. Modules that a workflow imports belong to its bundle, not to themselves."""

    def __init__(self, files: Mapping[str, str], *, dev: bool) -> None:
        self._files = {str(PurePosixPath(name)): text for name, text in files.items()}
        self._dev = dev
        self._bundled: set[str] = set()
        self._parts = Parts()

    def read(self) -> Parts:
        modules: dict[str, PythonFile] = {}
        for name in sorted(self._files):
            try:
                self._read_file(name, modules)
            except Problems as problems:
                self._parts.errors.extend(problems.errors)
            except Refused as error:
                self._parts.errors.append(error)
        self._read_modules(modules)
        return self._parts

    def _read_file(self, name: str, modules: dict[str, PythonFile]) -> None:
        suffix = PurePosixPath(name).suffix
        if suffix in (".yaml", ".yml"):
            self._parts.merge(_read_document(read_yaml(name, self._files[name]), dev=self._dev))
        elif suffix == ".py":
            modules[name] = read_python(name, self._files[name])
        else:
            found = "only .yaml, .yml and .py files are published"
            raise Refused("E_SPEC_INVALID", found, Place(name, 1, 1))

    def _read_modules(self, modules: Mapping[str, PythonFile]) -> None:
        entries = {name: module for name, module in modules.items() if declares_workflow(module)}
        for name, module in entries.items():
            try:
                self._read_entry(name, module)
            except Problems as problems:
                self._parts.errors.extend(problems.errors)
            except Refused as error:
                self._parts.errors.append(error)
        if not self._parts.errors:
            lost = sorted(set(modules) - set(entries) - self._bundled)
            self._parts.errors.extend(_no_workflow(name) for name in lost)

    def _read_entry(self, name: str, module: PythonFile) -> None:
        folder = PurePosixPath(name).parent
        parts, closure = read_code_file(module, lambda path: self._files.get(str(folder / path)), dev=self._dev)
        self._parts.merge(parts)
        self._bundled.update(str(folder / path) for path in closure.modules)


def _read_document(document: Document, *, dev: bool) -> Parts:
    value = document.value
    if isinstance(value, dict) and "id" not in value and not value.keys() & set(SECTIONS):
        if value.keys() & _WORKFLOW_KEYS:
            return read_workflow_file(document, dev=dev)
    elif isinstance(value, dict | list) and value:
        return read_topology_file(document)
    found = (
        "this file declares nothing: a workflow has `name`, `version` and `steps`, a topology file is a "
        "list of triggers, connectors and queues, or has them and event types under keys of their own"
    )
    raise Refused("E_SPEC_INVALID", found, document.place(()))


def _no_workflow(name: str) -> Refused:
    found = 'no function here is decorated with `@workflow("name", version=1)`, and no workflow imports the file'
    return Refused("E_BUNDLE_INVALID", found, Place(name, 1, 1))


def _repeated(parts: Parts) -> list[Refused]:
    """Ids that are declared twice, at the second place."""
    first: dict[str, Place] = {}
    errors: list[Refused] = []
    for spec, place in sorted(parts.declared, key=lambda pair: (pair[1].file, pair[1].line, pair[1].column)):
        name = id_of(spec)
        if name in first:
            found = f"`{name}` is declared already at {first[name]}; keep one of the two"
            errors.append(Refused("E_SPEC_INVALID", found, place))
        first.setdefault(name, place)
    return errors


def _order(error: Refused) -> tuple[str, int, int]:
    place = error.place
    return (place.file, place.line, place.column) if place else ("", 0, 0)


def _assembled(parts: Parts) -> Publication:
    specs = [spec for spec, _ in parts.declared]
    bundles = {bundle.digest: bundle for bundle in parts.bundles}
    return Publication(
        workflows=[spec for spec in specs if isinstance(spec, WorkflowSpec)],
        triggers=[spec for spec in specs if isinstance(spec, TriggerSpec)],
        connectors=[spec for spec in specs if isinstance(spec, ConnectorSpec)],
        queues=[spec for spec in specs if isinstance(spec, QueueSpec)],
        event_types=[spec for spec in specs if isinstance(spec, EventTypeSpec)],
        bundles=list(bundles.values()),
        warnings=list(dict.fromkeys(parts.warnings)),  # a module that several workflows import is read with each
        references=parts.references,
        sources=parts.sources,
    )


def _with_published(publication: Publication, known: KnownNames) -> KnownNames:
    """What is known, with what is about to be."""
    workflows = {name: set(versions) for name, versions in _parts_of(known.workflows).items()}
    for workflow in publication.workflows:
        name = workflow.workflow_id
        if workflows.get(name) != set():  # of a workflow whose versions are not known, none is checked
            workflows.setdefault(name, set()).add(workflow.version)
    connectors = {one.id: set(one.operations) for one in publication.connectors}
    queues = {*known.queues, *(queue.id for queue in publication.queues)}
    return KnownNames(workflows, {**_parts_of(known.connectors), **connectors}, queues)


def _parts_of(known: Mapping[str, Collection[Part]] | Collection[str]) -> dict[str, Collection[Part]]:
    return dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, ())
