"""The example of the README runs as printed."""

import re
from pathlib import Path
from typing import Any

from anthares44.automation.workflow import find_workflow
from tests.unit.sdk.lives import at, new_run, told

README = Path(__file__).parents[3] / "sdk/README.md"


class Api:
    class tenants:  # noqa: N801 - named as in the example
        @staticmethod
        def create(name: str, request_id: str) -> dict[str, str]:
            return {"id": name, "db_id": request_id}


def test_the_printed_example_runs():
    match = re.search(r"```python\n(.+?)```", README.read_text("utf-8"), re.DOTALL)
    assert match
    names: dict[str, Any] = {"api": Api}
    exec(compile(match[1], "README.md", "exec"), names)  # noqa: S102 - our own text
    found = find_workflow("tenant-onboard", "4")
    assert found is not None
    run = new_run(found.body)
    assert told(run.begin())[1] == ["step create-tenant 10 after 0"]
    fn = run.items["create-tenant"].fn
    assert fn is not None
    assert fn() == {"id": "n", "db_id": "key"}
    turn = run.deliver(1, "create-tenant", "succeeded", at=at(1), value='{"id":"t","db_id":"d"}')
    assert told(turn)[1] == ["step provision-db 120 after 1"]
    assert told(run.deliver(2, "provision-db", "succeeded", at=at(2), value="null"))[1] == ["sleep cooldown 30 after 2"]
    ended = run.deliver(3, "cooldown", "succeeded", at=at(33)).ended
    assert ended == {
        "status": "succeeded",
        "value": '{"tenant_id":"t","at":{"$datetime":"2026-11-29T20:00:33+00:00"}}',
    }
