#!/bin/bash
#SBATCH --job-name=cafenet-run
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=cafenet-run-%j.log

# The supernet on all nodes, then the search and the final models on the first one. A requeued job goes on where it was,
# also with fewer or more nodes: train.examples_per_step keeps the steps as they are.
set -euo pipefail
: "${RECIPE:?the recipe, a file or a shipped name}" "${OUTPUT:?the run directory}" "${STORAGE:?postgresql://USER@HOST/DB}"
EXAMPLES_PER_STEP="${EXAMPLES_PER_STEP:-1024}"
FLAGS=(--output "$OUTPUT" --train.examples_per_step "$EXAMPLES_PER_STEP" --quiet)
FIRST="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"

srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${GPUS_PER_NODE:-8}" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-endpoint "$FIRST:29400" --rdzv-id "$SLURM_JOB_ID" \
    --module cafenet train "$RECIPE" "${FLAGS[@]}"
srun --nodes 1 --ntasks 1 cafenet run "$RECIPE" "${FLAGS[@]}" --storage "$STORAGE" --study "${STUDY:-cafenet}"
