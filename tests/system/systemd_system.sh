# Runs the system's units of vispark by a real systemd as process 1 of namespaces of its own:
# sh systemd_system.sh UNITS GPU-WORKER USER FOLDER... What a step shows is a line, which begins with the step's name;
# the last one has the status. That systemd knows no units of the machine and sets nothing of its kernel. The user sees
# the folders, also where they are root's, and root takes the user's place where that is not enough.
set -eu
units=$1 program=$2 user=$3 here=/etc/systemd/system
unset VISPARK_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR
export SYSTEMD_UNIT_PATH=$here

if [ "$$" = 1 ]; then
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs "$here"
    mount --bind /proc/sys /proc/sys
    mount -o remount,bind,ro /proc/sys
    shift 3
    for folder; do
        mkdir -p "/run/folders$folder"
        mount --bind "$folder" "/run/folders$folder"
    done
    mount -t tmpfs -o mode=755 tmpfs /root
    for folder; do
        mkdir -p "$folder"
        mount --bind "/run/folders$folder" "$folder"
    done
    runuser -u "$user" -- "$program" --help >/dev/null 2>&1 || user=root
    cp "$units"/gpu-worker@.* "$here"
    # What units depend on by themselves, with nothing in it.
    for name in sysinit basic sockets shutdown; do
        printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$name" >"$here/$name.target"
    done
    sh "$0" "$units" "$program" "$user" &
    exec env container=vispark /usr/lib/systemd/systemd --system --unit=basic.target >/dev/null 2>&1
fi

trap 'echo "end $?"' EXIT
manager=--system service=gpu-worker@$user.service runtime=/run/vispark/$user
. "$(dirname "$0")/systemd_steps.sh"
as_user() { runuser -u "$user" -- env "VISPARK_RUNTIME_DIR=$runtime" "$@"; }

await running "systemctl is-system-running"
systemctl --quiet enable --now "gpu-worker@$user.socket"
show before ActiveState
echo "directory $(stat --format '%U %a' "$runtime")"
echo "status $(as_user "$program" status | head -1)"
await active "systemctl is-active $service"
show started StatusText
first=$(systemctl show --property MainPID --value "$service")
echo "owner $(stat --format %U "/proc/$first")"
kill -KILL "$first"
await 1 "systemctl show --property NRestarts --value $service"
await active "systemctl is-active $service"
echo "restarted $(as_user "$program" status | head -1)"
systemctl --quiet stop "$service" 2>/dev/null
show stopped ActiveState
echo "again $(as_user "$program" status | head -1)"
systemctl --quiet disable --now "gpu-worker@$user.socket" "$service"
echo "left $(ls "$runtime")"
echo "user $user"
