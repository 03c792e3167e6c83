#!/usr/bin/env bash
# Train the bundled decoder stretch by stretch and pack it: scripts/train/make_small.sh DATA-FOLDER   (five hours on two quiet cores with bfloat16)
set -euo pipefail
cd "$(dirname "$0")/../.."
data=$1
finetune() { .venv/bin/inbedder finetune "$@" --set "data.folder=$data" --set training.resume=true; }
.venv/bin/inbedder models install small
finetune finetune/recipes/small.yaml --set training.output=runs/small-first
finetune finetune/recipes/small-second.yaml --set training.seed=1 --set training.output=runs/small-second
# more about feelings, which the second stretch lost a little of
finetune finetune/recipes/small-second.yaml --set training.seed=2 --set training.output=runs/small-third --set lora.start=runs/small-second \
    --set training.learning_rate=5.0e-4 --set training.max_steps=360 --set data.sources.8.cap=7000 --set data.sources.5.cap=7000 \
    --set data.sources.21.cap=1000 --set data.sources.23.cap=3600 --set data.sources.27.cap=1800
beside=()
pack() {
    .venv/bin/python scripts/train/pack_adapter.py "$@" --base SmolLM2-135M-Instruct --set max_new_tokens=10 --set mask_length=null --set subtract_instruction=true "${beside[@]}"
}
pack runs/small-third runs/small-untaught
# under two teachers, mini and itself: first how vectors lie to each other, with fewer questions about names
taught() { finetune finetune/recipes/small-taught.yaml "$@"; }
alike=(--set objective.teacher_loss=similarities --set objective.token_weight=1 --set objective.subtract=null --set data.sources.10.cap=1100 --set data.sources.15.cap=1210)
taught "${alike[@]}" --set training.seed=3 --set training.output=runs/small-taught-1 --set lora.start=runs/small-untaught --set objective.teacher_weight=2 --set training.max_steps=230
taught "${alike[@]}" --set training.seed=3 --set training.output=runs/small-taught-2 --set lora.start=runs/small-taught-1 --set objective.teacher_weight=4 --set training.learning_rate=3.0e-4
# then the teachers' own vectors, three seeds
taught --set training.seed=3 --set training.output=runs/small-own-3 --set objective.token_weight=2
taught --set training.seed=4 --set training.output=runs/small-own-4
taught --set training.seed=5 --set training.output=runs/small-own-5
pack runs/small-own-3 runs/small-own-4 runs/small-own-5 runs/small-own --rank 64
# two parts of their mean, one of what they began from, which keeps the words; mini stands beside what ships
beside=(--set beside=mini --set base_encoder=all-MiniLM-L6-v2)
pack runs/small-own runs/small-own runs/small-untaught inbedder/models/small --rank 64
