#!/bin/sh
# Puts the peer engines below .a44/peers: a venv for their Python packages, a folder for Restate's server.
# Without npm Restate is left out. Nothing of it reaches the service's own venv.
set -eu
cd "$(dirname "$0")/../.."
target=.a44/peers

say() { printf '%s\n' "$*" >&2; }

say "peers: installing DBOS, Temporal and Restate's SDK"
[ -x "$target/venv/bin/python" ] || .venv/bin/python -m venv "$target/venv"
"$target/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
if command -v npm >/dev/null; then
    say "peers: installing Restate's server"
    npm install --silent --no-fund --no-audit --prefix "$target/npm" @restatedev/restate-server@1.7.12
else
    say "peers: no npm here, so Restate's server is left out"
fi
touch "$target/.installed"
