# Profiler files of a simulated job whose ranks wait in a way that nobody recorded:
#
#	awk -v dir=DIR [-v wait=WAIT] [-v members=RANK,RANK...] [-v n=RANKS] [-v steps=N] [-v who=RANK -v by=FACTOR]
#		[-v skew=NS] [-v seed=N] [-v table=1] -f unrecorded.awk
#
# A step is: 4 forward operations of 1 to 4 ms, the wait, 4 backward operations of 2 to 3 ms, a recorded all-reduce of 1 ms
# over all ranks, an update. The waits of the members are
#	meet	for the last of them, and 150 us more
#	timer	for the next multiple of 10 ms of a clock
#	remote	for a service that answers all of them 3 to 20 ms after the last one asked
#	noise	for 0 to 6 ms, each for its own time
#	chance	the same, but in one step of five they end together as with meet
# Threads go on up to 30 us later. All operations of rank `who` take `by` times as long. Rank r's clock is r * skew ahead.
# Chrome JSON, one file a rank; with `table` one operation table.
function max(a, b) { return a > b ? a : b }
function random() { return (seed = (seed * 16807) % 2147483647) / 2147483647 }
function uniform(a, b) { return int(a + (b - a) * random()) }
function put(r, cat, name, from, until, args) {
	if (table) {
		if (cat != "user_annotation")
			printf "%d,0,%d,%d,%s,%.9f,%.9f,%d,0,%d,0\n", r, r, k, name, (from - begin) / 1e9, (until - from) / 1e9,
				count[r, k, name], count[r, k, name]++ >dir "/table.csv"
		return
	}
	printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
		sep[r], cat, name, 100 + r, (from + r * skew) / 1000, (until - from) / 1000, args >file[r]
	sep[r] = ",\n"
}
function op(r, name, ns) {
	ns = int(ns * (r == who ? by : 1))
	put(r, "cpu_op", name, at[r], at[r] + ns, "")
	at[r] += ns + (table ? 0 : 20000)
}
function wait_for_members(k,    i, r, last, end, own) {
	for (i = 1; i <= n_members; i++)
		last = max(last, at[member[i]])
	end = last + (wait == "remote" ? uniform(3000000, 20000000) : 150000)
	for (i = 1; i <= n_members; i++) {
		r = member[i]
		own = uniform(0, 6000000)
		if (wait == "timer")
			end = (int(at[r] / 10000000) + 1) * 10000000
		if (wait == "noise" || (wait == "chance" && k % 5 != 2))
			end = at[r] + own
		at[r] = end + uniform(0, 30000)
	}
}
function allreduce(    r, end) {
	for (r = 0; r < n; r++)
		end = max(end, at[r])
	end += 1000000
	for (r = 0; r < n; r++) {
		put(r, "collective", table ? "grads-reduce-scatter" : "allreduce", at[r], end,
			"\"Process Group Name\": \"dp\", \"Seq\": " k ", \"bytes\": 4000000")
		at[r] = end
	}
}
BEGIN {
	n = n ? n : 4
	steps = steps ? steps : 6
	wait = wait ? wait : "meet"
	n_members = split(members ? members : "1,3", member, ",")
	seed = seed ? seed : 7
	who = who == "" ? -1 : who
	if (table)
		print "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc" >dir "/table.csv"
	for (r = 0; r < n; r++) {
		file[r] = dir "/rank" r ".json"
		at[r] = 1000000000
		if (!table)
			printf "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"gloo\", \"rank\": %d, \"world_size\": %d},\n\"traceEvents\": [\n",
				r, n >file[r]
	}
	for (k = 0; k < steps; k++) {
		begin = at[0] + 10000
		for (r = 0; r < n; r++) {
			own[r] = at[r]
			at[r] += table ? 10000 : 50000
			for (i = 0; i < 4; i++)
				op(r, table ? "forward-compute" : "aten::addmm", uniform(1000000, 4000000))
		}
		if (wait != "none")
			wait_for_members(k)
		for (r = 0; r < n; r++)
			for (i = 0; i < 4; i++)
				op(r, table ? "backward-compute" : "aten::mm", uniform(2000000, 3000000))
		allreduce()
		for (r = 0; r < n; r++) {
			op(r, table ? "optimizer" : "aten::add_", 500000)
			put(r, "user_annotation", "ProfilerStep#" k, own[r], at[r], "")
		}
	}
	for (r = 0; r < n && !table; r++)
		print "\n]}" >file[r]
}
