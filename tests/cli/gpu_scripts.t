# The scripts that measure and test on a GPU, without one: bench/gpu through its end on a device that only lists what it
# is given; its ratios and verdicts, and what tests/gpu makes of programs, from programs whose results are known.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

cd "$TMP" || exit 1
unset PL_CUDA_PLUGIN EMU_DEVICE EMU_LIST PACELINE_CUDNN KIT GPU_BIN PEERS QUICK DATA BATCH LIMIT SANITIZE KEEP LD_LIBRARY_PATH
PYTHON=false
export PYTHON

# program NAME < SCRIPT: into ./NAME
program() {
	mkdir -p "$(dirname "$1")"
	{
		echo '#!/bin/sh'
		cat
	} >"$1"
	chmod +x "$1"
}
# shows TEXT NAME: what bench/gpu or tests/gpu printed has that line; blanks are as many as there are
shows() {
	sed 's/   */ | /g' out >lines
	holds lines "$1" "$2"
}

# ---- all parts but attention, on a device that lists ----
if [ -x "$BUILD/emu/gpu/gpu_rates" ]; then
	status 1 "all of bench/gpu but attention, on a device that lists" env GPU_BIN="$BUILD/emu/gpu" EMU_LIST=/dev/null \
		EMU_DEVICE=memory=100000000000,sms=132 PL_CUDA_PLUGIN="$BUILD/emu-cuda.so" KEEP="$TMP/kept it" \
		"$SRC/bench/gpu" -q rates products conv gpt mlp cnn traces
	check "but for the trace, which lacks the device, nothing is amiss" [ "$(tail -n 1 out)" = '1 missed' ]
	check "each part is there to its end" \
		[ "$(sed -n 's/^  \([a-z]*\): [0-9]* s$/\1/p' out | tr '\n' ' ')" = 'rates products conv gpt mlp cnn traces ' ]
	check "each kernel has a rate" [ "$(grep -c "of the copy's rate  .*GB/s" out)" = 40 ]
	check "what it is made of is kept" grep -q '^copy 134217728 ' "kept it/bench-gpu.raw"
	check "and the trace's graph" [ -s "kept it/small.graph" ]
else
	skip "bench/gpu on a device that lists" "not built"
fi

# ---- known numbers ----
program kit/gpu/gpu_rates <<'END'
case $1 in
products) echo "forward 1 2 3" ;;
bf16)
	echo "copy 100 0.5 4000 1.000"
	echo "gelu 100 0.5 3480 0.870"
	echo "adamw 100 0.5 3360 0.840"
	echo "embedding 100 0.5 400 0.100"
	;;
fp32)
	echo "copy 100 0.5 4000 1.000"
	[ "$2" = 16 ] || {
		echo "gpu_rates: unspecified launch failure" >&2
		exit 4
	}
	;;
esac
END
program kit/gpu/gpu_conv <<'END'
echo half of it
echo "gpu_conv: 1 of them are too far apart" >&2
exit 1
END
program kit/gpu/gpu_attn <<'END'
echo "attention by ${PACELINE_ATTN:-wgmma}"
END
# a step takes 0.1 s, with a trace 2 % more; one takes 5, and those in the beginning 1
program kit/bin/run <<'END'
s=0.1
while [ $# -gt 1 ]; do
	[ "$1" != --log ] || log=$2
	[ "$1" != -t ] || s=0.102
	shift
done
awk -v s="$s" '/^batch / { batch = $2 } /^steps / { steps = $2 } END {
	print "time_s,step,samples,loss,eval_loss,accuracy"
	for (i = 1; i <= steps; i++) {
		t += i == 30 ? 5 : i <= 10 ? 1 : s
		printf "%.6f,%d,%d,2.5,,\n", t, i, i * batch
	}
}' "$1" >"$log"
END
for p in merge graph replay; do
	program kit/bin/$p <<'END'
exit 3
END
done
program python <<'END'
case $* in
*'import glob, nvidia'*) exit 1 ;;
*torch.__version__*) echo 2.11 ;;
*gpu_attn.py*) echo "attention of both" ;;
*gpu_train.py\ gpt*)
	echo "gpt: compile, 70 s to the first 10 steps" >&2
	shift 6
	mine=$("$@") # our samples a second
	echo "$mine 400 compile"
	echo "330 300 compile"
	echo "$mine 200 compile"
	;;
*gpu_train.py\ mlp*) echo "50 100 eager" ;;
*gpu_train.py*)
	echo "out of memory" >&2
	exit 1
	;;
esac
END
status 1 "bench/gpu on planted numbers" env -u BIN KIT="$TMP/kit" PYTHON="$TMP/python" KEEP="$TMP/kept" "$SRC/bench/gpu"
shows "^gelu, of the copy's rate | 1024 MiB, bf16 | 0.870 | >= 0.85 | 3480 GB/s | ok" "a share is enough"
shows "^adamw, of the copy's rate | 1024 MiB, bf16 | 0.840 | >= 0.85 | 3360 GB/s | MISSED" "or not"
shows "^embedding, of the copy's rate | 1024 MiB, bf16 | 0.100 | 400 GB/s" "or none is asked for"
shows 'failed: the rates of kernels, fp32, status 4' "a helper fails behind its first line"
shows 'unspecified launch failure' "... with its word"
shows '^attention by mma' "the next part runs"
shows 'failed: conv, status 1' "another fails"
shows '^half of it' "... what it printed is there"
shows 'too far apart' "... and why"
# 32 samples in 0.1 s; 320 / 400, 330 / 300, 320 / 200
shows 'times PyTorch, compile | gpt, 32 samples, bf16 | 1.100 | >= 0.9 | 320 / 300 samples/s | ok' "the median of the turns' ratios"
shows 'gpt: PyTorch with compile, 70 s' "what compiling took"
shows 'times PyTorch, eager | mlp, 4096 samples, fp32 | 0.500 | 50 / 100 samples/s | failed: torch.compile' "without compile that is no peer"
shows 'failed: cnn beside PyTorch' "a peer that fails"
shows '^training | cnn, 512 samples, fp32 | 5120 samples/s' "... leaves ours"
shows '^cost of tracing a step | gpt, 8 samples, bf16 | 2.00 % | <= 2 % | ok' "what a trace costs"
shows 'failed: replay of the trace' "a trace that cannot be read"
check "all of it counts" [ "$(tail -n 1 out)" = '9 missed' ]
check "the turns are kept" grep -q '^330 300 compile$' kept/bench-gpu.raw

# ---- attention beside a PyTorch that takes 0.2 ms for everything, and whose cuDNN cannot ----
if command -v python3 >/dev/null 2>&1; then
	mkdir -p torch/nn
	cat >torch/__init__.py <<'END'
from contextlib import nullcontext as no_grad
from types import SimpleNamespace as Some
__version__ = "0"
cudnn = False
class Tensor:
    def __getattr__(self, name):
        return lambda *args: self
class Event:
    def __init__(self, enable_timing):
        self.at = None
    def record(self):
        self.at = 1
    def synchronize(self):
        assert self.at
    def elapsed_time(self, end):
        return 0.2
cuda = Some(Event=Event, is_available=lambda: True, get_device_name=lambda: "none")
rand = lambda *shape, device: Tensor()
autograd = Some(grad=lambda y, xs, dy: None)
END
	cat >torch/nn/__init__.py <<'END'
import torch
functional = torch.Some()
functional.scaled_dot_product_attention = lambda q, k, v, is_causal: torch.Tensor()
END
	cat >torch/nn/attention.py <<'END'
import torch
SDPBackend = torch.Some(CUDNN_ATTENTION=1)
def sdpa_kernel(backend):
    raise RuntimeError("not here")
END
	program helper <<'END'
echo "$@ $LD_LIBRARY_PATH" >>asked
echo "100 ${FAKE_BOTH:-300} 600"
END
	status 0 "attention beside PyTorch" env PYTHONPATH="$TMP" PYTHONDONTWRITEBYTECODE=1 GPU_LIBS=/ours \
		python3 "$SRC/bench/gpu_attn.py" ./helper 2
	# 2 x 1024 x 16384 x 2048 / 100 us; of 600 TFLOPS; 3.5 times as many in 300 us
	holds out '^  1024    64      100     687   115%      200   2.00      300     802   134%      200   0.67    nan    nan$' \
		"rates, shares and ratios"
	check "each shape twice, with our libraries" [ "$(sort asked | uniq -c | grep -c '2 [1248]*[0-9]* [0-9]* /ours$')" = 8 ]
	status 1 "below what is asked for" env FAKE_BOTH=400 PYTHONPATH="$TMP" PYTHONDONTWRITEBYTECODE=1 \
		python3 "$SRC/bench/gpu_attn.py" ./helper 1
	says "below 0.6 of PyTorch's rate: 0.50" "it says so"
else
	skip "attention beside PyTorch" "no python3"
fi

program kit/gpu/gpu_rates <<'END'
echo "gpu_rates: no CUDA device is here" >&2
exit ${FAKE_STATUS:-6}
END
status 0 "bench/gpu without a device" env -u BIN KIT="$TMP/kit" "$SRC/bench/gpu"
shows 'no CUDA device is here' "it says so"
status 1 "bench/gpu on one that fails" env -u BIN FAKE_STATUS=4 KIT="$TMP/kit" "$SRC/bench/gpu" products

# ---- tests/gpu ----
program kit/gpu/cuda_backend_test <<'END'
echo "ok 1 - a kernel"
echo "# convolutions by ${PACELINE_CUDNN:-cuDNN}"
[ -z "${PACELINE_CUDNN:-}" ] || {
	echo "not ok 2 - without cuDNN"
	exit 1
}
END
program kit/gpu/cuda_attn_test <<'END'
echo "ok 1 - a head"
exec sleep 20
END
program kit/unit/nccl_gpu_test <<'END'
echo "1..0 # SKIP no device at all"
END
program kit/bin/run <<'END'
echo "run: no such device" >&2
exit ${FAKE_STATUS:-6}
END
on_kit() {
	env -u BIN -u BUILD KIT="$TMP/kit" LIMIT=1 KEEP="$TMP/kept" "$@"
}
status 1 "tests/gpu, where some fail" on_kit "$SRC/tests/gpu"
shows '^cuda_backend_test | 1 passed' "what passes"
shows '^cuda_backend_test, without cuDNN | 1 passed, 1 FAILED (status 1)' "what fails"
shows '^not ok 2 - without cuDNN' "... is shown"
shows '^cuda_attn_test | 1 passed, 1 FAILED (stopped after 1 s)' "what hangs is stopped, and counts as far as it came"
shows '^nccl_gpu_test | skipped: no device at all' "what is skipped, says why"
shows '^run | skipped: no such device' "so does run"
check "the sum of all" [ "$(tail -n 1 out)" = '3 passed, 2 failed, 2 skipped' ]
check "all of it is kept" grep -q '^ok 1 - a head' kept/tests-gpu.raw
status 1 "run fails, where the device is there" on_kit env FAKE_STATUS=4 "$SRC/tests/gpu" run
shows '^run: FAILED: a job on the device' "it says so"
shows '^run: no such device' "... and why"
mkdir none
status 0 "where nothing was built" env -u BIN -u BUILD KIT="$TMP/none" "$SRC/tests/gpu"
shows 'nothing was built for GPUs' "it says so"
done_testing
