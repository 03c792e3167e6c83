#!/usr/bin/env bash
# The bundled default from its recipe: three seeds, and the mean of their weights as an adapter. About 75 minutes on 2 CPU cores.
# DATA is the folder of training sets; OUT takes the place of inbedder/models/mini.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:?usage: scripts/make_mini.sh DATA [OUT]}
for seed in 0 1 2; do
    [ -f "runs/mini-$seed/README.md" ] || inbedder finetune finetune/recipes/mini.yaml --set data.folder="$data" \
        --set training.seed=$seed --set training.output="runs/mini-$seed"
done
python scripts/pack_adapter.py runs/mini-{0,1,2} "${2:-runs/mini-adapter}" --rank 96
