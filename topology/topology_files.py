"""Reads a topology file: triggers, connectors and queues, as one list or under their own keys, and event types."""

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.errors import Refused
from topology.connectors import ConnectorSpec
from topology.event_types import EventTypeSpec
from topology.names import OPERATION_NAME, hint
from topology.parts import Parts, Source
from topology.problems import Problems, shown, validate
from topology.queues import DEFAULT_QUEUE, QueueSpec
from topology.references import Reference
from topology.triggers import ITEMS, LATER_TYPE, EventItem, ScheduleItem, TriggerSpec, WebhookItem
from topology.yaml_source import Document, Path

PREFIXES: Mapping[str, str] = {"triggers": "trg_", "connectors": "con_", "queues": "q_"}
EVENTS = "events"
SECTIONS = (*PREFIXES, EVENTS)


def read_topology_file(document: Document) -> Parts:
    """Every item that can be read, and the errors of those that cannot."""
    parts = Parts()
    for path, item, section in _items(document, parts):
        try:
            if section == EVENTS:
                _read_event_type(document, path, item, parts)
            else:
                _read_item(document, path, item, PREFIXES.get(section or ""), parts)
        except Problems as problems:
            parts.errors.extend(problems.errors)
    return parts


def _items(document: Document, parts: Parts) -> Iterator[tuple[Path, Any, str | None]]:
    value = document.value
    if isinstance(value, list):
        yield from (((index,), item, None) for index, item in enumerate(value))
    elif "id" in value:
        yield (), value, None
    else:
        for key, items in value.items():
            if key not in SECTIONS:
                found = f"`{key[:80]}` is not known here{hint(key, SECTIONS)}"
                parts.errors.append(Refused("E_SPEC_INVALID", found, document.key_place((key,))))
            elif isinstance(items, list):
                yield from (((key, index), item, key) for index, item in enumerate(items))
            elif items is not None:
                found = f"`{key}` must be a list, not {shown(items)}"
                parts.errors.append(Refused("E_SPEC_INVALID", found, document.place((key,))))


def _read_item(document: Document, path: Path, item: Any, prefix: str | None, parts: Parts) -> None:
    if not isinstance(item, dict):
        raise _problem(document, path, f"a trigger, connector or queue is a mapping, not {shown(item)}")
    name = item.get("id")
    if not isinstance(name, str):
        raise _problem(document, path, "an `id` is missing: `trg_...`, `con_...` or `q_...`")
    kind = next((known for known in PREFIXES.values() if name.startswith(known)), None)
    if kind is None or (prefix is not None and kind != prefix):
        wanted = f"`{prefix}`" if prefix else "`trg_`, `con_` or `q_`"
        raise _problem(document, (*path, "id"), f"the id `{name[:80]}` does not begin with {wanted}")
    if kind == "trg_":
        _read_trigger(document, path, item, parts)
    elif kind == "con_":
        _read_connector(document, path, item, parts)
    else:
        _read_queue(document, path, item, parts)


def _read_connector(document: Document, path: Path, item: Any, parts: Parts) -> None:
    connector = validate(ConnectorSpec, item, document, path)
    for name in connector.operations:
        if not OPERATION_NAME.fullmatch(name):  # no step could write it
            found = (
                f"`{name[:80]}` is not an operation's name: a letter a to z, then letters, digits, `-`, `_`; at most 63"
            )
            parts.errors.append(Refused("E_SPEC_INVALID", found, document.key_place((*path, "operations", name))))
    parts.declared.append((connector, document.place((*path, "id"))))


def _read_event_type(document: Document, path: Path, item: Any, parts: Parts) -> None:
    if not isinstance(item, dict):
        raise _problem(document, path, f"an event type is a mapping with `type` and a schema, not {shown(item)}")
    read = validate(EventTypeSpec, item, document, path)
    parts.declared.append((read, document.place((*path, "type"))))
    parts.sources[read.type] = Source(document, path)
    if read.limit is not None:
        found = f"{read.type}: its schema asks much of each value; data of at most {read.limit} bytes is taken"
        parts.warnings.append(found)


def _read_queue(document: Document, path: Path, item: Any, parts: Parts) -> None:
    queue = validate(QueueSpec, item, document, path)
    if queue.id == DEFAULT_QUEUE:
        found = f"`{DEFAULT_QUEUE}` is the project's own; declare another queue and name it in the workflow"
        raise _problem(document, (*path, "id"), found)
    parts.declared.append((queue, document.place((*path, "id"))))


def _read_trigger(document: Document, path: Path, item: Any, parts: Parts) -> None:
    kind = item.get("type")
    if kind == LATER_TYPE:
        raise _later(document, path, item)
    if kind not in ITEMS:
        near = hint(kind, ITEMS) if isinstance(kind, str) else f"; known are {', '.join(ITEMS)}"
        raise _problem(document, (*path, "type"), f"a trigger's `type` is not {shown(kind)}{near}")
    read = validate(ITEMS[kind], item, document, path)
    shape = read.model_dump(exclude={"deliver"}, exclude_none=True)
    if isinstance(read, EventItem | WebhookItem):
        shape |= read.deliver.flat()
    trigger = TriggerSpec.model_validate(shape)
    parts.declared.append((trigger, document.place((*path, "id"))))
    place = document.place((*path, "version" if read.version else "workflow"))
    parts.references.append(Reference("workflow", read.workflow, place, read.version))


def _later(document: Document, path: Path, item: Any) -> Problems:
    """All that is wrong with a schedule, and that it cannot be used yet: nobody mends it only to learn that."""
    unavailable = (
        f"triggers of type `{LATER_TYPE}` are not available in this version; event, webhook and manual are: "
        "let a cron of yours call `a44 automation run`, with a key made from the day or the hour"
    )
    problems = _problem(document, (*path, "type"), unavailable)
    try:
        validate(ScheduleItem, item, document, path)
    except Problems as faults:
        problems.errors[:0] = faults.errors
    return problems


def _problem(document: Document, path: Path, message: str) -> Problems:
    return Problems([Refused("E_SPEC_INVALID", message, document.place(path))])
