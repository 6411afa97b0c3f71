"""A newcomer's way: a scaffolded folder, published and run on the whole service, each run seen to its end."""

import json
from pathlib import Path

import psycopg

from tests.acceptance.cli.installation import PROJECT, installation

ROLES = "gateway,relay,ingest,scheduler,executor"
DATABASE_SECRET = f"A44_SECRET_{PROJECT}_sec_database".upper()


async def test_both_scaffolded_workflows_run_to_their_end(
    database: str, project_dsn: str, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {
        "A44_POSTGRES_DSN": database,
        "A44_KAFKA_BOOTSTRAP": kafka_bootstrap,
        "A44_TOPIC_PREFIX": topic_prefix,
        "A44_PARTITIONS": "2",
        DATABASE_SECRET: project_dsn,
    }
    async with installation(settings, tmp_path, ROLES) as a44:
        assert (await a44("init", ".")).code == 0
        published = await a44("automation", "publish", "flows")
        assert published.code == 0, published.err

        welcome = await a44(
            *("automation", "run", "wf_welcome", "--input", '{"name":"Ana","email":"ana@example.com"}'),
            *("--idempotency-key", "welcome:ana@example.com", "--wait", "30", "--json"),
        )
        assert welcome.code == 0, welcome.err + welcome.out
        assert welcome.document["result"]["receipt"]["characters"] == len("Welcome, Ana!")

        sent = await a44(
            *("automation", "webhook", "send", "--trigger", "trg_order_paid", "--file", "events/order-paid.json"),
            *("--idempotency-key", "order:ord_991:paid:v1", "--repeat", "2", "--json"),
        )
        answers = [json.loads(line) for line in sent.out.splitlines()]
        assert [answer["status"] for answer in answers] == ["created", "deduplicated"]
        run_id = answers[0]["run_id"]

        followed = await a44("automation", "logs", run_id, "--follow")
        assert followed.code == 0, followed.out + followed.err
        assert "keep-order" in followed.out

        listed = await a44("automation", "runs", "--state", "succeeded")
        assert listed.out.startswith("2 runs")
        async with await psycopg.AsyncConnection.connect(project_dsn) as connection:
            rows = await (await connection.execute("select order_id, amount_cents from orders")).fetchall()
        assert rows == [("ord_991", 12900)]
