#!/usr/bin/env bash
# An OpenRLHF launch on eight GPUs as its users have it, with the two changes that make it train on steps.
# It was not run where agentr1 is tested, for there is no GPU; OpenRLHF's own parser reads its options in the tests.
set -euo pipefail

export AGENTR1_OPENRLHF_RUN=${AGENTR1_OPENRLHF_RUN:-examples/gpu/openrlhf_existing_script.yaml} # new: what an episode is

# The module was openrlhf.cli.train_ppo_ray. All options stay.
python -m agentr1_backend_openrlhf.train \
   --actor.model_name_or_path Qwen/Qwen3-4B-Thinking-2507 \
   --data.prompt_dataset zhuzilin/dapo-math-17k \
   --data.input_key prompt \
   --data.label_key label \
   --data.max_len 4096 \
   --rollout.batch_size 128 \
   --rollout.n_samples_per_prompt 8 \
   --rollout.max_new_tokens 512 \
   --rollout.temperature 1.0 \
   --rollout.top_p 1.0 \
   --rollout.micro_batch_size 4 \
   --train.batch_size 1024 \
   --train.micro_batch_size 2 \
   --train.colocate_all \
   --train.num_episodes 1 \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 8 \
   --actor.adam.lr 5e-7 \
   --actor.gradient_checkpointing_enable \
   --actor.eps_clip_low_high 0.2 0.27 \
   --vllm.num_engines 4 \
   --vllm.tensor_parallel_size 2 \
   --vllm.gpu_memory_utilization 0.6 \
   --vllm.enable_sleep \
   --vllm.sync_backend nccl \
   --ds.enable_sleep \
   --ds.zero_stage 3 \
   --ds.param_dtype bf16 \
   --algo.advantage.estimator group_norm \
   --algo.advantage.is_correction_level token \
   --algo.kl.init_coef 0 \
   --ckpt.output_dir ./checkpoint \
   --ckpt.path ./checkpoint/ckpt \
   --ckpt.save_steps 20 \
   --ckpt.save_hf
