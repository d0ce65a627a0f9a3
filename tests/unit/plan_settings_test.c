/*
 * Settings of the seven frameworks, against what was checked by hand (what the
 * frameworks make of them is measured by bench/settings).
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

static const char capped[] = "paceline-plan 1\n"
			     "tensor a 4096\n"
			     "tensor b 8192\n"
			     "tensor c 4096\n"
			     "bucket-mb 0.0078125\n"
			     "loader-workers 3\n";

static const char wrapped[] = "paceline-plan 1\n"
			      "wrap layers=4\n";

static const char whole[] = "paceline-plan 1\n"
			    "wrap layers=all\n";

static const char hand[] = "paceline-plan 1\n"
			   "fuse-tensors a b\n"
			   "precision fp16\n"
			   "accumulate 2\n";

/* Two stages of a pipeline: what holds for one model does not hold for it. */
static const char pipe[] = "paceline-plan 1\n"
			   "replicas 2\n"
			   "tensor \"grad layers.3\" 400 stage=1\n"
			   "tensor \"grad layers.2\" 400 stage=1\n"
			   "tensor \"grad layers.1\" 40\n"
			   "tensor \"grad layers.0\" 40\n"
			   "fuse-tensors \"grad layers.3\" \"grad layers.2\"\n"
			   "fuse-tensors \"grad layers.1\" \"grad layers.0\"\n"
			   "recompute layers.3 layers.2 layers.0\n";

#define NO_SIZES                                                                                   \
	"the sizes are not known, because the plan has no statement tensor NAME BYTES; plan "      \
	"--preset none -O text GRAPH writes these"
#define STAGES                                                                                     \
	"the stages of a pipeline have different layers, and these settings are those of one "     \
	"model"

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
	  "recomputed = [model.get_submodule(name) for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  ")]\n"
	  "apply_activation_checkpointing(model, check_fn=lambda m: any(m is l for l in "
	  "recomputed))\n"
	  "model = torch.nn.parallel.DistributedDataParallel(\n"
	  "    model,\n"
	  "    bucket_cap_mb_list=[8.00390625, 4.00390625, 4.003910064697266],\n"
	  ")\n"
	  "# not exactly the plan's sets: DDP fills buckets in the order in which gradients become "
	  "ready\n"
	  "# the list takes effect from the second step on, and only without "
	  "find_unused_parameters (or "
	  "with static_graph)\n"
	  "# releases without bucket_cap_mb_list: bucket_cap_mb=8.00390625 (2 ends of buckets "
	  "differ);\n"
	  "# releases that always close the first bucket at 1 MiB use "
	  "torch.distributed._DEFAULT_FIRST_BUCKET_BYTES\n"
	  "accumulate = 4  # microbatches a step: all but the last inside \"with "
	  "model.no_sync():\"\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "fsdp",
	  "# fsdp: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "import torch\n"
	  "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n"
	  "options = {\"mp_policy\": MixedPrecisionPolicy(param_dtype=torch.bfloat16, "
	  "reduce_dtype=torch.float32)}\n"
	  "# before the model is wrapped; the names are those of modules\n"
	  "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
	  "apply_activation_checkpointing\n"
	  "recomputed = [model.get_submodule(name) for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  ")]\n"
	  "apply_activation_checkpointing(model, check_fn=lambda m: any(m is l for l in "
	  "recomputed))\n"
	  "def module(name):  # of the name of a module or of one of its parameters\n"
	  "    try:\n"
	  "        return model.get_submodule(name)\n"
	  "    except AttributeError:\n"
	  "        return model.get_submodule(name.rpartition(\".\")[0])\n"
	  "taken = {model}\n"
	  "for names in (\n"
	  "    (\"body.0.weight\", \"body.0.bias\"),\n"
	  "    (\"body.1.weight\", \"body.1.bias\"),\n"
	  "    (\"head.weight\", \"head.bias\"),\n"
	  "):\n"
	  "    group = [m for m in dict.fromkeys(map(module, names)) if m not in taken]\n"
	  "    taken.update(group)\n"
	  "    if group:\n"
	  "        fully_shard(group, **options)\n"
	  "fully_shard(model, **options)  # what is left\n"
	  "accumulate = 4  # microbatches a step: model.set_requires_gradient_sync(False), True "
	  "before the last\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "horovod",
	  "# horovod: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# before hvd.init()\n"
	  "import os\n"
	  "os.environ[\"HOROVOD_FUSION_THRESHOLD\"] = \"8392832\"\n"
	  "os.environ[\"HOROVOD_CYCLE_TIME\"] = \"1\"\n"
	  "os.environ[\"HOROVOD_DISABLE_GROUP_FUSION\"] = \"1\"\n"
	  "os.environ[\"HOROVOD_HIERARCHICAL_ALLREDUCE\"] = \"1\"\n"
	  "import torch\n"
	  "import horovod.torch as hvd\n"
	  "autocast = torch.autocast(\"cuda\", dtype=torch.bfloat16)  # with autocast: around "
	  "forward pass and loss\n"
	  "named = list(model.named_parameters())\n"
	  "def members(name):  # a parameter, or those of a module\n"
	  "    return [p for n, p in named if n == name or n.startswith(name + \".\")]\n"
	  "groups = [[p for name in names for p in members(name)] for names in (\n"
	  "    (\"head.weight\", \"head.bias\"),\n"
	  "    (\"body.0.weight\", \"body.0.bias\"),\n"
	  "    (\"body.1.weight\", \"body.1.bias\"),\n"
	  ")]\n"
	  "# before the model is wrapped; the names are those of modules\n"
	  "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
	  "apply_activation_checkpointing\n"
	  "recomputed = [model.get_submodule(name) for name in (\n"
	  "    \"body.0\",\n"
	  "    \"body.1\",\n"
	  ")]\n"
	  "apply_activation_checkpointing(model, check_fn=lambda m: any(m is l for l in "
	  "recomputed))\n"
	  "optimizer = hvd.DistributedOptimizer(\n"
	  "    optimizer,\n"
	  "    named_parameters=model.named_parameters(),\n"
	  "    groups=groups,\n"
	  "    # passes of 1/4 of the batch each, and of its loss\n"
	  "    backward_passes_per_step=4,\n"
	  ")\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "byteps",
	  "# byteps: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# rounded up by BytePS to whole pages times the ranks of a host\n"
	  "export BYTEPS_PARTITION_BYTES=4194304\n"
	  "# not exactly the plan's chunks: 1 of 6 tensors get another number of them\n"
	  "# one partition on its way and one behind it, so that priorities decide what is next: "
	  "those of BytePS,\n"
	  "# the order of declaration in TensorFlow, of parameters in MXNet, of their sorted names "
	  "in PyTorch\n"
	  "export BYTEPS_SCHEDULING_CREDIT=2\n"
	  "# microbatches of 1/4 of the batch each, and of its loss, in PyTorch: "
	  "byteps.torch.DistributedOptimizer(..., "
	  "backward_passes_per_step=4)\n"
	  "# not expressed: fuse-tensors head.weight head.bias: no setting groups tensors\n"
	  "# not expressed: fuse-tensors body.1.weight body.1.bias: no setting groups tensors\n"
	  "# not expressed: fuse-tensors body.0.weight body.0.bias: no setting groups tensors\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: precision bf16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "deepspeed",
	  "# deepspeed: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# bucket sizes are elements, of 4 bytes each; ZeRO stage 1 is the least that has them\n"
	  "# not exactly the plan's sets: all buckets have one size; ends of buckets that differ: "
	  "2\n"
	  "# the batch of a rank stays as it is: train_micro_batch_size_per_gpu is 1/4 of it\n"
	  "# recomputation is for the model to do: it calls deepspeed.checkpointing.checkpoint for "
	  "its layers\n"
	  "{\n"
	  "  \"gradient_accumulation_steps\": 4,\n"
	  "  \"bf16\": { \"enabled\": true },\n"
	  "  \"communication_data_type\": \"fp32\",\n"
	  "  \"zero_optimization\": {\n"
	  "    \"stage\": 1,\n"
	  "    \"overlap_comm\": true,\n"
	  "    \"reduce_bucket_size\": 2098176,\n"
	  "    \"allgather_bucket_size\": 2098176\n"
	  "  }\n"
	  "}\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "megatron",
	  "# megatron: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# elements, of 4 bytes each; of the first pipeline stage, the others have one bucket\n"
	  "# not exactly the plan's sets: all buckets have one size; ends of buckets that differ: "
	  "2\n"
	  "--overlap-grad-reduce\n"
	  "--ddp-bucket-size 2098176\n"
	  "# whole transformer layers, the first of each pipeline stage, whichever the plan names "
	  "(2 in all)\n"
	  "--recompute-granularity full\n"
	  "--recompute-method block\n"
	  "--recompute-num-layers 2\n"
	  "--bf16\n"
	  "# microbatches follow from the batch: --global-batch-size is 4 x --micro-batch-size x "
	  "data-parallel ranks\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "big", big, "xla",
	  "# xla: a plan by paceline; 104 ms a step predicted, 120 ms so far\n"
	  "# sizes of some tensors are estimated: check what the framework makes of these\n"
	  "# the combiner uses its own order of all-reduces; in the order of readiness:\n"
	  "# not exactly the plan's sets: all buckets have one size; ends of buckets that differ: "
	  "2\n"
	  "export XLA_FLAGS=\"$XLA_FLAGS --xla_gpu_all_reduce_combine_threshold_bytes=8392704 "
	  "--xla_gpu_enable_latency_hiding_scheduler=true\"\n"
	  "# not expressed: partition-tensor head.weight 2: no setting splits the communication of "
	  "a tensor\n"
	  "# not expressed: fuse-ops relu add share=0.9: compilers fuse operations by rules of "
	  "their "
	  "own\n"
	  "# not expressed: order body.0.weight body.1.weight: communication is issued as "
	  "gradients become ready\n"
	  "# not expressed: accumulate 4: the training loop decides\n"
	  "# not expressed: recompute body.0 body.1: no setting names the layers\n"
	  "# not expressed: precision bf16: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm hierarchical: the communication library chooses; NCCL can be "
	  "told ring or tree, for all tensors alike\n"
	  "# not expressed: bandwidth nic by=2: another machine, not a setting\n" },
	{ "plain", plain, "byteps",
	  "# byteps: a plan by paceline\n"
	  "# rounded up by BytePS to whole pages times the ranks of a host\n"
	  "export BYTEPS_PARTITION_BYTES=4096\n"
	  "# no order in the plan: first come, first served\n"
	  "export BYTEPS_SCHEDULING_CREDIT=0\n"
	  "# the same on all roles, and as many servers to be started\n"
	  "export DMLC_NUM_SERVER=2\n"
	  "# not expressed: fuse-tensors a.w b.w: no setting groups tensors\n"
	  "# not expressed: precision fp8: no setting for this precision, or for some operations "
	  "alone\n" },
	{ "plain", plain, "megatron",
	  "# megatron: a plan by paceline\n"
	  "# elements, of 4 bytes each; of the first pipeline stage, the others have one bucket\n"
	  "--overlap-grad-reduce\n"
	  "--ddp-bucket-size 75\n"
	  "--bf16\n"
	  "--fp8-format hybrid\n"
	  "# not expressed: algorithm ps servers=2: the communication library chooses; NCCL can be "
	  "told "
	  "ring or tree, for all tensors alike\n" },
	{ "plain", plain, "deepspeed",
	  "# deepspeed: a plan by paceline\n"
	  "# bucket sizes are elements, of 4 bytes each; ZeRO stage 1 is the least that has them\n"
	  "{\n"
	  "  \"zero_optimization\": {\n"
	  "    \"stage\": 1,\n"
	  "    \"overlap_comm\": true,\n"
	  "    \"reduce_bucket_size\": 75,\n"
	  "    \"allgather_bucket_size\": 76\n"
	  "  }\n"
	  "}\n"
	  "# not expressed: precision fp8: no setting for this precision, or for some operations "
	  "alone\n"
	  "# not expressed: algorithm ps servers=2: the communication library chooses; NCCL can be "
	  "told "
	  "ring or tree, for all tensors alike\n" },
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
	  "# the list takes effect from the second step on, and only without "
	  "find_unused_parameters (or "
	  "with static_graph)\n"
	  "# releases without bucket_cap_mb_list: bucket_cap_mb=0.0078125 (no end differs);\n"
	  "# releases that always close the first bucket at 1 MiB use "
	  "torch.distributed._DEFAULT_FIRST_BUCKET_BYTES\n" },
	{ "wrapped", wrapped, "fsdp",
	  "# fsdp: a plan by paceline\n"
	  "import torch\n"
	  "from torch.distributed.fsdp import fully_shard\n"
	  "options = {}\n"
	  "# mesh and reshard_after_forward: as they are now\n"
	  "# layers: the modules that are groups now, in the order in which they run\n"
	  "layers = list(layers)\n"
	  "for i in range(0, len(layers), 4):\n"
	  "    fully_shard(layers[i:i + 4], **options)\n"
	  "fully_shard(model, **options)  # what is left\n" },
	{ "whole", whole, "fsdp",
	  "# fsdp: a plan by paceline\n"
	  "import torch\n"
	  "from torch.distributed.fsdp import fully_shard\n"
	  "options = {}\n"
	  "# mesh and reshard_after_forward: as they are now\n"
	  "# each rank gathers all parameters at once, and needs memory for them\n"
	  "fully_shard(model, **options)  # and no module inside it\n" },
	{ "capped", capped, "ddp",
	  "# ddp: a plan by paceline\n"
	  "import torch\n"
	  "loader = torch.utils.data.DataLoader(dataset, num_workers=3)  # and its other options "
	  "as "
	  "they are\n"
	  "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0078125)\n" },
	{ "inter", inter, "horovod",
	  "# horovod: a plan by paceline\n"
	  "# before hvd.init()\n"
	  "import os\n"
	  "os.environ[\"HOROVOD_FUSION_THRESHOLD\"] = \"8320\"\n"
	  "os.environ[\"HOROVOD_CYCLE_TIME\"] = \"1\"\n"
	  "os.environ[\"HOROVOD_DISABLE_GROUP_FUSION\"] = \"1\"\n"
	  "import torch\n"
	  "import horovod.torch as hvd\n"
	  "torch.set_float32_matmul_precision(\"high\")\n"
	  "named = list(model.named_parameters())\n"
	  "def members(name):  # a parameter, or those of a module\n"
	  "    return [p for n, p in named if n == name or n.startswith(name + \".\")]\n"
	  "groups = [[p for name in names for p in members(name)] for names in (\n"
	  "    (\"b\",),\n"
	  "    (\"a\", \"c\"),\n"
	  ")]\n"
	  "optimizer = hvd.DistributedOptimizer(\n"
	  "    optimizer,\n"
	  "    named_parameters=model.named_parameters(),\n"
	  "    groups=groups,\n"
	  ")\n" },
	{ "pipe", pipe, "megatron",
	  "# megatron: a plan by paceline\n"
	  "# elements, of 4 bytes each; of the first pipeline stage, the others have one bucket\n"
	  "# not expressed: sets of the stages behind the first\n"
	  "--overlap-grad-reduce\n"
	  "--ddp-bucket-size 20\n"
	  "# whole transformer layers, the first of each pipeline stage, whichever the plan names "
	  "(2 of a stage, at most)\n"
	  "# the plan has 1 of stage 0, 2 of stage 1: stages with fewer, or without any, recompute "
	  "more than planned\n"
	  "--recompute-granularity full\n"
	  "--recompute-method block\n"
	  "--recompute-num-layers 2\n" },
	{ "pipe", pipe, "xla",
	  "# xla: a plan by paceline\n"
	  "# nothing can be said about buckets: " STAGES "\n"
	  "# not expressed: fuse-tensors \"grad layers.3\" \"grad layers.2\": see above\n"
	  "# not expressed: fuse-tensors \"grad layers.1\" \"grad layers.0\": see above\n"
	  "# not expressed: recompute layers.3 layers.2 layers.0: no setting names the layers\n" },
	{ "hand", hand, "ddp",
	  "# ddp: a plan by paceline\n"
	  "# nothing can be said about buckets: " NO_SIZES "\n"
	  "import torch\n"
	  "autocast = torch.autocast(\"cuda\", dtype=torch.float16)  # with autocast: around "
	  "forward pass and loss\n"
	  "scaler = torch.amp.GradScaler(\"cuda\")  # float16 needs its loss scaled\n"
	  "accumulate = 2  # microbatches a step: all but the last inside \"with "
	  "model.no_sync():\"\n"
	  "# not expressed: fuse-tensors a b: see above\n" },
	{ "hand", hand, "deepspeed",
	  "# deepspeed: a plan by paceline\n"
	  "# nothing can be said about buckets: " NO_SIZES "\n"
	  "# the batch of a rank stays as it is: train_micro_batch_size_per_gpu is 1/2 of it\n"
	  "{\n"
	  "  \"gradient_accumulation_steps\": 2,\n"
	  "  \"fp16\": { \"enabled\": true },\n"
	  "  \"communication_data_type\": \"fp32\"\n"
	  "}\n"
	  "# not expressed: fuse-tensors a b: see above\n" },
	{ "hand", hand, "xla",
	  "# xla: a plan by paceline\n"
	  "# nothing can be said about buckets: " NO_SIZES "\n"
	  "# not expressed: fuse-tensors a b: see above\n"
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

static const struct pl_settings *chosen;

static int write_chosen(const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	return pl_settings_write(chosen, p, out, err);
}

/* For written(). */
static int (*writer_of(const char *name))(const struct pl_plan *, struct pl_out *, struct pl_err *)
{
	chosen = find(name);
	return write_chosen;
}

/* Does the plan's text for the framework hold this? */
static void holds(const char *plan, const char *name, const char *want, const char *what)
{
	struct pl_plan p;
	struct pl_buf b;

	if (read_str(plan, &p) < 0) {
		ok(false, "%s: %s", what, last.msg);
		return;
	}
	ok(strstr(written(&p, writer_of(name), &b), want), "%s: %s", name, what);
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

static void more(void)
{
	static const char odd[] =
		"paceline-plan 1\ntensor a 12\ntensor b 16\ntensor c 4\ntensor d 12\n"
		"fuse-tensors a b\nalgorithm tree\n";
	static const char layers[] =
		"paceline-plan 1\ntensor a 4\nrecompute x.3.attention emb x.3.mlp "
		"x.12 h2.mlp\n";
	static const char parts[] = "paceline-plan 1\ntensor a 40960\ntensor b 8192\n"
				    "partition-tensor a 5\n";

	/* 3, 4, 1 and 3 elements, sets of 7, 1 and 3: a size of 1 splits the first set, 3 splits it
	 * and joins the others, 7 only joins them */
	holds(odd, "megatron", "differ: 1\n--overlap-grad-reduce\n--ddp-bucket-size 7\n",
	      "the largest size under which the fewest ends differ");
	holds(odd, "deepspeed", "\"reduce_bucket_size\": 7,\n    \"allgather_bucket_size\": 8\n",
	      "what is gathered is even");
	holds(odd, "deepspeed", "# not expressed: algorithm tree", "no trees for what has none");
	holds(odd, "ddp", "\"NCCL_ALGO\"] = \"allreduce:tree\"", "trees for all-reduces alone");
	holds(odd, "xla", "export NCCL_ALGO=allreduce:tree\n", "the same in the environment");
	holds("paceline-plan 1\ntensor a 4\nalgorithm ring\n", "fsdp", "\"NCCL_ALGO\"] = \"ring\"",
	      "rings for everything");
	holds(layers, "megatron", "--recompute-num-layers 2\n", "layers by number, each once");
	holds(layers, "megatron", "# not expressed: recompute of 2 that", "... and what has none");
	/* without replicas of stages nothing is synchronised, so there are no tensors */
	holds("paceline-plan 1\nrecompute h0 h1 h2\nrecompute h3 h4 h5 stage=1\n"
	      "recompute layer6 stage=2\nrecompute layer8 stage=2\n",
	      "megatron", "has 3 of stage 0, 3 of stage 1, 2 of stage 2: stages with fewer",
	      "layers by the stages that the plan names");
	holds("paceline-plan 1\nrecompute h0 h1 h2\nrecompute h3 h4 h5 stage=1\n"
	      "recompute layer6 stage=2\nrecompute layer8 stage=2\n",
	      "megatron", "--recompute-num-layers 3\n", "... the most of a stage");
	holds("paceline-plan 1\ntensor a 4\nrecompute emb\n", "megatron",
	      "# not expressed: recompute emb", "... nothing to recompute");
	holds(parts, "byteps", "PARTITION_BYTES=8192\n# no order",
	      "the size that gives all chunks");
	holds("paceline-plan 1\ntensor \"1\" 4\ntensor \"0\" 4\nfuse-tensors \"1\" \"0\"\n", "fsdp",
	      "    (\"1\", \"0\"),\n", "numbers that are names");
	holds("paceline-plan 1\ntensor m.w 4\ntensor m.b 4\ntensor n.w 4\nfuse-tensors m.b n.w\n",
	      "fsdp", "parameters: 1 modules", "modules with parameters in several sets");
	holds("paceline-plan 1\ntensor m.w 4\nprecision fp16\n", "fsdp", "torch.amp.GradScaler",
	      "float16 is scaled");
	holds("paceline-plan 1\ntensor m.w 4\nprecision fp16\n", "megatron",
	      "--fp16\n--accumulate-allreduce-grads-in-fp32\n", "gradients keep their size");
	holds("paceline-plan 1\ntensor v@1 8000000 stage=1\ntensor w@0 8000000 set=1\n"
	      "tensor x@0 8000000 set=1\ntensor emb 400\n",
	      "megatron", "--ddp-bucket-size 4000000\n",
	      "the tensors of the first stage, with groups");
	holds("paceline-plan 1\ntensor w@0 4194304\ntensor w@1 4194304\npartition-tensor w@0 4\n"
	      "partition-tensor w@1 4\n",
	      "byteps", "PARTITION_BYTES=1048576\n", "chunks of tensors of several groups");
}

/* Sets that bucket-mb makes are written like others. */
static void bucket_mb(void)
{
	static const char *const name[] = { "horovod", "fsdp", "deepspeed", "megatron", "xla" };
	static const char text[] = "paceline-plan 1\ntensor a 40000000\ntensor b 40000000\n"
				   "bucket-mb 25\n";

	for (size_t i = 0; i < PL_LEN(name); i++) {
		struct pl_plan p;
		struct pl_buf b;

		if (read_str(text, &p) < 0) {
			ok(false, "%s", last.msg);
			return;
		}
		ok(!strstr(written(&p, writer_of(name[i]), &b), "not expressed"),
		   "%s: bucket-mb is expressed", name[i]);
		pl_buf_fini(&b);
		pl_plan_fini(&p);
	}
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
		is_str(written(&p, writer_of(golden[i].name), &b), golden[i].want, what);
		pl_buf_fini(&b);
		pl_plan_fini(&p);
	}
	read_str("paceline-plan 1\ntensor a 1\nfuse-tensors a z\n", &p);
	ok(written(&p, writer_of("ddp"), &b) == last.msg && last.code == PL_EDATA &&
		   strstr(last.msg, "line 3, column 16: fuse-tensors: the base has no tensor"),
	   "a plan of another job has no settings");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor \"grad m.w\" 100\ntensor \"grad m.b\" 4\n"
		 "tensor \"grad 2 10x10\" 400\nfuse-tensors \"grad m.w\" \"grad m.b\"\n"
		 "accumulate 2\naccumulate 3\n",
		 &p);
	ok(strstr(written(&p, writer_of("fsdp"), &b), "\n    (\"m.w\", \"m.b\"),\n"),
	   "gradients are those of parameters");
	pl_buf_fini(&b);
	ok(strstr(written(&p, writer_of("horovod"), &b), "(\"m.w\", \"m.b\"),\n"),
	   "... in a group");
	pl_buf_fini(&b);
	ok(strstr(written(&p, writer_of("ddp"), &b), "accumulate = 6 "),
	   "microbatches of two lines multiply");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor \"grad 0 7\" 100\ntensor \"grad 1 3\" 4\n"
		 "fuse-tensors \"grad 0 7\" \"grad 1 3\"\n",
		 &p);
	ok(strstr(written(&p, writer_of("horovod"), &b), "    (0, 1),\n"),
	   "without names of parameters they are numbers");
	pl_buf_fini(&b);
	ok(strstr(written(&p, writer_of("fsdp"), &b), "    (0, 1),\n"), "... of modules, too");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str("paceline-plan 1\ntensor a 8192\ntensor b 8192\npartition-tensor a 2\n"
		 "priority b a\n",
		 &p);
	ok(strstr(written(&p, writer_of("byteps"), &b), "BYTEPS_SCHEDULING_CREDIT=2") &&
		   !strstr((const char *)b.p, "not expressed"),
	   "BytePS has priorities");
	pl_buf_fini(&b);
	ok(strstr(written(&p, writer_of("horovod"), &b),
		  "# not expressed: priority b a: communication is carried out as it was issued"),
	   "Horovod has none, and that is said");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	more();
	bucket_mb();
	return done_testing();
}
