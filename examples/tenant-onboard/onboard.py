import api

from anthares44.automation import step, workflow


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
