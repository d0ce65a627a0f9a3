# Profiler files of a simulated sharded job of two ranks (fully_shard over gloo):
#
#	awk -v dir=DIR [-v per=N] [-v steps=N] [-v layers=N] [-v shapes=0] [-v moves=NS_PER_BYTE] [-v latency=NS]
#		[-v ahead=N] [-v beside=PATTERN] [-v data=1] [-v named=1] [-v root=again|none] [-v nested=1] [-v micro=N]
#		[-v widens=X] [-v averages=1] [-v every=N] [-v late=NS] [-v whole=1] [-v joined=N] [-v last=1] [-v costs=X] [-v keep=1] [-v behind=1] [-v reads=NS]
#		-f sharded.awk
#
# The network has an outermost group of 1 MB, which keeps its parameters, and `layers` (8) layers of 4 MB, of which `per`
# (1) are one group; per=0: all are in the outermost group. Forward, each group: copy in, all-gather, copy out, the
# operations of its layers. Backward, from the last group on: the same, then copy in, reduction. The thread issues a
# collective and waits for it; a service thread carries it out in latency + bytes * moves. Operations differ by rank and
# step. With `ahead`, groups are gathered so many places earlier, beside computation. Collectives whose names match `beside` run beside the computation of their pass, if there was some before; the next
# pass waits for them. With `data` nothing is sharded: the gradient of each layer is averaged behind the backward pass, or, with
# `beside`, from the time on when it is ready; with `behind`, parameters are averaged so behind the optimizer. With `joined`, so many gradients at a time are copied into a bucket, averaged
# from the time on when the last of them is ready, waited for behind the backward pass, and copied back, as DDP does: in each
# of the `micro` backward passes or, with `last`, in the last one.
# With `named`, the ranges of PyTorch are there, which name the modules. With root=again the outermost group is gathered
# again, first of all groups; with root=none there is none. With `nested`, a quarter of each layer is a group inside that
# of the layer: gathered behind it, and reduced before it. A step has `micro` (1) forward and backward passes, and only the
# last reduces; of `every` (1) steps only the last does. Gradients have `widens` (1) times the bytes of parameters. With
# `averages`, reduced shards are averaged over copies of them. With `late`, the thread goes on so long after the gather of the
# outermost group has ended, except in the first step, with another operation than behind other gathers. With `whole`, each rank has all parameters, and gathers
# none. With `keep`, groups keep their parameters until the backward pass. With `reads`, a step begins with so long a read of its batch. Beside a transfer, operations of the thread lose the share `costs` (0.25) of their time. Chrome JSON, one file a rank, and DIR/truth with the length of each step over both ranks. Integer ns all through.
function max(a, b) { return a > b ? a : b }
function min(a, b) { return a < b ? a : b }
function put(r, cat, name, tid, from, until, dims) {
	printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		sep[r], cat, name, r + 1, tid, from / 1000, (until - from) / 1000,
		shapes && dims ? "\"Input Dims\": [" dims "], \"Input type\": [\"float\"]" : "" >file[r]
	sep[r] = ",\n"
}
# a transfer that operations may run beside
function transfers(from, until) {
	transfer_at[n_transfers] = from
	transfer_ends[n_transfers++] = until
}
# how long an operation takes that alone takes so long; transfers follow one another
function beside_transfers(r, ns,    i, t) {
	t = at[r]
	while (passed[r] < n_transfers && transfer_ends[passed[r]] <= t)
		passed[r]++
	for (i = passed[r]; i < n_transfers && t + ns > transfer_at[i]; i++) {
		if (t < transfer_at[i]) {
			ns -= transfer_at[i] - t
			t = transfer_at[i]
		}
		if (ns / (1 - costs) <= transfer_ends[i] - t)
			return t - at[r] + int(ns / (1 - costs))
		ns -= (transfer_ends[i] - t) * (1 - costs)
		t = transfer_ends[i]
	}
	return t - at[r] + int(ns)
}
function op(r, name, ns, dims) {
	if (name !~ /^c10d/)
		ns = beside_transfers(r, ns)
	put(r, "cpu_op", name, 1, at[r], at[r] + ns, dims)
	at[r] += ns + 2000
}
# both ranks issue a collective of `bytes`, and wait for it; or it begins when it can, or has begun already, at `begun`
function collective(call, name, bytes, part, begun,    r, begin, waits, until) {
	begin = free
	waits = waiting && (fresh || !beside || name !~ beside)
	for (r = 0; r < 2; r++) {
		op(r, call, 30000, "[" part "]")
		begin = max(begin, at[r] + 18000)
	}
	begin = begun ? begun : begin
	until = begin + latency + int(bytes * moves)
	free = max(free, until)
	if (!begun)
		transfers(begin, until)
	for (r = 0; r < 2; r++) {
		put(r, "user_annotation", name, 2, waits ? at[r] + 18000 : begin, until, "[" part "]")
		if (waits)
			at[r] = free + 6000
	}
}
function next_pass(    r) {
	for (r = 0; r < 2; r++)
		at[r] = max(at[r], free)
}
function copies(name, ns,    r) {
	for (r = 0; r < 2; r++)
		op(r, name, ns, "[1000]")
}
# the groups of a pass, in order: those of the layers a to b, up or down
function pass(outer, a, b, step,    i) {
	n_sizes = n_issued = n_gathered = 0
	if (outer)
		size_of[n_sizes++] = outer
	for (i = a; step > 0 ? i <= b : i >= b; i += step)
		size_of[n_sizes++] = 4000000 * (min(i + per - 1, layers) - i + 1)
}
# issue the gather of the next group, not waiting for it
function issue(bytes,    r) {
	copies("fsdp::all_gather_copy_in", int(bytes / 40))
	waiting = 0
	collective("c10d::_allgather_base_", "gloo:all_gather", bytes, bytes / 8)
	waiting = 1
	ends[n_issued++] = free
}
# the range of PyTorch around what was done for a group since from_range()
function from_range(    r) {
	for (r = 0; r < 2; r++)
		range_at[r] = at[r]
}
function range(name, group,    r) {
	for (r = 0; r < 2 && named; r++)
		put(r, "user_annotation", "FSDP::" name (group ? " (" group ")" : ""), 1, range_at[r] - 1000, at[r], "")
}
# with `ahead`, the next gathers are issued when this one has been waited for
function gather(bytes, group,    r) {
	if (whole)
		return
	from_range()
	if (!ahead) {
		copies("fsdp::all_gather_copy_in", int(bytes / 40))
		collective("c10d::_allgather_base_", "gloo:all_gather", bytes, bytes / 8)
		range("all_gather", group)
	} else if (!n_issued)
		issue(bytes)
	for (r = 0; r < 2 && ahead; r++)
		at[r] = max(at[r], ends[n_gathered] + 6000)
	for (r = 0; r < 2; r++)
		at[r] += group == "" && k ? late : 0
	copies(group == "" && late ? "aten::split_with_sizes" : "fsdp::split_with_sizes_copy", int(bytes / 20))
	n_gathered++
	while (ahead && n_issued < n_sizes && n_issued < n_gathered + ahead)
		issue(size_of[n_issued])
}
function reduce(bytes, group) {
	if (pass_number < micro || (k + 1) % every)
		return
	from_range()
	bytes *= widens
	copies("fsdp::chunk_cat", int(bytes / 20))
	collective("c10d::_reduce_scatter_base_", "gloo:all_reduce", bytes, bytes / 4)
	if (averages)
		collective("c10d::allreduce_", "gloo:all_reduce", bytes / 2, bytes / 8)
	range("post_backward_reduce", group)
}
function compute(name, ns, salt,    r) {
	fresh = 0
	for (r = 0; r < 2; r++)
		op(r, name, ns + 10000 * ((k * 7 + salt * 5 + r * 3) % 11), "[64, 500], [500, 500]")
}
function gradient(name, ns, salt, dims,    r) {
	compute(name, ns, salt)
	for (r = 0; r < 2; r++)
		op(r, "torch::autograd::AccumulateGrad", 5000, dims)
	begun_at[grads] = data && beside && !joined ? max(free, max(at[0], at[1]) - 2000) : 0
	if (begun_at[grads]) {
		free = begun_at[grads] + latency + int((grads ? 4000000 : 1000000) * moves)
		transfers(begun_at[grads], free)
	}
	grads++
	if (!synchronises())
		return
	bucket += grads > 1 ? 4000000 : 1000000
	reducer("mul_out", grads > 1 ? 500000 : 100000)
	if (grads % joined == 0 || grads == layers + 1)
		issue_bucket()
}
function synchronises() {
	return joined && (!last || pass_number == micro) && (k + 1) % every == 0
}
function reducer(what, ns,    r, was) {
	for (r = 0; r < 2; r++) {
		was = at[r]
		op(r, "aten::copy_", ns, "[1000]")
		put(r, "user_annotation", "torch::distributed::reducer::" what, 1, was - 500, at[r] - 500, "")
	}
}
function issue_bucket() {
	waiting = 0
	collective("c10d::allreduce_", "gloo:all_reduce", bucket, bucket / 4)
	waiting = 1
	bucket = 0
}
function finish_buckets(    i) {
	next_pass()
	for (i = 0; i < grads && synchronises(); i++)
		reducer("copy_bucket_to_grad", i ? 500000 : 100000)
}
function average(    i) {
	for (i = 0; i < grads; i++)
		collective("c10d::allreduce_", "gloo:all_reduce", i ? 4000000 : 1000000, i ? 1000000 : 250000, begun_at[i])
}
function of_layers(a, b) {
	return "layers." a (b > a ? ", layers." b : "")
}
# layers a to b: their group is `bytes` larger where the outermost one is in it
function gather_layers(a, b, bytes,    all, inner) {
	all = bytes + 4000000 * (b - a + 1)
	inner = nested ? 1000000 : 0
	gather(all - inner, bytes ? "" : of_layers(a, b))
	if (inner)
		gather(inner, of_layers(a, b) ".inner")
}
function forward(a, b, bytes,    l) {
	gather_layers(a, b, bytes)
	for (l = a; l <= b; l++)
		compute("aten::linear", 2000000, l)
}
function backward(a, b, bytes,    l, inner) {
	if (!keep && (!bytes || root == "again"))
		gather_layers(a, b, bytes)
	for (l = b; l >= a; l--)
		gradient("autograd::engine::evaluate_function: MmBackward0", 4000000, l + 20, "[1000, 1000]")
	inner = nested ? 1000000 : 0
	if (inner)
		reduce(inner, of_layers(a, b) ".inner")
	reduce(bytes + 4000000 * (b - a + 1) - inner, bytes ? "" : of_layers(a, b))
}
function both_passes(    i) {
	fresh = pass_number == 1
	grads = 0
	if (data) {
		for (i = 1; i <= layers; i++)
			compute("aten::linear", 2000000, i)
	} else if (per) {
		pass(root == "none" ? 0 : 1000000, 1, layers, per)
		if (root != "none")
			gather(1000000, "")
		for (i = 1; i <= layers; i += per)
			forward(i, i + per - 1 > layers ? layers : i + per - 1, 0)
	} else
		forward(1, layers, 1000000)
	compute("aten::linear", 1000000, 40)
	next_pass()
	gradient("autograd::engine::evaluate_function: MmBackward0", 2000000, 41, "[250, 1000]")
	if (data) {
		for (i = layers; i >= 1; i--)
			gradient("autograd::engine::evaluate_function: MmBackward0", 4000000, i + 20, "[1000, 1000]")
		if (joined)
			finish_buckets()
		else if (!behind)
			average()
	} else if (per) {
		pass(root == "again" ? 1000000 : 0, int((layers - 1) / per) * per + 1, 1, -per)
		if (root == "again" && !keep)
			gather(1000000, "")
		for (i = int((layers - 1) / per) * per + 1; i >= 1; i -= per)
			backward(i, i + per - 1 > layers ? layers : i + per - 1, 0)
		if (root != "none")
			reduce(1000000, "")
	} else
		backward(1, layers, 1000000)
	next_pass()
}
BEGIN {
	shapes = shapes == "" ? 1 : shapes
	costs = costs == "" ? 0.25 : costs
	n_transfers = passed[0] = passed[1] = free = 0
	waiting = 1
	micro = micro ? micro : 1
	every = every ? every : 1
	widens = widens ? widens : 1
	steps = steps ? steps : 3
	layers = layers ? layers : 8
	per = per == "" ? 1 : per
	moves = moves == "" ? 1 : moves
	latency = latency == "" ? 1500000 : latency
	for (r = 0; r < 2; r++) {
		file[r] = dir "/rank" r ".json"
		printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": 2}, \"traceEvents\": [\n", r >file[r]
		at[r] = 1000000 + 50000 * r
	}
	for (k = 0; k < steps; k++) {
		for (r = 0; r < 2; r++) {
			from[r] = at[r]
			at[r] += 10000
			if (reads) {
				was = at[r]
				op(r, "aten::stack", reads, "")
				put(r, "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, was - 500, at[r] - 500, "")
			}
		}
		for (pass_number = 1; pass_number <= micro; pass_number++)
			both_passes()
		for (r = 0; r < 2; r++) {
			op(r, "Optimizer.step#SGD.step", 3000000, "")
		}
		if (behind)
			average()
		for (r = 0; r < 2; r++) {
			put(r, "user_annotation", "ProfilerStep#" k, 1, from[r], at[r], "")
			at[r] += 5000
		}
		printf "%d\n", max(at[0], at[1]) - 5000 - (from[0] < from[1] ? from[0] : from[1]) >(dir "/truth")
	}
	for (r = 0; r < 2; r++)
		printf "\n]}\n" >file[r]
}
