"""Python workflow files: read from their syntax tree, refused at their places, never run."""

import textwrap
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Place, Refused
from topology.publication import Publication, read_files

GUIDE = """\
from anthares44.automation import workflow, step

@workflow("tenant-onboard", version=4)
async def onboard(ctx, input):
    tenant = await step.run(
        "create-tenant", timeout="10s",
        fn=lambda: api.tenants.create(name=input["name"],
                                      request_id=ctx.idempotency_key),
    )

    await step.run(
        "provision-db", timeout="120s",
        retry={"max": 4, "strategy": "exponential-jitter"},
        compensate=lambda: api.databases.drop(tenant["db_id"]),
        fn=lambda: api.databases.create(tenant_id=tenant["id"]),
    )

    await step.sleep("cooldown", "30s")
    return {"tenant_id": tenant["id"], "at": ctx.now()}
"""
HEAD = "import asyncio\nfrom anthares44.automation import workflow, step\n"


def publish(source: str, *, dev: bool = False) -> Publication:
    return read_files({"flows/f.py": source}, dev=dev)


def body(*lines: str, decorator: str = '@workflow("w", version=1)') -> str:
    inner = textwrap.indent("\n".join(lines), "    ")
    return f"{HEAD}{decorator}\nasync def w(ctx, input):\n{inner}\n"


def listed(source: str) -> list[tuple[str, int, int, str]]:
    with pytest.raises(Refused) as caught:
        publish(source)
    found = caught.value.details["errors"]
    assert isinstance(found, list)
    return [(item["code"], item["line"], item["column"], item["message"]) for item in found]


def only_error(source: str) -> tuple[str, int, int, str]:
    found = listed(source)
    assert len(found) == 1, found
    return found[0]


def test_the_guides_example_loads_as_printed() -> None:
    publication = publish(GUIDE)
    (spec,) = publication.workflows
    assert (spec.name, spec.workflow_id, spec.version, spec.label, spec.kind, spec.entry) == (
        "tenant-onboard",
        "wf_tenant_onboard",
        4,
        "4",
        "code",
        "f.py",
    )
    assert (spec.queue_id, spec.triggers, spec.steps) == ("q_default", [], [])
    (bundle,) = publication.bundles
    assert spec.bundle_digest == bundle.digest
    assert bundle.files == {"f.py": GUIDE}
    (warning,) = publication.warnings
    assert "`compensate` is kept, and does not run in this version" in warning


def test_the_decorator_may_carry_trigger_concurrency_and_queue() -> None:
    decorator = (
        '@workflow("x", version=1, description="Does x", trigger={"event": "a.b", "filter": "data.n > 1"}, '
        'concurrency={"max": 5, "partition_key": "{{ input.k }}"})'
    )
    publication = publish(body("pass", decorator=decorator), dev=True)
    (spec,) = publication.workflows
    assert (spec.label, spec.queue_id, spec.description) == ("1-dev", "q_x", "Does x")
    assert spec.lane_of({"input": {"k": "v"}}) == "v"
    assert publication.queues[0].max_concurrency == 5
    (trigger,) = publication.triggers
    assert (trigger.id, trigger.event, trigger.filter, trigger.version) == ("trg_x_event", "a.b", "data.n > 1", 1)
    short = publish(body("pass", decorator='@workflow("x", version=1, trigger="a.b", queue="q_slow")'))
    assert (short.triggers[0].event, short.workflows[0].queue_id) == ("a.b", "q_slow")
    assert short.references[0].place == Place("flows/f.py", 3, 48)


def test_the_decorator_may_carry_a_deadline() -> None:
    (spec,) = publish(body("pass", decorator='@workflow("x", version=1, deadline="30m")')).workflows
    assert spec.deadline == 1800.0


@pytest.mark.parametrize(
    "head",
    [
        "from anthares44.automation import workflow as wf, step as s\n",
        "import anthares44.automation as a\nwf, s = None, None\n",
        "from anthares44 import automation\n",
        "import anthares44.automation\n",
    ],
)
def test_the_sdk_is_known_under_any_name(head: str) -> None:
    prefix = {
        "from anthares44.automation": ("wf", "s"),
        "import anthares44.automation as": ("a.workflow", "a.step"),
        "from anthares44 import": ("automation.workflow", "automation.step"),
        "import anthares44.automation\n": ("anthares44.automation.workflow", "anthares44.automation.step"),
    }
    decorator, step = next(names for start, names in prefix.items() if head.startswith(start))
    source = f'{head}@{decorator}("w", version=1)\nasync def w(ctx, input):\n    await {step}.run("a", fn=f)\n'
    assert only_error(source)[0] == "E_STEP_TIMEOUT_MISSING"


@pytest.mark.parametrize(
    ("decorator", "column", "says"),
    [
        ("@workflow", 2, "name and the version"),
        ('@workflow("w")', 2, "`version` is missing"),
        ('@workflow("w", 1)', 16, "`version=1`"),
        ('@workflow("w", version="1")', 24, "a whole number"),
        ('@workflow("w", version=True)', 24, "a whole number"),
        ('@workflow("w", version=0)', 24, "not `0`"),
        ("@workflow(NAME, version=1)", 11, "written out"),
        ('@workflow(f"{x}", version=1)', 11, "written out"),
        ('@workflow("w", version=V)', 24, "written out"),
        ('@workflow("W W", version=1)', 11, "a workflow name"),
        ('@workflow("w", version=1, **options)', 29, "written out"),
        ('@workflow("w", version=1, trigers={})', 35, "`trigger`?"),
        ('@workflow("w", version=1, deadline="0s")', 36, "above 0"),
        ('@workflow("w", version=1, deadline=LATER)', 36, "written out"),
        ('@workflow("w", version=1, trigger={"event": E})', 35, "written out"),
        ('@workflow("w", version=1, trigger={"evnt": "a"})', 36, "`event`?"),
        ('@workflow("w", version=1, trigger={})', 35, "`event`"),
        ('@workflow("w", version=1, concurrency={"max": 0})', 47, "not `0`"),
        ('@workflow("w", version=1, concurrency={"max": 1}, queue="q_a")', 57, "keep one"),
        ('@workflow("w", version=1, concurrency={"max": 1, "max": 2})', 39, "written out"),
    ],
)
def test_what_the_decorator_declares_must_be_written_out(decorator: str, column: int, says: str) -> None:
    code, line, at, message = only_error(body("pass", decorator=decorator))
    assert (code, line, at) == ("E_SPEC_INVALID", 3, column), message
    assert says in message


def test_a_workflow_is_an_async_function_at_the_top_level() -> None:
    assert "async def" in only_error(f'{HEAD}@workflow("w", version=1)\ndef w(ctx, input):\n    pass\n')[3]
    nested = f'{HEAD}class A:\n    @workflow("w", version=1)\n    async def w(ctx, input):\n        pass\n'
    assert "top level" in only_error(nested)[3]


@pytest.mark.parametrize(
    ("line", "code", "column", "says"),
    [
        ('await step.run("a", fn=f)', "E_STEP_TIMEOUT_MISSING", 11, 'timeout="15s"'),
        ("await step.run(name, fn=f)", "E_STEP_TIMEOUT_MISSING", 11, "this step"),
        ('await step.run("a", timeout=None, fn=f)', "E_STEP_TIMEOUT_MISSING", 33, "`a`"),
        ('await step.run("a", timeout="soon", fn=f)', "E_SPEC_INVALID", 33, "`250ms`"),
        ('await step.run("a", timeout=0, fn=f)', "E_SPEC_INVALID", 33, "above 0"),
        ('await step.run("a", timeout=-1, fn=f)', "E_SPEC_INVALID", 33, "above 0"),
        ('await step.run("~a", timeout=1, fn=f)', "E_SPEC_INVALID", 20, "`~`"),
        ('await step.run("", timeout=1, fn=f)', "E_SPEC_INVALID", 20, "printable"),
        ("await step.run(7, timeout=1, fn=f)", "E_SPEC_INVALID", 20, "printable"),
        ('await step.run(b"x", timeout=1, fn=f)', "E_SPEC_INVALID", 20, "printable"),
        ('await step.run("a", timeout=1, retry={"tries": 1}, fn=f)', "E_SPEC_INVALID", 43, "`tries`"),
        ('await step.run("a", timeout=1, retry={"max": 0}, fn=f)', "E_SPEC_INVALID", 50, "not `0`"),
        ('await step.run("a", timeout=1, retry={"strategy": "fixed"}, fn=f)', "E_SPEC_INVALID", 55, "exponential"),
        ('await step.run("a", timeout=1, retry={"base": "x"}, fn=f)', "E_SPEC_INVALID", 51, "length of time"),
        ('await step.run("a", timeout=1, retry=3, fn=f)', "E_SPEC_INVALID", 42, "a mapping"),
        ('await step.sleep("a", "soon")', "E_SPEC_INVALID", 27, "length of time"),
        ('é = await step.run("a", timeout="soon", fn=f)', "E_SPEC_INVALID", 37, "`250ms`"),
    ],
)
def test_a_step_that_cannot_run_is_refused_at_its_place(line: str, code: str, column: int, says: str) -> None:
    seen, row, at, message = only_error(body(line))
    assert (seen, row, at) == (code, 5, column), message
    assert says in message


@pytest.mark.parametrize(
    "line",
    [
        "await step.run(name, timeout=limit, fn=f)",
        'await step.run("a", **options)',
        "await step.run(*arguments, timeout=1)",
        'await step.run("a", timeout=1, retry=RETRY, fn=f)',
        'await step.run("a", timeout=1, retry={**RETRY}, fn=f)',
        'await step.run("a", timeout=1, retry=None, fn=f)',
        'await step.run("Create the tenant", timeout="1.5h", fn=f)',
        'await step.sleep("a", 0)',
        "await other.run('a')",
    ],
)
def test_what_cannot_be_read_is_left_to_the_run(line: str) -> None:
    assert publish(body(line)).workflows


def test_steps_of_helpers_and_of_local_modules_are_checked_too() -> None:
    files = {
        "flows/f.py": "import helper\n" + body("await helper.go()"),
        "flows/helper.py": 'from anthares44.automation import step\nasync def go():\n    await step.run("a", fn=f)\n',
    }
    with pytest.raises(Refused) as caught:
        read_files(files)
    assert (caught.value.code, caught.value.place) == ("E_STEP_TIMEOUT_MISSING", Place("flows/helper.py", 3, 11))


def test_as_completed_is_refused_in_a_body_only() -> None:
    code, line, column, message = only_error(body("for f in asyncio.as_completed([]):", "    await f"))
    assert (code, line, column) == ("E_SPEC_INVALID", 5, 14)
    assert "step.as_completed" in message
    inside = body(
        "async def work():", "    for f in asyncio.as_completed([]): await f", 'await step.run("a", timeout=1, fn=work)'
    )
    assert publish(inside).workflows


@pytest.mark.parametrize(
    ("lines", "argument", "name"),
    [
        (
            ["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=f, compensate=lambda: drop(t))'],
            "compensate",
            "t",
        ),
        (["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=lambda: make(t))'], "fn", "t"),
        (["for i, (a, b) in input:", '    await step.run(f"a{i}", timeout=1, fn=lambda: make(b))'], "fn", "b"),
        (
            [
                "for t in input:",
                '    made = await step.run(f"a{t}", timeout=1, fn=partial(make, t))',
                '    await step.run(f"b{t}", timeout=1, fn=f, compensate=lambda: drop(made["id"]))',
            ],
            "compensate",
            "made",
        ),
        (
            ["await asyncio.gather(*[", '    step.run(f"a{i}", timeout=1, fn=lambda: f(i)) for i in input', "])"],
            "fn",
            "i",
        ),
        (["n = 0", "while n < 3:", "    n += 1", '    await step.run(f"a{n}", timeout=1, fn=lambda: f(n))'], "fn", "n"),
        (
            [
                "for t in input:",
                "    async def one():",
                "        await step.run(t, timeout=1, fn=lambda: f(t))",
                "    await one()",
            ],
            "fn",
            "t",
        ),
    ],
)
def test_a_lambda_that_would_see_the_last_value_of_a_loop_is_refused(
    lines: list[str], argument: str, name: str
) -> None:
    code, _, _, message = only_error(body(*lines))
    assert code == "E_SPEC_INVALID"
    assert f"{argument}=lambda *, {name}={name}: ..." in message


@pytest.mark.parametrize(
    "lines",
    [
        ["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=lambda *, t=t: make(t))'],
        [
            "for t in input:",
            '    await step.run(f"a{t}", timeout=1, fn=lambda t=t: make(t), compensate=lambda t=t: drop(t))',
        ],
        ["for t in input:", "    pass", 'await step.run("a", timeout=1, fn=lambda: make(t))'],
        ["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=partial(make, t))'],
        ["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=lambda: make(input))'],
        ["for t in input:", '    await step.run(f"a{t}", timeout=1, fn=lambda: [t for t in input])'],
        [
            "for t in input:",
            "    async def one(t=t):",
            "        await step.run(t, timeout=1, fn=lambda: f(t))",
            "    await one()",
        ],
        [
            "async def one(t):",
            "    await step.run(t, timeout=1, fn=lambda: f(t))",
            "for t in input:",
            "    await one(t)",
        ],
        ["for t in input:", "    key = lambda: t"],
    ],
)
def test_a_lambda_that_binds_its_values_is_fine(lines: list[str]) -> None:
    assert publish(body(*lines)).workflows


def test_what_changes_on_replay_and_repeated_ids_are_warned_of() -> None:
    source = "import time, random\nfrom datetime import datetime as dt\n" + body(
        "now = time.time()",
        "then = dt.now()",
        'await step.run("a", timeout=1, fn=lambda: time.time())',
        'await step.run("a", timeout=1, fn=f)',
    )
    warnings = publish(source).warnings
    assert [warning.split(": ")[0] for warning in warnings] == [
        "flows/f.py:7:11",
        "flows/f.py:8:12",
        "flows/f.py:10:20",
    ]
    assert "`ctx.now()`" in warnings[0]
    assert "line 9" in warnings[2]


def test_a_compensation_that_will_not_run_is_warned_of_once_wherever_the_step_stands() -> None:
    shared = HEAD + 'def charge():\n    return step.run("c", timeout=1, fn=f, compensate=f)\n'
    entry = "import shared\n" + body("await shared.charge()")
    files = {"flows/shared.py": shared, "flows/a.py": entry, "flows/b.py": entry.replace('"w"', '"v"')}
    (warning,) = read_files(files).warnings
    assert warning.startswith("flows/shared.py:")
    assert "`compensate`" in warning
    assert publish(body('await step.run("c", timeout=1, fn=f, compensate=None)')).warnings == []


def test_a_module_that_must_be_installed_is_warned_of() -> None:
    (warning,) = publish("import json, requests\n" + body("pass")).warnings
    assert "`requests`" in warning


@pytest.mark.parametrize(
    "source",
    [
        "def broken(:\n",
        "x = '\n",
        "a\0b",
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 100_000 + "1",
        "x = " + "[" * 100_000,
        "x = '\ud800'",
        "x" * (1024 * 1024 + 1),
        "x = 1\n" * 1000,
        "x" + ".a" * 100_000,
    ],
)
def test_a_hostile_file_is_refused(source: str) -> None:
    with pytest.raises(Refused) as caught:
        publish(source)
    assert caught.value.code == "E_BUNDLE_INVALID"
    assert caught.value.place is not None


def test_a_syntax_error_has_its_place() -> None:
    with pytest.raises(Refused) as caught:
        publish(body("x = ]"))
    assert caught.value.place == Place("flows/f.py", 5, 9)


@given(st.text(max_size=80))
def test_any_body_is_read_or_refused(text: str) -> None:
    with suppress(Refused):
        publish(body("pass") + text)


def test_a_warning_of_the_parser_is_no_refusal() -> None:
    assert publish(body('x = "\\d"', "x is 'a'")).workflows


def test_reading_runs_nothing() -> None:
    publish("raise SystemExit\n" + body("raise SystemExit"))


def test_all_that_is_missing_is_listed() -> None:
    assert [message for _, _, _, message in listed(body("pass", decorator="@workflow()"))] == [
        "`name` is missing",
        "`version` is missing",
    ]


def test_a_fault_inside_an_expression_has_its_place() -> None:
    decorator = '@workflow("w", version=1, trigger={"event": "a", "filter": "data.x >"})'
    code, line, column, _ = only_error(body("pass", decorator=decorator))
    assert (code, line, column) == ("E_EXPRESSION", 3, 69)
