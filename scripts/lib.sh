# Shared by the scripts of this folder; sourced, never run.
# shellcheck shell=bash

# The checkout, whatever directory a script is called from.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

# What Python has compiled is kept, whatever the environment says: each process of tests, of which a run has some
# twenty, began with 40 s of compiling all tests, and each broker of a test with compiling the broker.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# apt_install REASON PACKAGE...: install Debian packages when that is possible, and say what to do when it is not.
apt_install() {
    local reason="$1"
    shift
    if [[ "$(id -u)" -ne 0 ]] || ! command -v apt-get >/dev/null; then
        fail "$reason: please install $* (on Debian: sudo apt-get install $*) and try again"
    fi
    say "$reason: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
    # The package lists of a fresh machine are empty or old.
    apt-get update -q >/dev/null || fail "apt-get update failed"
    apt-get install -y -q --no-install-recommends "$@" >/dev/null || fail "apt-get could not install $*"
}

# java_major: the major version of the JDK, nothing where there is none.
java_major() { command -v java >/dev/null && javac -version 2>&1 | sed -nE 's/^javac ([0-9]+).*/\1/p'; }

# need_java: a JDK, 17 or newer, and Maven, for Apache Kafka, Spark and the clients in Java.
need_java() {
    local packages=() major
    major="$(java_major || true)"
    [[ "${major:-0}" -ge 17 ]] || packages+=(default-jdk-headless)
    command -v mvn >/dev/null || packages+=(maven)
    if [[ ${#packages[@]} -gt 0 ]]; then
        apt_install "Apache Kafka and Spark run on Java" "${packages[@]}"
    fi
}

# need_compiler: a C compiler with the C library's headers, for the benchmark's load generators.
need_compiler() {
    if ! printf '#include <stdio.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1; then
        apt_install "the benchmark's load generators are compiled" gcc libc6-dev
    fi
}

# need_shells: the shells in which the completion of commands is tried.
need_shells() {
    local packages=() name
    for name in zsh fish; do
        command -v "$name" >/dev/null || packages+=("$name")
    done
    if [[ ${#packages[@]} -gt 0 ]]; then
        apt_install "completion is tried in each shell" "${packages[@]}"
    fi
}

# need_postgres: PostgreSQL's server, for the tour, the lake and Debezium; its own programs start it, so that no service
# of the system is needed.
need_postgres() {
    if ! command -v initdb >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
        apt_install "the tour, the lake and Debezium have a PostgreSQL of their own" postgresql
    fi
}

# kafka_jars_if_asked_for ARGUMENT...: what a command with these arguments needs to start Apache Kafka.
kafka_jars_if_asked_for() {
    if [[ " $* " == *" --apache "* || " $* " == *" --report"* ]]; then
        "$root/scripts/kafka-jars"
    fi
}

# copy_jars POM DIRECTORY [OPTION...]: resolve a pom's jars with Maven and its options into a directory, all or nothing, once.
copy_jars() {
    local pom="$1" directory="$2" stamp partial
    shift 2
    need_java
    stamp="$directory/.pom.sha256"
    if [[ -f "$stamp" ]] && [[ "$(<"$stamp")" == "$(checksum "$pom")" ]]; then
        return
    fi
    say "resolving $pom with Maven"
    partial="$directory.partial"
    rm -rf "$partial"
    mvn -B -q -ntp -Dstyle.color=never -f "$pom" "$@" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$partial" >&2 ||
        fail "Maven could not resolve $pom"
    checksum "$pom" >"$partial/.pom.sha256"
    rm -rf "$directory"
    mv "$partial" "$directory"
}

# need_uv: the program that installs and locks; pip brings it, by hash.
need_uv() {
    "$venv/bin/python" -c "import uv" 2>/dev/null ||
        "$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$root/requirements/uv.txt"
}

# install ARGUMENT...: `uv pip install` into the environment, which takes a tenth of pip's time; a lock comes by hash.
# uv reads no configuration of pip's: an index of the machine's own is handed on.
install() {
    local index
    need_uv
    index="${PIP_INDEX_URL:-$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}"
    UV_SYSTEM_CERTS=1 ${index:+env UV_DEFAULT_INDEX="$index"} \
        "$venv/bin/python" -m uv pip install -q --python "$venv/bin/python" "$@"
}

# install_tools MODULE: what scripts/audit runs, by hash, unless the environment has that module.
install_tools() {
    "$venv/bin/python" -c "import $1" 2>/dev/null || install --require-hashes -r "$root/requirements/tools.txt"
}

# checksum FILE...: one hash over the contents of all the files.
checksum() { cat -- "$@" | sha256sum | cut -d ' ' -f 1; }
