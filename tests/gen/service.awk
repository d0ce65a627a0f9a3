# Profiler files of a simulated job of two ranks whose collectives run on two service threads, as with gloo:
#
#	awk -v dir=DIR [-v steps=N] [-v forward=F] [-v backward=F] [-v comm=F] [-v slow=F] [-v shapes=0]
#		[-v steal=S] [-v apart=1] [-v pack=NS] -f service.awk
#
# A sharded network of `layers` (6) layers. Forward: the all-gather of the next layer is issued, the thread waits for
# that of this one, computes, and sums the result over the ranks (_c10d_functional, whose wait is an operator).
# Backward: an operator of autograd computes, issues a reduce-scatter (gloo: an all-reduce), and waits for that of the
# layer before, about which no event says anything: there is only a pause between two operators. Computations differ
# from step to step, so that some waits are long, and others are over before they begin. A collective contains operators
# of its own. forward, backward, comm: factors of the time of computation and of communication, that of the operators
# which issue it included; slow: of computation on rank 1.
# steal: computations are equal in all steps and on both ranks, each of four parts, and there are too few processors:
# while a collective of a rank is carried out, its computation does only 1 - S of its work. apart: no rank waits for the other at a collective, except at
# the last of a step. pack: operators that issue a reduce-scatter take so long, record nothing inside, and the service
# thread begins 20 us before they are recorded to have ended.
# Chrome JSON, one file a rank, and DIR/truth with the length of each step over both ranks. Integer ns all through.
function max(a, b) { return a > b ? a : b }
function put(r, cat, name, tid, from, until, dims) {
	printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		sep[r], cat, name, r + 1, tid, from / 1000, (until - from) / 1000,
		shapes && dims ? "\"Input Dims\": [" dims "], \"Input type\": [\"float\"]" : "" >file[r]
	sep[r] = ",\n"
}
function op(r, name, ns, dims) {
	put(r, "cpu_op", name, 1, at[r], at[r] + int(ns), dims)
	at[r] += int(ns) + 4000
}
# how long the work takes on the rank from now on
function stretched(r, work,    i, now, part) {
	now = at[r]
	for (i = 1; i <= stolen[r]; i++) {
		if (stolen_until[r, i] <= now)
			continue
		part = max(0, stolen_from[r, i] - now)
		if (part >= work)
			break
		work -= part
		now += part
		part = (stolen_until[r, i] - now) * (1 - steal)
		if (part >= work)
			return now + work / (1 - steal) - at[r]
		work -= part
		now = stolen_until[r, i]
	}
	return now + work - at[r]
}
# a thread takes a part of the rank's processor
function take(r, begin, end,    n) {
	n = stolen[r]
	if (n)
		begin = max(begin, stolen_until[r, n])
	if (begin >= end)
		return
	stolen[r] = ++n
	stolen_from[r, n] = begin
	stolen_until[r, n] = end
}
# both ranks compute
function compute(name, ns, factor, salt,    r, i, parts, work) {
	parts = steal ? 4 : 1
	for (r = 0; r < 2; r++) {
		work = (ns + (steal ? 0 : 90000 * ((k * 7 + salt * 5 + r * 3) % 11))) * factor * (r ? slow : 1)
		for (i = 0; i < parts; i++)
			op(r, name, stretched(r, work / parts))
	}
}
# the service threads of both ranks take a collective from their queues; done[r, id] becomes its end
function carry(id, name, bytes, dims,    r, x, start, begin, end) {
	begin = 0
	for (r = 0; r < 2; r++) {
		x = free[r, 1] < free[r, 0]
		start[r] = max(at[r] - 4000 + (pack && id ~ /^r/ ? -20000 : 20000), free[r, x])
		on[r] = x
		begin = max(begin, start[r])
	}
	for (r = 0; r < 2; r++) {
		if (apart && id != "r0")
			begin = start[r]
		end = begin + int(bytes * comm) + 2000 * r
		if (steal)
			take(r, begin, end)
		put(r, "user_annotation", name, 2 + on[r], start[r], end, dims)
		put(r, "cpu_op", "aten::empty", 2 + on[r], start[r] + 2000, start[r] + 5000, "[]")
		if (end > start[r] + 20000) {
			put(r, "cpu_op", "aten::select", 2 + on[r], end - 12000, end - 10000, "[8]")
			put(r, "cpu_op", "aten::copy_", 2 + on[r], end - 9000, end - 1000, "[8]")
		}
		done[r, id] = free[r, on[r]] = end
	}
}
# the thread goes on 6 us after the collective has ended
function wait(id,    r) {
	for (r = 0; r < 2; r++)
		at[r] = max(at[r] + 6000, done[r, id] + 6000)
}
function gather(l,    r) {
	for (r = 0; r < 2; r++) {
		op(r, "fsdp::all_gather_copy_in", 20000, "[1000]")
		op(r, "c10d::_allgather_base_", 30000 * comm, "[2000], [1000]")
	}
	carry("g" l, "gloo:all_gather", 1500000, "[1000]")
}
function sum(l,    r, from) {
	for (r = 0; r < 2; r++) {
		from = at[r]
		at[r] += 3000
		op(r, "c10d::allreduce_", 30000 * comm, "[[500]]")
		put(r, "cpu_op", "_c10d_functional::all_reduce", 1, from, at[r], "[500]")
		at[r] += 4000
	}
	carry("s" l, "gloo:all_reduce", 300000, "[500]")
	for (r = 0; r < 2; r++) {
		from = at[r]
		at[r] = max(at[r], done[r, "s" l]) + 6000
		put(r, "cpu_op", "_c10d_functional::wait_tensor", 1, from, at[r], "[500]")
		at[r] += 4000
	}
}
function back(l,    r, from, reduce) {
	for (r = 0; r < 2; r++) {
		from[r] = at[r]
		at[r] += 2000
	}
	compute("aten::mm", 2200000, backward, l)
	for (r = 0; r < 2; r++) {
		reduce[r] = was[r] = at[r]
		at[r] += int(2000 * comm)
		if (!pack)
			put(r, "cpu_op", "aten::clone", 1, at[r], at[r] + int(100000 * comm), "[2000]")
		at[r] += pack ? pack : int(114000 * comm)
		put(r, "cpu_op", "c10d::_reduce_scatter_base_", 1, was[r], at[r], "[1000], [2000]")
		at[r] += 4000
	}
	carry("r" l, "gloo:all_reduce", 2500000, "[2000]")
	if (l < layers - 1)
		wait("r" l + 1)
	for (r = 0; r < 2; r++) {
		op(r, "aten::copy_", 150000, "[1000]")
		put(r, "user_annotation", "FSDP::post_backward_reduce (" l ")", 1, reduce[r], at[r] - 3000, "")
		put(r, "cpu_op", "autograd::engine::evaluate_function: LayerBackward", 1, from[r], at[r] - 2000, "")
	}
}
BEGIN {
	layers = 6
	steps = steps ? steps : 4
	forward = forward == "" ? 1 : forward; backward = backward == "" ? 1 : backward
	comm = comm == "" ? 1 : comm; slow = slow == "" ? 1 : slow; shapes = shapes == "" ? 1 : shapes
	for (r = 0; r < 2; r++) {
		file[r] = dir "/rank" r ".json"
		printf "{\"distributedInfo\": {\"backend\": \"gloo\", \"rank\": %d, \"world_size\": 2}, \"traceEvents\": [\n", r >file[r]
		at[r] = 1000000
	}
	for (k = 1; k <= steps; k++) {
		begin[0] = at[0]; begin[1] = at[1]
		at[0] += 1000; at[1] += 1000
		gather(0)
		for (l = 0; l < layers; l++) {
			was[0] = at[0]; was[1] = at[1]
			if (l + 1 < layers)
				gather(l + 1)
			wait("g" l)
			for (r = 0; r < 2; r++) {
				op(r, "aten::copy_", 100000, "[1000]")
				put(r, "user_annotation", "FSDP::pre_forward (" l ")", 1, was[r], at[r] - 3000, "")
			}
			compute("aten::linear", 1300000, forward, l)
			sum(l)
		}
		for (l = layers - 1; l >= 0; l--)
			back(l)
		wait("r0")
		for (r = 0; r < 2; r++) {
			was[r] = at[r]
			op(r, "aten::add_", 200000)
			put(r, "user_annotation", "Optimizer.step#SGD.step", 1, was[r], at[r], "")
			put(r, "user_annotation", "ProfilerStep#" k, 1, begin[r], at[r], "")
		}
		print max(at[0], at[1]) - (begin[0] < begin[1] ? begin[0] : begin[1]) >(dir "/truth")
	}
	for (r = 0; r < 2; r++)
		print "\n]}" >file[r]
}
