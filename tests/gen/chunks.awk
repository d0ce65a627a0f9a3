# Profiler files of a simulated data-parallel job that records the messages of its collectives:
#
#	awk -v dir=DIR [-v n=RANKS] [-v steps=N] [-v channels=N] [-v bw=BYTES_PER_NS] [-v skew=NS]
#		[-v flight=NS] [-v work=NS] [-v rest=NS] [-v busy=NS] [-v recv=0] [-v messages=0] [-v direct=1]
#		[-v pieces=N] -f chunks.awk
#
# Each step has two computations, each followed by an all-reduce of another size: a ring, in `channels`
# channels, in which a message takes 4 us + bytes / bw and is there `flight` (3 us) after it was sent. A
# receive lasts from the one before; with `work`, only so long, from when the message is there. A
# collective ends `rest` (0) after its last message. In a ring, one send in five takes `busy` longer, because its
# processor does something else. `direct`: no ring, but each rank sends all its data to
# each other rank at the same time, in a channel for each. With `pieces`, it sends them one after the other,
# each rank beginning with another piece, in a channel for each piece. A rank takes piece by piece, each
# from all ranks in their order, as they are added: it waits for some although others are there. Chrome JSON
# as paceline-trace(5) has it, one file a rank, and DIR/truth with the length of each step, over all
# ranks. Rank r's clock is r * skew ahead. Integer ns all through.
function max(a, b) { return a > b ? a : b }
function put(r, cat, name, tid, from, until, args) {
	printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": \"%s\", \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		sep[r], cat, name, r, tid, (from + r * skew) / 1000, (until - from) / 1000, args >file[r]
	sep[r] = ",\n"
}
function message(kind, r, q, c, chunk, x, from, until) {
	if (messages && (recv || kind == "send"))
		put(r, kind, kind " " chunk, "channel " c, from, until, "\"Process Group Name\": \"dp\", \"of\": " seq \
			", \"channel\": " c ", \"chunk\": " chunk ", \"peer\": " q ", \"bytes\": " x)
}
function allreduce(bytes,    c, s, r, left, x, dur, from, chunk, there) {
	x = int(bytes / n / channels)
	dur = 4000 + int(x / bw * channels)
	for (r = 0; r < n; r++)
		done[r] = 0
	for (c = 0; c < channels; c++) {
		for (r = 0; r < n; r++)
			out[r] = got[r] = at[r]
		for (s = 0; s < 2 * (n - 1); s++) {
			for (r = 0; r < n; r++) {
				from = max(out[r], got[r])
				sent[r] = from
				out[r] = from + dur + (++sends % 5 ? 0 : busy)
				chunk = (r + n * 2 - s) % n
				message("send", r, (r + 1) % n, c, chunk, x, from, out[r])
			}
			for (r = 0; r < n; r++) {
				left = (r + n - 1) % n
				chunk = (left + n * 2 - s) % n
				there = max(got[r], out[left] + flight)
				message("recv", r, left, c, chunk, x, work ? there : got[r], there + work)
				got[r] = there + work
			}
		}
		for (r = 0; r < n; r++)
			done[r] = max(done[r], max(out[r], got[r]) + rest)
	}
	ended(bytes)
}
function direct_allreduce(bytes,    r, q, k, p, x, dur, from, there, free) {
	x = int(bytes / pieces)
	dur = 4000 + int(x / bw)
	for (r = 0; r < n; r++)
		done[r] = at[r] + pieces * dur
	for (r = 0; r < n; r++)
		for (q = 0; q < n; q++)
			for (k = 0; k < pieces && q != r; k++) {
				from = at[r] + k * dur
				p = (r + k) % pieces
				message("send", r, q, pieces > 1 ? p : q - (q > r), r * pieces + p, x, from, from + dur)
				arrive[r, q, p] = from + dur + flight
			}
	for (q = 0; q < n; q++) {
		free = 0
		for (p = 0; p < pieces; p++)
			for (r = 0; r < n; r++) {
				if (q == r)
					continue
				there = max(free, arrive[r, q, p])
				message("recv", q, r, pieces > 1 ? p : r - (r > q), r * pieces + p, x,
					work ? there : at[q], there + work)
				done[q] = max(done[q], there + work)
				if (pieces > 1)
					free = there + work
			}
	}
	for (r = 0; r < n; r++)
		done[r] += rest
	ended(bytes)
}
function ended(bytes,    r) {
	for (r = 0; r < n; r++) {
		put(r, "collective", "allreduce", "main", at[r], done[r], "\"Process Group Name\": \"dp\", \"Seq\": " seq \
			", \"bytes\": " bytes)
		at[r] = done[r]
	}
	seq++
}
function reduce(bytes) {
	if (direct)
		direct_allreduce(bytes)
	else
		allreduce(bytes)
}
function compute(k, ns,    r, dur) {
	for (r = 0; r < n; r++) {
		dur = ns + 1000 * ((r * 7 + k * 5) % 11)
		put(r, "host_op", "matmul", "main", at[r], at[r] + dur, "")
		at[r] += dur
	}
}
BEGIN {
	seq = 0
	n = n ? n : 4; steps = steps ? steps : 3; bw = bw ? bw : 1; skew += 0
	channels = channels ? channels : 2
	recv = recv == "" ? 1 : recv
	flight = flight == "" ? 3000 : flight; work += 0; rest += 0; busy += 0
	messages = messages == "" ? 1 : messages
	pieces = pieces ? pieces : 1
	for (r = 0; r < n; r++) {
		file[r] = dir "/rank" r ".json"
		printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": %d}, \"traceEvents\": [\n", r, n >file[r]
		at[r] = 1000000
	}
	for (k = 1; k <= steps; k++) {
		for (r = 0; r < n; r++)
			begin[r] = at[r]
		compute(k, 100000)
		reduce(800000)
		compute(k + 1, 50000)
		reduce(240000)
		first = begin[0]; last = 0
		for (r = 0; r < n; r++) {
			put(r, "step", "ProfilerStep#" k, "main", begin[r], at[r], "\"step\": " k)
			first = begin[r] < first ? begin[r] : first
			last = max(last, at[r])
		}
		print last - first >(dir "/truth")
	}
	for (r = 0; r < n; r++)
		print "\n]}" >file[r]
}
