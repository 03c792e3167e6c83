#!/usr/bin/env bash
# Train an INSTRUCTOR-style model on the bundled base with batches of random rows, of one task, and in Data-CUBE's order, on the same
# rows, and evaluate it. The untrained models of the results are measured once and kept.
#     scripts/train/train_instructor.sh DATA
# DATA holds the folders qa/ and eval/ of finetune/recipes/instructor/instructor-minilm.yaml. Models go to runs/instructor, results to
# finetune/results. A rerun keeps finished models.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=$1
runs=runs/instructor
mkdir -p $runs/tasks
[ -e DATA ] || ln -s "$data/eval" DATA

# Classification tasks from labelled texts: one task per question.
python - "$data/qa/open" $runs/tasks <<'PYTHON'
import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path

source, target = map(Path, sys.argv[1:])
for name in ("bitext_customer_support", "goemotions", "sgd_intents"):
    tasks = defaultdict(list)
    for line in gzip.open(source / f"{name}.jsonl.gz", "rt", encoding="utf-8"):
        row = json.loads(line)
        if row["split"] == "train" and len(tasks[row["instruction"]]) < 1000:
            tasks[row["instruction"]].append({"input": row["input"], "output": row["output"]})
    for number, (question, rows) in enumerate(tasks.items()):
        content = {"Definition": question, "Instances": rows}
        (target / f"{name}-{number}.json").write_text(json.dumps(content), encoding="utf-8")
PYTHON
[ -e $runs/mined.jsonl ] || python -m inbedder_finetune.mining $runs/tasks "$data/eval/instruction_induction" --most 100 -o $runs/mined.jsonl
ln -sfn "$(realpath "$data/qa")" $runs/qa
ln -sfn "$(realpath "$data/eval")" $runs/eval

models=()
for order in task data-cube random; do
    for seed in 0 1 2; do
        output=$runs/$order-$seed
        changes=(--set data.folder=$runs --set training.output=$output --set training.seed=$seed)
        [[ $order != random ]] || changes+=(--set batches=random)
        [[ $order != data-cube ]] || changes+=(--set 'curriculum={}')
        [ -e $output/modules.json ] || inbedder finetune instructor-minilm "${changes[@]}"
        models+=(--model $output)
    done
done

tasks=()
for task in stsb IntentEmotion stackoverflow_titles triplets; do tasks+=(--task $task); done
inbedder evaluate "${models[@]}" --data DATA --limit 300 --seeds 1 "${tasks[@]}" -o $runs/measured.json
python scripts/train/instructor_results.py $runs/measured.json finetune/results/instructor.json
