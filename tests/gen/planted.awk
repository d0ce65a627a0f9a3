# Profiler files of a small training job in which one thing takes too long:
#
#	awk -v dir=DIR -v cause=CAUSE [-v n=RANKS] [-v steps=N] [-v who=RANK] [-v ms=MS] [-v seed=N] [-v named=0]
#		[-v lost=MS] [-v more=N] [-v larger=N] [-v shapes=1] [-v once=1] [-v inside=NAME]
#		[-v outside=1] -f planted.awk
#
# On hosts (cpu): input, evaluation, checkpoint, garbage, compilation, slow, uneven, link, contention, communication,
# compute. A step is: samples, 10 forward operations of 2 ms, 10 backward ones of 4 ms, an all-reduce of 5 ms (with link:
# sends to the next rank), an update. `ms` is the time of the cause, `who` its rank (-1: all). Without `named` no range
# says what it is. With `lost`, one operation in ten, and one pause behind the update in three, last up to so much longer, as
# on a machine that does something else. With `more`, a pass of the rank `who` has so many operations more; with `larger`, its
# operations have tensors that are so many percent larger, and take as much longer (of `uneven` those of the rank whose turn it is). `shapes` records the sizes of tensors. With
# `once`, input and garbage take time in step 3 alone. With `inside`, the range that names input or a pause has an operation of
# this name. With `outside`, evaluation is no part of a step. With a device: sync, memory, launch: 20 operations, each a launch
# and a kernel. Times vary by 2 %.
function max(a, b) { return a > b ? a : b }
function random() { return (seed = (seed * 16807) % 2147483647) / 2147483647 }
function vary(ns) { return int(ns * (0.98 + 0.04 * random())) }
function put(r, cat, name, tid, from, until, args) {
	printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %s, \"tid\": %s, \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		sep[r], cat, name, cat ~ /^(kernel|gpu)/ ? 0 : 100 + r, tid, from / 1000, (until - from) / 1000, args >file[r]
	sep[r] = ",\n"
}
function range(r, cat, name, ns) {
	put(r, cat, name, 1, at[r], at[r] + ns, "")
	at[r] += ns
}
function here(r) { return who < 0 || r == who }
function op(r, name, ns,    slow, size, until) {
	slow = cause == "slow" && here(r) ? 1 + ms / 100 : 1
	size = (cause == "uneven" ? (k * 7) % n == r : here(r)) ? 1 + larger / 100 : 1
	until = at[r] + vary(ns * slow * size) + lose(0.1)
	put(r, "cpu_op", name, 1, at[r], until, shapes ? sprintf("\"Input Dims\": [[%d, 64], [64, 64]], \"Input type\": [\"float\", \"float\"]", 32 * size) : "")
	at[r] = until
}
# how many operations a pass has
function many(r) { return 10 + (here(r) ? more : 0) }
function now(k) { return !once || k == 3 }
function lose(share) { return lost && random() < share ? int(lost * 1000000 * random()) : 0 }
# an operation in a range
function within(r, from, until) {
	if (inside != "")
		put(r, "cpu_op", inside, 1, from + 2000, until - 2000, "")
}
# a pause of the interpreter, with a range or function that names it
function pause(r, cat, name) {
	if (named) {
		put(r, cat, name, 1, at[r] + 10000, at[r] + ms * 1000000 - 10000, "")
		within(r, at[r] + 10000, at[r] + ms * 1000000 - 10000)
	}
	at[r] += ms * 1000000
}
function forward(r,    i) {
	for (i = 0; i < many(r); i++) {
		op(r, "aten::addmm", 2000000)
		at[r] += 20000
	}
}
function allreduce(    r, end, ns) {
	end = 0
	for (r = 0; r < n; r++)
		end = max(end, at[r])
	end += vary(cause == "communication" ? ms * 1000000 : 5000000)
	for (r = 0; r < n; r++) {
		put(r, "collective", "allreduce", 1, at[r], end, "\"Process Group Name\": \"dp\", \"Seq\": " seq ", \"bytes\": 4000000")
		at[r] = end
	}
	seq++
}
# pairs (0, 1), (2, 3) ... reduce among themselves
function pairs(    r, end) {
	for (r = 0; r + 1 < n; r += 2) {
		end = max(at[r], at[r + 1]) + vary(r == who ? ms * 1000000 : 5000000)
		put(r, "collective", "allreduce", 1, at[r], end, "\"Process Group Name\": \"p" r "\", \"Seq\": " seq ", \"bytes\": 4000000")
		put(r + 1, "collective", "allreduce", 1, at[r + 1], end, "\"Process Group Name\": \"p" r "\", \"Seq\": " seq ", \"bytes\": 4000000")
		at[r] = at[r + 1] = end
	}
	seq++
}
function backward(r, k,    i, slow, from) {
	from = at[r]
	for (i = 0; i < many(r); i++) {
		slow = cause == "uneven" && (k * 7) % n == r ? 1 + ms / 100 : 1
		if (cause == "contention" && i >= 5)
			slow = 1 + ms / 100
		op(r, "autograd::engine::evaluate_function: MmBackward0", 4000000 * slow)
		if (i == 4)
			from = at[r]
		at[r] += 20000
	}
	if (cause == "contention") { # a thread of its own reduces meanwhile
		put(r, "collective", "allreduce", 2, from + 1000, at[r] - 30000, "\"Process Group Name\": \"dp\", \"Seq\": " 1000 + k ", \"bytes\": 4000000")
	}
}
function evaluate(r, k,    begin) {
	if (cause != "evaluation" || !here(r) || !(k % 2))
		return
	if (named)
		put(r, "user_annotation", "validation", 1, at[r] - 1, at[r] + ms * 1000000, "")
	for (begin = at[r]; at[r] < begin + ms * 1000000;)
		op(r, "aten::addmm", 2000000)
}
function host_step(k,    r, begin) {
	for (r = 0; r < n; r++) {
		begin[r] = at[r]
		at[r] += 50000
		if (cause == "input" && here(r) && now(k)) {
			if (named) {
				range(r, "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", vary(ms * 1000000))
				within(r, begin[r] + 50000, at[r])
			} else
				at[r] += vary(ms * 1000000)
		}
		if (cause == "compilation" && here(r))
			pause(r, "user_annotation", "_compile.compile_inner")
		forward(r)
		if (cause == "garbage" && here(r) && k % 2 && now(k))
			pause(r, "python_function", "<built-in method collect of module object at 0x7f>")
		backward(r, k)
	}
	if (cause == "link")
		pairs()
	else
		allreduce()
	for (r = 0; r < n; r++) {
		range(r, "user_annotation", "Optimizer.step#SGD.step", vary(1000000))
		if (!outside)
			evaluate(r, k)
		if (cause == "checkpoint" && here(r) && k % 3 == 2)
			pause(r, "user_annotation", "save_checkpoint")
		at[r] += 50000 + lose(0.3)
		put(r, "user_annotation", "ProfilerStep#" k, 1, begin[r], at[r], "")
		if (outside)
			evaluate(r, k)
	}
}
function call(name, ns) {
	corr++
	put(0, "cuda_runtime", name, 1, at[0], at[0] + ns, "\"correlation\": " corr)
	at[0] += ns
}
function kernel(cat, name, ns) {
	free = max(free, at[0] + 5000)
	put(0, cat, name, 7, free, free + ns, "\"device\": 0, \"stream\": 7, \"correlation\": " corr)
	free += ns
}
# the call lasts until the device has done everything
function wait(name, ns) { call(name, max(at[0] + 5000, free + 2000) - at[0] + ns) }
function device_step(k,    i, begin, from) {
	begin = at[0]
	for (i = 0; i < 20; i++) {
		from = at[0]
		at[0] += vary(cause == "launch" ? ms * 1000000 : 100000)
		call("cudaLaunchKernel", 6000)
		kernel("kernel", i < 10 ? "gemm_forward" : "gemm_backward", vary(cause == "launch" ? 300000 : 2000000))
		put(0, "cpu_op", i < 10 ? "aten::addmm" : "autograd::engine::evaluate_function: AddmmBackward0", 1, from, at[0] + 2000, "")
		at[0] += 4000
		if (cause == "sync") {
			from = at[0]
			wait("cudaStreamSynchronize", 1000)
			put(0, "cpu_op", "aten::_local_scalar_dense", 1, from - 1000, at[0] + 1000, "")
			at[0] += vary(ms * 1000000)
		}
		if (cause == "memory" && named) {
			wait("cudaFree", vary(ms * 500000))
			call("cudaMalloc", vary(ms * 500000))
		} else if (cause == "memory") {
			wait("cudaMemcpyAsync", vary(ms * 1000000))
			put(0, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, at[0] - int(ms * 900000), at[0] - 1000,
				"\"device\": 0, \"stream\": 7, \"correlation\": " corr ", \"bytes\": 40000000")
			free = at[0]
		}
	}
	wait("cudaDeviceSynchronize", 1000)
	at[0] += 20000
	put(0, "user_annotation", "ProfilerStep#" k, 1, begin, at[0], "")
}
BEGIN {
	seq = corr = free = 0
	n = n ? n : 2; steps = steps ? steps : 6; seed = seed ? seed : 1; who = who == "" ? -1 : who
	named = named == "" ? 1 : named
	device = cause ~ /^(sync|memory|launch)$/
	if (device)
		n = 1
	for (r = 0; r < n; r++) {
		file[r] = dir "/rank" r ".json"
		printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": %d}, \"traceEvents\": [\n", r, n >file[r]
		at[r] = 1000000
	}
	for (k = 1; k <= steps; k++)
		if (device)
			device_step(k)
		else
			host_step(k)
	for (r = 0; r < n; r++)
		print "\n]}" >file[r]
}
