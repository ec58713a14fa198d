# Steps that the scripts beside this one share; they set `manager`, --user or --system, and `service`.

# Shows a step's line, with a property of the service.
show() { echo "$1 $(systemctl "$manager" show --property "$2" --value "$service")"; }
# Waits for the words of a command, 20 s.
await() {
    for _ in $(seq 100); do
        [ "$(eval "$2" 2>/dev/null)" != "$1" ] || return 0
        sleep 0.2
    done
    echo "waited for $1: $2"
    systemctl "$manager" status "$service" || true
    exit 1
}
