#!/bin/sh
# GPU discovery script for Spark: spark.{worker,executor,driver}.resource.gpu.discoveryScript. `gpu-worker gpus --script`
# prints its path. It prints one line of JSON, with the addresses of the GPUs that Spark may hand out on this machine:
#
#   CUDA_VISIBLE_DEVICES is set:  its entries, as they are, up to the first that is no GPU (as CUDA reads it)
#   else, by nvidia-smi:          the number of each GPU; of a GPU in MIG mode the UUIDs of its instances instead
#   neither:                      none
#
# It needs nothing but a POSIX shell and, for the second case, nvidia-smi and awk.
set -u

addresses=
add() {
    addresses="$addresses${addresses:+, }\"$1\""
}

# A driver that hangs would keep Spark's worker from starting, without a word.
limited() {
    if command -v timeout >/dev/null 2>&1; then timeout -k 5 60 "$@"; else "$@"; fi
}

if [ "${CUDA_VISIBLE_DEVICES+set}" = set ]; then
    rest=$CUDA_VISIBLE_DEVICES,
    while [ -n "$rest" ]; do
        entry=$(printf '%s' "${rest%%,*}" | tr -d ' \t')
        rest=${rest#*,}
        case $entry in
            '' | *[!A-Za-z0-9/-]* | -* | NoDevFiles) break ;;
            *) add "$entry" ;;
        esac
    done
elif command -v nvidia-smi >/dev/null 2>&1; then
    # "GPU 0: NVIDIA H200 (UUID: GPU-...)", and under a GPU in MIG mode "  MIG 1g.18gb  Device 0: (UUID: MIG-...)".
    listed=$(limited nvidia-smi -L)
    status=$?
    case $status in
        0) ;;
        124 | 137) echo "gpus.sh: nvidia-smi -L has not answered within 60 s" >&2; exit 1 ;;
        *) echo "gpus.sh: nvidia-smi -L failed: $listed" >&2; exit 1 ;;
    esac
    for entry in $(printf '%s\n' "$listed" | awk '
            /^GPU [0-9]+:/ { if (number != "") print number; number = $2; sub(":", "", number) }
            /^ +MIG .*UUID: / { number = ""; sub(/.*UUID: /, ""); sub(/\).*/, ""); print }
            END { if (number != "") print number }'); do
        add "$entry"
    done
fi
printf '{"name": "gpu", "addresses": [%s]}\n' "$addresses"
