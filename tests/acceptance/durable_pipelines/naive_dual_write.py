"""What not to do: the database first, the broker second, and nothing that ties them. Dies where a test wants it to."""

import os
import sys

import psycopg
from confluent_kafka import Producer

from processors.ports import crash_points


def naive_dual_write(database: psycopg.Connection, producer: Producer, document: str) -> None:
    with database.transaction():
        database.execute("insert into naive_results values (%s)", (document,))
    crash_points.reach("after_db_write_before_publish")
    producer.produce("relayops.naive", value=document)
    producer.flush(30)


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as opened:
        naive_dual_write(opened, Producer({"bootstrap.servers": os.environ["KAFKA"]}), sys.argv[1])
