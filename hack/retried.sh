# Sourced by scripts that fetch things.

# retried COMMAND... runs a command again, and once more half a minute later, where it fails: a network may be away for a moment,
# and another program may hold the lock of the package manager.
retried() {
    local pause
    for pause in 5 30; do
        "$@" && return
        echo "trying again in $pause s: $1 ${2:-}" >&2
        sleep "$pause"
    done
    "$@"
}
