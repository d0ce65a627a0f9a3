# Profiler files of a simulated pipeline whose stages post sends and receives and wait for them later:
#
#	awk -v dir=DIR [-v n=STAGES] [-v copies=N] [-v m=MICROBATCHES] [-v steps=N] [-v schedule=gpipe|1f1b|ring|ahead]
#		[-v forward=NS] [-v backward=NS] [-v transfer=NS] [-v slow=STAGE] [-v shapes=0] [-v apart=1]
#		[-v call=NS] -f posted.awk
#
# As PyTorch records gloo: the operator c10d::send or c10d::recv_ posts, and names the peer with `shapes`;
# inside it, shortly before its end (`call`), begins the event gloo:send or gloo:recv, which ends when the
# thread waits for it. Data travels when both sides have posted and the data before has arrived, and takes
# `transfer`. All is on the main thread of each rank. `gpipe` waits for its sends after all microbatches,
# `1f1b` posts a send and a receive together; in `ring` each rank passes something on to the next one,
# computes, and waits; `ahead` is a forward pass whose receives are all posted first. The computation of stage
# `slow` takes half as long again. Each of `copies` pipelines is a group, which the headers list; rank = stage
# * copies + copy, but a peer is a place in the group. One file a rank, all of one host or, with `apart`, each
# of its own, and DIR/truth with the mean time of a step: from the begin of the first to the end of the last,
# over all ranks. Integer ns all through.
function max(a, b) { return a > b ? a : b }
function line(r, cat, name, from, until, args) {
	return sprintf("{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		cat, name, r + 100, r + 100, from / 1000, (until - from) / 1000, args)
}
function stage(r) { return int(r / copies) }
# What a rank does, in order, peers as stages: "C name ns", "S peer", "R peer", "W" (for all that was posted), "B", "E" (of a step).
function add(r, what) { program[r, length_of[r]++] = what }
function compute(r, name, ns) { add(r, "C " name " " int(ns * (stage(r) == slow ? 1.5 : 1))) }
function receive(r, peer) { if (peer >= 0 && peer < n) add(r, "R " peer) }
function give(r, peer) { if (peer >= 0 && peer < n) add(r, "S " peer) }
function forward_pass(r) { compute(r, "aten::linear", forward) }
function backward_pass(r) { compute(r, "autograd::engine::evaluate_function:_AddmmBackward0", backward) }
function gpipe(r,    i) {
	for (i = 0; i < m; i++) {
		receive(r, stage(r) - 1)
		if (stage(r))
			add(r, "L")
		forward_pass(r)
		give(r, stage(r) + 1)
	}
	add(r, "W")
	for (i = 0; i < m; i++) {
		receive(r, stage(r) + 1)
		if (stage(r) < n - 1)
			add(r, "L")
		backward_pass(r)
		give(r, stage(r) - 1)
	}
	add(r, "W")
}
function one_f_one_b(r,    i, warm) {
	warm = n - stage(r) - 1 < m ? n - stage(r) - 1 : m
	for (i = 0; i < warm; i++) {
		receive(r, stage(r) - 1)
		add(r, "W")
		forward_pass(r)
		give(r, stage(r) + 1)
		add(r, "W")
	}
	if (warm < m) {
		receive(r, stage(r) - 1)
		add(r, "W")
	}
	for (i = warm; i < m; i++) {
		forward_pass(r)
		give(r, stage(r) + 1)
		receive(r, stage(r) + 1)
		add(r, "W")
		backward_pass(r)
		give(r, stage(r) - 1)
		if (i < m - 1)
			receive(r, stage(r) - 1)
		add(r, "W")
	}
	for (i = 0; i < warm; i++) {
		receive(r, stage(r) + 1)
		add(r, "W")
		backward_pass(r)
		give(r, stage(r) - 1)
		add(r, "W")
	}
}
function ahead(r,    i) {
	for (i = 0; i < m; i++)
		receive(r, stage(r) - 1)
	for (i = 0; i < m; i++) {
		if (stage(r))
			add(r, "F")
		forward_pass(r)
		give(r, stage(r) + 1)
	}
	add(r, "W")
}
function ring(r,    i) {
	for (i = 0; i < m; i++) {
		add(r, "S " (stage(r) + 1) % n)
		add(r, "R " (stage(r) + n - 1) % n)
		forward_pass(r)
		add(r, "W")
	}
	backward_pass(r)
}
function group(name, first, step, n,    i, list) {
	for (i = 0; i < n; i++)
		list = list (i ? ", " : "") first + i * step
	return "{\"pg_name\": \"" name "\", \"pg_size\": " n ", \"ranks\": [" list "]}"
}
function groups(r) {
	return group("0", 0, 1, n * copies) (copies > 1 ? ", " group(1 + r % copies, r % copies, copies, n) ", " \
		group(10 + stage(r), stage(r) * copies, 1, copies) : "")
}
function post(r, send, peer,    key, args) {
	key = r % copies " " (send ? stage(r) ">" peer : peer ">" stage(r))
	nth[send, key]++
	key = key ":" nth[send, key]
	posted[send, key] = at[r]
	args = "\"Record function id\": 0"
	if (shapes)
		args = args ", \"Input Dims\": [[[64, 64]], [], [], []], \"Concrete Inputs\": [\"\", \"\", \"" peer "\", \"0\"]"
	text[r, lines[r]++] = line(r, "cpu_op", send ? "c10d::send" : "c10d::recv_", at[r], at[r] + call, args)
	open_key[r, opened[r]] = key
	open_send[r, opened[r]] = send
	open_from[r, opened[r]] = at[r] + call - 1000
	open_line[r, opened[r]++] = lines[r]++
	at[r] += call + gap
}
# When the message, the k-th from one rank to another, was there; 0: a partner has not posted.
function there(link, k,    key) {
	key = link ":" k
	if (key in arrived || !k)
		return arrived[key] + 0
	if (!((0, key) in posted) || !((1, key) in posted) || (k > 1 && !there(link, k - 1)))
		return 0
	return arrived[key] = max(max(posted[0, key], posted[1, key]), there(link, k - 1)) + transfer
}
# Waits for the post i of a rank; 0: its partner has not posted.
function wait(r, i,    key, until) {
	split(open_key[r, i], key, ":")
	until = there(key[1], key[2])
	if (!until)
		return 0
	at[r] = max(at[r], until)
	text[r, open_line[r, i]] = line(r, "user_annotation", open_send[r, i] ? "gloo:send" : "gloo:recv",
		open_from[r, i], at[r], shapes ? "\"Input Dims\": [[64, 64]], \"Input type\": [\"float\"]" : "")
	return 1
}
# One action of a rank; 0: it has to wait for another rank.
function act(r,    w) {
	split(program[r, pc[r]], w, " ")
	if (w[1] == "C") {
		sub(/_/, " ", w[2])
		text[r, lines[r]++] = line(r, "cpu_op", w[2], at[r], at[r] + w[3], "")
		at[r] += w[3] + gap
	} else if (w[1] == "S" || w[1] == "R") {
		post(r, w[1] == "S", w[2])
	} else if (w[1] == "L") { # for the last one only
		if (!wait(r, opened[r] - 1))
			return 0
		opened[r]--
	} else if (w[1] == "F") { # for the first one only
		if (!wait(r, waited[r]))
			return 0
		waited[r]++
	} else if (w[1] == "W") {
		for (; waited[r] < opened[r]; waited[r]++)
			if (!wait(r, waited[r]))
				return 0
		waited[r] = opened[r] = 0
		at[r] += gap
	} else if (w[1] == "B") {
		begin[r] = at[r]
		first = first && first < at[r] ? first : at[r]
		at[r] += gap
	} else {
		step[r]++
		text[r, lines[r]++] = line(r, "user_annotation", "ProfilerStep#" step[r], begin[r], at[r], "")
		last = max(last, at[r])
	}
	return 1
}
BEGIN {
	n = n ? n : 2; copies = copies ? copies : 1; m = m ? m : 4; steps = steps ? steps : 4
	forward = forward == "" ? 8000000 : forward; backward = backward == "" ? 17000000 : backward
	transfer = transfer == "" ? 200000 : transfer; shapes = shapes == "" ? 1 : shapes
	slow = slow == "" ? -1 : slow
	schedule = schedule ? schedule : "gpipe"
	call = call ? call : 100000; gap = 20000
	for (r = 0; r < n * copies; r++) {
		at[r] = 1000000
		lines[r] = opened[r] = waited[r] = length_of[r] = pc[r] = 0
		for (k = 0; k < steps; k++) {
			add(r, "B")
			if (schedule == "gpipe")
				gpipe(r)
			else if (schedule == "1f1b")
				one_f_one_b(r)
			else if (schedule == "ahead")
				ahead(r)
			else
				ring(r)
			add(r, "C Optimizer.step#SGD.step 3000000")
			add(r, "E")
		}
	}
	do {
		moved = 0
		for (r = 0; r < n * copies; r++)
			for (; pc[r] < length_of[r] && act(r); pc[r]++)
				moved = 1
	} while (moved)
	for (r = 0; r < n * copies; r++) {
		file = dir "/rank" r ".json"
		printf "{\"schemaVersion\": 1, \"host_name\": \"host%d\", \"distributedInfo\": {\"backend\": \"gloo\", \"rank\": %d, \"world_size\": %d, \"pg_config\": [%s]}, \"traceEvents\": [\n",
			apart ? r : 0, r, n * copies, groups(r) >file
		for (i = 0; i < lines[r]; i++)
			print text[r, i] (i < lines[r] - 1 ? "," : "") >file
		print "]}" >file
		if (pc[r] < length_of[r])
			print "deadlock" >(dir "/truth")
	}
	printf "%d\n", (last - first) / steps >(dir "/truth")
}
