/*
 * Settings of the seven frameworks, against what was checked by hand (those of DDP also against
 * torch 2.15: buckets of the list as it assigns them).
 */
#include "plan_fixture.h"

static const char big[] = "paceline-plan 1\n"
			  "baseline 120500000\n"
			  "predicted 104250000\n"
			  "tensor head.weight 8388608\n"
			  "tensor head.bias 4096 estimated\n"
			  "tensor body.1.weight 4194304\n"
			  "tensor body.1.bias 4096\n"
			  "tensor body.0.weight 4194304\n"
			  "tensor body.0.bias 4100\n"
			  "fuse-tensors head.weight head.bias\n"
			  "fuse-tensors body.1.weight body.1.bias\n"
			  "fuse-tensors body.0.weight body.0.bias\n"
			  "partition-tensor head.weight 2\n"
			  "fuse-ops relu add x 0.9\n"
			  "order body.0.weight body.1.weight\n"
			  "accumulate 4\n"
			  "recompute body.0 body.1\n"
			  "precision bf16\n"
			  "algorithm hierarchical\n"
			  "bandwidth nic x 2\n";

static const char plain[] = "paceline-plan 1\n"
			    "tensor a.w 100\n"
			    "tensor b.w 200\n"
			    "fuse-tensors a.w b.w\n"
			    "precision fp8\n"
			    "algorithm ps k 2\n";

static const char inter[] = "paceline-plan 1\n"
			    "tensor a 4096\n"
			    "tensor b 8192\n"
			    "tensor c 4096\n"
			    "fuse-tensors a c\n"
			    "precision tf32\n";

static const char hand[] = "paceline-plan 1\n"
			   "fuse-tensors a b\n"
			   "precision fp16\n"
			   "accumulate 2\n";

static const struct {
	const char *what, *plan, *name, *want;
} golden[] = {
	{ "big", big, "ddp",
	  "# ddp: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "import torch\n"
	  "autocast = torch.autocast(\"cuda\", dtype=torch.bfloat16)  # with autocast: around "
	  "forward pass and loss\n"
	  "# before the model is wrapped; the names are those of modules\n"
	  "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
	  "apply_activation_checkpointing\n"
	  "layers = [model.get_submodule(name) for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  ")]\n"
	  "apply_activation_checkpointing(model, check_fn=lambda m: any(m is l for l in layers))\n"
	  "model = torch.nn.parallel.DistributedDataParallel(\n"
	  "    model,\n"
	  "    bucket_cap_mb_list=[8.00390625, 4.00390625, 4.003910064697266],\n"
	  ")\n"
	  "# not exactly the plan's sets: DDP fills buckets in the order in which gradients become "
	  "ready\n"
	  "# the list rules from the second step on, and without find_unused_parameters only\n"
	  "# releases without bucket_cap_mb_list: bucket_cap_mb=8.00390625 (2 of 3 buckets differ, "
	  "at their ends);\n"
	  "# older ones still close the first bucket at 1 MiB\n"
	  "accumulate = 4  # microbatches a step: all but the last inside \"with "
	  "model.no_sync():\"\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "fsdp",
	  "# fsdp: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "import torch\n"
	  "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n"
	  "options = {\"mp_policy\": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}\n"
	  "# before the model is wrapped; the names are those of modules\n"
	  "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
	  "apply_activation_checkpointing\n"
	  "layers = [model.get_submodule(name) for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  ")]\n"
	  "apply_activation_checkpointing(model, check_fn=lambda m: any(m is l for l in layers))\n"
	  "for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  "    \"head\",\n"
	  "):\n"
	  "    fully_shard(model.get_submodule(name), **options)\n"
	  "fully_shard(model, **options)\n"
	  "# FullyShardedDataParallel: "
	  "auto_wrap_policy=functools.partial(size_based_auto_wrap_policy,\n"
	  "#     min_num_params=1049600), the smallest set at 4 bytes an element\n"
	  "accumulate = 4  # microbatches a step: model.set_requires_gradient_sync(False), True "
	  "before the last\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "horovod",
	  "# horovod: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# in the environment:\n"
	  "# HOROVOD_FUSION_THRESHOLD=8392704\n"
	  "# HOROVOD_CYCLE_TIME=1\n"
	  "# HOROVOD_DISABLE_GROUP_FUSION=1\n"
	  "# HOROVOD_HIERARCHICAL_ALLREDUCE=1\n"
	  "import horovod.torch as hvd\n"
	  "parameters = dict(model.named_parameters())\n"
	  "groups = [[parameters[name] for name in names] for names in (\n"
	  "    (\"head.weight\", \"head.bias\"),\n"
	  "    (\"body.0.weight\", \"body.0.bias\"),\n"
	  "    (\"body.1.weight\", \"body.1.bias\"),\n"
	  ")]\n"
	  "optimizer = hvd.DistributedOptimizer(\n"
	  "    optimizer,\n"
	  "    named_parameters=model.named_parameters(),\n"
	  "    groups=groups,\n"
	  "    backward_passes_per_step=4,\n"
	  ")\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: precision bf16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "byteps",
	  "# byteps: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# the largest chunk of the plan; BytePS rounds it up to whole pages and local ranks\n"
	  "export BYTEPS_PARTITION_BYTES=4194304\n"
	  "# not exactly the plan's chunks: 1 of 6 tensors get another number of them\n"
	  "# one partition on its way and one behind it, so that priorities decide what is next;\n"
	  "# priorities are those of BytePS: layers near the input first\n"
	  "export BYTEPS_SCHEDULING_CREDIT=2\n"
	  "# not expressed: fuse-tensors head.weight head.bias: no setting groups tensors\n"
	  "# not expressed: fuse-tensors body.1.weight body.1.bias: no setting groups tensors\n"
	  "# not expressed: fuse-tensors body.0.weight body.0.bias: no setting groups tensors\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: accumulate 4: the training loop decides\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: precision bf16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "deepspeed",
	  "# deepspeed: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# bucket sizes are elements, the plan's largest set at 4 bytes each, and rule from ZeRO "
	  "stage 1 on\n"
	  "# not exactly the plan's sets: all buckets have one size\n"
	  "# the model itself calls deepspeed.checkpointing.checkpoint for the layers of the plan\n"
	  "{\n"
	  "  \"gradient_accumulation_steps\": 4,\n"
	  "  \"bf16\": { \"enabled\": true },\n"
	  "  \"activation_checkpointing\": { \"number_checkpoints\": 2 },\n"
	  "  \"zero_optimization\": {\n"
	  "    \"overlap_comm\": true,\n"
	  "    \"reduce_bucket_size\": 2098176,\n"
	  "    \"allgather_bucket_size\": 2098176\n"
	  "  }\n"
	  "}\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "megatron",
	  "# megatron: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# elements: the plan's largest set at 4 bytes each\n"
	  "# not exactly the plan's sets: all buckets have one size\n"
	  "--overlap-grad-reduce\n"
	  "--ddp-bucket-size 2098176\n"
	  "# layers are the first of each pipeline stage, whichever the plan names\n"
	  "--recompute-granularity full\n"
	  "--recompute-method block\n"
	  "--recompute-num-layers 2\n"
	  "--bf16\n"
	  "# microbatches follow from the batch: --global-batch-size is 4 x --micro-batch-size x "
	  "data-parallel ranks\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "big", big, "xla",
	  "# xla: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# the plan's largest set; not exactly its sets: the combiner fills up to one size\n"
	  "export XLA_FLAGS=\"$XLA_FLAGS --xla_gpu_all_reduce_combine_threshold_bytes=8392704 "
	  "--xla_gpu_enable_latency_hiding_scheduler=true\"\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add x 0.9: compilers fuse operations by rules of their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: accumulate 4: the training loop decides\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: precision bf16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n"
	  "# not expressed: bandwidth nic x 2: another machine, not a setting\n" },
	{ "plain", plain, "byteps",
	  "# byteps: a plan by paceline\n"
	  "# the largest chunk of the plan; BytePS rounds it up to whole pages and local ranks\n"
	  "export BYTEPS_PARTITION_BYTES=200\n"
	  "# no order in the plan: first come, first served\n"
	  "export BYTEPS_SCHEDULING_CREDIT=0\n"
	  "export DMLC_NUM_SERVER=2\n"
	  "# not expressed: fuse-tensors a.w b.w: no setting groups tensors\n"
	  "# not expressed: precision fp8: no setting for this precision, or for some operations "
	  "alone\n" },
	{ "plain", plain, "megatron",
	  "# megatron: a plan by paceline\n"
	  "# elements: the plan's largest set at 4 bytes each\n"
	  "# not exactly the plan's sets: all buckets have one size\n"
	  "--overlap-grad-reduce\n"
	  "--ddp-bucket-size 75\n"
	  "--bf16\n"
	  "--fp8-format hybrid\n"
	  "# not expressed: algorithm ps 2: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n" },
	{ "plain", plain, "deepspeed",
	  "# deepspeed: a plan by paceline\n"
	  "# bucket sizes are elements, the plan's largest set at 4 bytes each, and rule from ZeRO "
	  "stage 1 on\n"
	  "# not exactly the plan's sets: all buckets have one size\n"
	  "{\n"
	  "  \"zero_optimization\": {\n"
	  "    \"overlap_comm\": true,\n"
	  "    \"reduce_bucket_size\": 75,\n"
	  "    \"allgather_bucket_size\": 75\n"
	  "  }\n"
	  "}\n"
	  "# not expressed: precision fp8: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm ps 2: the communication library chooses; NCCL obeys "
	  "NCCL_ALGO=Ring or Tree\n" },
	{ "inter", inter, "ddp",
	  "# ddp: a plan by paceline\n"
	  "import torch\n"
	  "torch.set_float32_matmul_precision(\"high\")\n"
	  "model = torch.nn.parallel.DistributedDataParallel(\n"
	  "    model,\n"
	  "    bucket_cap_mb_list=[0.01171875, 0.00390625],\n"
	  ")\n"
	  "# not exactly the plan's sets: DDP fills buckets in the order in which gradients become "
	  "ready\n"
	  "# the list rules from the second step on, and without find_unused_parameters only\n"
	  "# releases without bucket_cap_mb_list: bucket_cap_mb=0.01171875 (0 of 2 buckets "
	  "differ);\n"
	  "# older ones still close the first bucket at 1 MiB\n" },
	{ "inter", inter, "horovod",
	  "# horovod: a plan by paceline\n"
	  "# in the environment:\n"
	  "# HOROVOD_FUSION_THRESHOLD=8192\n"
	  "# HOROVOD_CYCLE_TIME=1\n"
	  "# HOROVOD_DISABLE_GROUP_FUSION=1\n"
	  "import horovod.torch as hvd\n"
	  "parameters = dict(model.named_parameters())\n"
	  "groups = [[parameters[name] for name in names] for names in (\n"
	  "    (\"a\", \"c\"),\n"
	  ")]\n"
	  "optimizer = hvd.DistributedOptimizer(\n"
	  "    optimizer,\n"
	  "    named_parameters=model.named_parameters(),\n"
	  "    groups=groups,\n"
	  ")\n"
	  "# not expressed: precision tf32: no setting for this precision, or for some operations "
	  "alone\n" },
	{ "hand", hand, "ddp",
	  "# ddp: a plan by paceline\n"
	  "# the plan names no tensors of its base: nothing can be said about buckets\n"
	  "import torch\n"
	  "autocast = torch.autocast(\"cuda\", dtype=torch.float16)  # with autocast: around "
	  "forward pass and loss\n"
	  "scaler = torch.amp.GradScaler(\"cuda\")  # float16 needs its loss scaled\n"
	  "accumulate = 2  # microbatches a step: all but the last inside \"with "
	  "model.no_sync():\"\n"
	  "# not expressed: fuse-tensors a b: no setting groups tensors\n" },
	{ "hand", hand, "deepspeed",
	  "# deepspeed: a plan by paceline\n"
	  "# the plan names no tensors of its base: nothing can be said about buckets\n"
	  "{\n"
	  "  \"gradient_accumulation_steps\": 2,\n"
	  "  \"fp16\": { \"enabled\": true }\n"
	  "}\n"
	  "# not expressed: fuse-tensors a b: no setting groups tensors\n" },
	{ "hand", hand, "xla",
	  "# xla: a plan by paceline\n"
	  "# the plan names no tensors of its base: nothing can be said about buckets\n"
	  "# not expressed: fuse-tensors a b: no setting groups tensors\n"
	  "# not expressed: precision fp16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: accumulate 2: the training loop decides\n" },
};

static const struct pl_settings *find(const char *name)
{
	for (const struct pl_settings *const *s = pl_settings; *s; s++)
		if (!strcmp((*s)->name, name))
			return *s;
	return NULL;
}

int main(void)
{
	static const char *const order[] = { "ddp",	  "fsdp",     "horovod", "byteps",
					     "deepspeed", "megatron", "xla" };
	struct pl_plan p;
	struct pl_buf b;
	bool all = true;

	for (size_t i = 0; i < PL_LEN(order); i++)
		all &= pl_settings[i] && !strcmp(pl_settings[i]->name, order[i]) &&
		       pl_settings[i]->summary;
	ok(all && !pl_settings[PL_LEN(order)], "the frameworks and their order");
	for (size_t i = 0; i < PL_LEN(golden); i++) {
		char what[64];

		snprintf(what, sizeof(what), "%s: %s", golden[i].name, golden[i].what);
		if (read_str(golden[i].plan, &p) < 0) {
			ok(false, "%s: %s", what, last.msg);
			continue;
		}
		is_str(written(&p, find(golden[i].name)->write, &b), golden[i].want, what);
		pl_buf_fini(&b);
		pl_plan_fini(&p);
	}
	read_str("paceline-plan 1\ntensor a 1\nfuse-tensors a z\n", &p);
	ok(written(&p, find("ddp")->write, &b) == last.msg && last.code == PL_EDATA &&
		   strstr(last.msg, "line 3: fuse-tensors: the base has no tensor"),
	   "a plan of another job has no settings");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor \"grad m.w\" 100\ntensor \"grad m.b\" 4\n"
		 "tensor \"grad 2 10x10\" 400\nfuse-tensors \"grad m.w\" \"grad m.b\"\n"
		 "accumulate 2\naccumulate 3\n",
		 &p);
	ok(strstr(written(&p, find("fsdp")->write, &b), "\n    \"m\",\n"),
	   "gradients are those of parameters: a module");
	pl_buf_fini(&b);
	ok(strstr(written(&p, find("horovod")->write, &b), "(\"m.w\", \"m.b\"),\n)]\noptimizer"),
	   "... and a group");
	pl_buf_fini(&b);
	ok(strstr(written(&p, find("ddp")->write, &b), "accumulate = 6 "),
	   "microbatches of two lines multiply");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor \"grad 0 7\" 100\ntensor \"grad 1 3\" 4\n"
		 "fuse-tensors \"grad 0 7\" \"grad 1 3\"\n",
		 &p);
	ok(strstr(written(&p, find("horovod")->write, &b), "did not know the names of parameters"),
	   "names that are none of parameters are said to be so");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor a 8192\ntensor b 8192\npartition-tensor a 2\n"
		 "priority b a\n",
		 &p);
	ok(strstr(written(&p, find("byteps")->write, &b), "BYTEPS_SCHEDULING_CREDIT=2") &&
		   !strstr((const char *)b.p, "not expressed"),
	   "BytePS has priorities");
	pl_buf_fini(&b);
	ok(strstr(written(&p, find("horovod")->write, &b),
		  "# not expressed: priority b a: communication is carried out as it was issued"),
	   "Horovod has none, and that is said");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	return done_testing();
}
