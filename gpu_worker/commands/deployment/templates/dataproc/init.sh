#!/usr/bin/env bash
# Initialization action of Dataproc, which runs on each node as root.
#   gcloud dataproc clusters create NAME --initialization-actions gs://BUCKET/init.sh \
#       --metadata vispark-wheel=gs://BUCKET/vispark-VERSION-py3-none-any.whl --max-idle 1h ...
set -euo pipefail

attribute() {
    /usr/share/google/get_metadata_value "attributes/$1" || true
}

wheel=$(attribute vispark-wheel)
extras=$(attribute vispark-extras)
case $wheel in
gs://*.whl) ;;
*)
    echo "init.sh: the metadata vispark-wheel is '$wheel'; it has to be gs://BUCKET/vispark-VERSION-py3-none-any.whl" >&2
    exit 2
    ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
gsutil cp "$wheel" "$folder/"
python=$(command -v /opt/conda/default/bin/python || command -v python3.11 || command -v python3) || {
    echo "init.sh: there is no Python on this node; vispark needs 3.11 or newer" >&2
    exit 1
}
"$python" -m pip install --no-cache-dir --no-deps "$folder/$(basename "$wheel")"
"$python" -m pip install --no-cache-dir 'msgpack>=1.0.8' 'click>=8.1' 'rich>=13' 'platformdirs>=4' \
    'cryptography>=42' 'cuda-core[cu13]' 'cuda-bindings[all]==13.*'
# Of extras, too, what they need alone: the wheel with its extras would bring a PySpark beside that of Spark.
needed=$("$python" - "$extras" <<"END"
import sys
from importlib.metadata import metadata

from pip._vendor.packaging.requirements import Requirement

vispark = metadata("vispark")
known = vispark.get_all("Provides-Extra")
for extra in filter(None, sys.argv[1].split(",")):
    if extra not in known:
        sys.exit(f"init.sh: the metadata vispark-extras names {extra}; there are {known}")
    for each in map(Requirement, vispark.get_all("Requires-Dist")):
        if each.marker and each.marker.evaluate({"extra": extra}):
            each.marker = None
            print(each)
END
)
[ -z "$needed" ] || xargs -d "\n" "$python" -m pip install --no-cache-dir <<<"$needed"
"$python" -m gpu_worker gpus
