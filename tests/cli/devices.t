#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process with several devices (torch.nn.DataParallel, a pipeline in one process): streams of two devices have the same
# numbers, and must not be taken for one.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

# two steps; in each the host launches on both devices and waits for stream 7 of device 0, where the kernel ends 100 us before
# that of device 1; in the second half device 1 waits for an event of device 0
awk 'function x(cat, name, pid, tid, ts, dur, args) {
	printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}}", n++ ? ",\n" : "",
		cat, name, pid, tid, ts, dur, args
}
function launch(ts, device, name, start, dur) {
	x("cuda_runtime", "cudaLaunchKernel", 100, 100, ts, 10, "\"correlation\":" ++c)
	x("kernel", name, device, 7, start, dur, "\"device\":" device ",\"stream\":7,\"context\":1,\"correlation\":" c)
}
BEGIN {
	printf "{\"schemaVersion\":1,\"baseTimeNanoseconds\":1700000000000000000,\"traceEvents\":["
	for (step = 0; step < 2; step++) {
		t = step * 2000
		x("user_annotation", "ProfilerStep#" step, 100, 100, t, 2000, "")
		launch(t + 10, 1, "other", t + 30, 770)
		launch(t + 30, 0, "awaited", t + 50, 650)
		x("cuda_runtime", "cudaStreamSynchronize", 100, 100, t + 50, 752, "\"correlation\":" ++c)
		x("cuda_sync", "Stream Sync", 0, 7, t + 50, 650, "\"cuda_sync_kind\":\"Stream Sync\",\"stream\":7,\"device\":0,\"context\":1,\"correlation\":" c)
		launch(t + 900, 0, "first", t + 915, 400)
		x("cuda_runtime", "cudaEventRecord", 100, 100, t + 911, 2, "\"correlation\":" ++c)
		record = c
		x("cuda_runtime", "cudaStreamWaitEvent", 100, 100, t + 914, 2, "\"correlation\":" ++c)
		x("cuda_sync", "Stream Wait Event", 1, 7, t + 914, 0, "\"cuda_sync_kind\":\"Stream Wait Event\",\"stream\":7,\"device\":1,\"wait_on_stream\":7,\"wait_on_cuda_event_record_corr_id\":" record ",\"wait_on_cuda_event_id\":1,\"correlation\":" c)
		launch(t + 920, 1, "second", t + 1317, 400)
		x("cuda_runtime", "cudaDeviceSynchronize", 100, 100, t + 940, 780, "\"correlation\":" ++c)
		x("cuda_sync", "Device Sync", 1, -1, t + 940, 780, "\"cuda_sync_kind\":\"Context Sync\",\"stream\":-1,\"device\":1,\"context\":2,\"correlation\":" c)
	}
	print "]}"
}' >two.json
"$BIN/trace" -q -O stat two.json >out
check "statistics" test -s out
holds out '^ *device 0 ' "a row for device 0"
holds out '^ *device 1  *[0-9.]* ms  *2.34 ms' "... and for device 1, with the time of its kernels"
status 0 "a graph" "$BIN/graph" -q -O text -o text two.json
check "streams have the names of their devices" test "$(grep -c '^resource.*device [01] stream 7' text)" = 2
"$BIN/replay" -q --no-worth two.json >out
check "a report" test -s out
holds out '^ *[0-9.]*%.* kernel  *0  *0  awaited$' "the host waits for the stream of the device that the record names"
holds out '^ *[0-9.]*%.* kernel  *0  *0  first$' "and a stream for that of another device, though both have one number"
check "not for the other device" sh -c '! grep -q "kernel.* other$" out'
"$BIN/replay" -q --no-worth -O json two.json >report
holds report '"device":0,' "the device in JSON"
done_testing
