"""Storage of both kinds: a folder, and a bucket behind a server that speaks S3."""

import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import boto3
import pytest
from moto.server import ThreadedMotoServer

from processors.adapters.objects.storage import ObjectStorage, open_storage

BUCKET, KEY, SECRET = "bodies", "test", "s3cret"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield endpoint
    server.stop()


@pytest.fixture(params=["file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStorage:
    if request.param == "file":
        return open_storage(f"file://{quote(str(tmp_path / 'large bodies'))}")
    endpoint = request.getfixturevalue("s3_endpoint")
    return open_storage(f"s3://{BUCKET}/{tmp_path.name}", endpoint=endpoint, access_key=KEY, secret_key=SECRET)
