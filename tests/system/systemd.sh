# Runs the user's units of vispark by a real `systemd --user`, with namespaces for processes and mounts of its own:
# sh systemd.sh UNITS HOME GPU-WORKER. What a step shows is a line, which begins with the step's name.
set -eu
units=$1 program=$3
export HOME=$2 XDG_RUNTIME_DIR=/run/user/0
unset VISPARK_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS

mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" "$HOME/.config/systemd/user"
chmod 700 "$XDG_RUNTIME_DIR"
cp "$units"/* "$HOME/.config/systemd/user/"

/usr/lib/systemd/systemd --user --unit=basic.target >"$HOME/systemd.log" 2>&1 &
pid=$!

manager=--user service=gpu-worker.service
. "$(dirname "$0")/systemd_steps.sh"

await running "systemctl --user is-system-running"
systemctl --user --quiet enable --now gpu-worker.socket
show before ActiveState
echo "status $("$program" status | head -1)"
show started StatusText
kill -KILL "$(systemctl --user show --property MainPID --value gpu-worker.service)"
await 1 "systemctl --user show --property NRestarts --value gpu-worker.service"
await active "systemctl --user is-active gpu-worker.service"
echo "restarted $("$program" status | head -1)"
systemctl --user --quiet stop gpu-worker.service 2>/dev/null
show stopped ActiveState
echo "again $("$program" status | head -1)"
systemctl --user --quiet disable --now gpu-worker.socket gpu-worker.service
echo "left $(ls "$XDG_RUNTIME_DIR/vispark")"
kill "$pid"
wait "$pid" || true
