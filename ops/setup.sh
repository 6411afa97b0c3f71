#!/bin/sh
# Makes .venv out of the committed locks: every package by name, version and hash, then our two
# distributions in place. Writes nothing outside the clone and changes no setting of the user's.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

fits() { # exit 0 where "$1" is a Python this project is tested with
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo python3
}

python=$(choose_python)
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "set-up: needs Python 3.11, 3.12 or 3.13, and '$python' is: $("$python" --version 2>&1 || true)"
    say "        Install one of them, or name one: make setup PYTHON=/path/to/python3.12"
    exit 1
fi
fits "$python" || say "set-up: $("$python" --version) is newer than the versions tested here (3.11 to 3.13); trying."
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "set-up: '$python' has no venv module (some systems ship it as a package of its own)."
    say "        Debian and Ubuntu: apt install python$version-venv     then run make again."
    exit 1
fi

# A .venv that was moved, half made, or made by another Python is made anew; it holds nothing of the user's.
home=$(pwd -P)
if ! [ -x .venv/bin/python ] || [ "$(cat .venv/.home 2>/dev/null)" != "$home" ] ||
    ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    say "set-up: making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
    printf '%s\n' "$home" >.venv/.home
fi

# pip, with whatever index the user configured, brings uv; the wheel is checked against its hash.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
    --require-hashes -r requirements.uv.lock

# uv does not read pip's settings. Where the user told only pip about an index, uv is told the same.
settings() { .venv/bin/python -m pip config get "$1" 2>/dev/null || true; }
if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}${UV_INDEX:-}${UV_CONFIG_FILE:-}" ] &&
    ! [ -e "${XDG_CONFIG_HOME:-$HOME/.config}/uv/uv.toml" ] && ! [ -e /etc/uv/uv.toml ]; then
    index=${PIP_INDEX_URL:-$(settings global.index-url)}
    if [ -n "$index" ]; then
        UV_DEFAULT_INDEX=$index
        export UV_DEFAULT_INDEX
    fi
fi

export UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=.venv/.uv-cache UV_NO_PROGRESS=1
export VIRTUAL_ENV="$home/.venv"
say "set-up: installing the locked packages"
# "install" and not "sync": that would take our own two packages away for a moment, under running processes.
.venv/bin/uv pip install --quiet --require-hashes -r requirements.lock
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e ./sdk -e .
say "set-up: done"
