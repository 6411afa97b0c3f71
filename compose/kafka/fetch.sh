#!/bin/sh
# Brings one Apache Kafka server as Maven artifacts into target/libs: no Docker, nothing installed.
# Uses the user's Maven settings as they are. A second run does nothing.
set -eu
cd "$(dirname "$0")"
done_mark=target/libs/.fetched
[ "$done_mark" -nt pom.xml ] && exit 0

for program in java mvn; do
    command -v "$program" >/dev/null 2>&1 && continue
    echo "Apache Kafka for tests needs Java 17 and Maven, and there is no '$program' in PATH." >&2
    echo "(make test runs the whole suite without either, on the embedded broker.)" >&2
    exit 1
done

echo "fetching Apache Kafka into compose/kafka/target/libs" >&2
rm -rf target
mkdir -p target
if ! mvn --batch-mode --quiet -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory=target/libs >target/fetch.log 2>&1; then
    cat target/fetch.log >&2
    exit 1
fi
touch "$done_mark"
