#!/usr/bin/env bash
# Train the bundled model `small` stage by stage and pack it. Five hours on two idle CPU cores with bfloat16.
#     scripts/train/make_small.sh DATA
set -euo pipefail
cd "$(dirname "$0")/../.."
data=$1
finetune() { .venv/bin/inbedder finetune "$@" --set "data.folder=$data" --set training.resume=true; }
.venv/bin/inbedder models install small
finetune finetune/recipes/small.yaml --set training.output=runs/small-first
finetune finetune/recipes/small-second.yaml --set training.seed=1 --set training.output=runs/small-second
# Stage 3: more rows about feelings, which lost a little in stage 2.
finetune finetune/recipes/small-second.yaml --set training.seed=2 --set training.output=runs/small-third --set lora.init_adapter=runs/small-second \
    --set training.learning_rate=5.0e-4 --set training.max_steps=360 --set data.sources.8.cap=7000 --set data.sources.5.cap=7000 \
    --set data.sources.21.cap=1000 --set data.sources.23.cap=3600 --set data.sources.27.cap=1800
second_model=()
pack() {
    .venv/bin/python scripts/train/pack_adapter.py "$@" --base SmolLM2-135M-Instruct --set max_new_tokens=10 --set mask_length=null --set subtract_instruction=true "${second_model[@]}"
}
pack runs/small-third runs/small-undistilled
# Stages 4 and 5: the similarities of two teachers, mini and stage 3, with fewer questions about names.
distil() { finetune finetune/recipes/small-distilled.yaml "$@"; }
similarities=(--set objective.teacher_loss=similarities --set objective.token_weight=1 --set objective.question_vector_model=null --set data.sources.10.cap=1100 --set data.sources.15.cap=1210)
distil "${similarities[@]}" --set training.seed=3 --set training.output=runs/small-distilled-1 --set lora.init_adapter=runs/small-undistilled --set objective.teacher_weight=2 --set training.max_steps=230
distil "${similarities[@]}" --set training.seed=3 --set training.output=runs/small-distilled-2 --set lora.init_adapter=runs/small-distilled-1 --set objective.teacher_weight=4 --set training.learning_rate=3.0e-4
# Stage 6: the teachers' vectors, three seeds.
distil --set training.seed=3 --set training.output=runs/small-own-3 --set objective.token_weight=2
distil --set training.seed=4 --set training.output=runs/small-own-4
distil --set training.seed=5 --set training.output=runs/small-own-5
pack runs/small-own-3 runs/small-own-4 runs/small-own-5 runs/small-own
# Two parts of their mean and one part of stage 3, which keeps the answers. The packed model has mini as its second model.
second_model=(--set beside=mini --set base_encoder=all-MiniLM-L6-v2)
pack runs/small-own runs/small-own runs/small-undistilled inbedder/models/small
