# shellcheck shell=sh
# run --device: training on a GPU's backend (with an emulated device behind it), and what is said where
# there is no GPU, or not what one needs; statuses from the table.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
unset PL_CUDA_PLUGIN EMU_DEVICE PACELINE_CUDNN FAKE_CUDNN
tiny_job 20

# ---- plugins that are none ----
mkdir alone
cp "$run" alone/
status 6 "no plugin beside the program" alone/run --device=cuda tiny.job
says 'the CUDA backend is not here' "it says what is missing"
says 'built by make where nvcc is' "and how to get it"
echo nothing >text.so
status 6 "a file that is no shared object" env PL_CUDA_PLUGIN="$TMP/text.so" "$run" --device=cuda tiny.job
says 'cannot be loaded' "it says why"
fake() {
	echo "$1" >fake.c
	$CC -shared -fPIC -o fake.so fake.c
}
fake 'int other;'
status 6 "a shared object that is no plugin" env PL_CUDA_PLUGIN="$TMP/fake.so" "$run" --device=cuda tiny.job
says 'no symbol pl_plugin_cuda' "it says so"
fake 'const struct { const char *version; const void *backend; } pl_plugin_cuda = { "0.0.1", 0 };'
status 6 "a plugin of another version" env PL_CUDA_PLUGIN="$TMP/fake.so" "$run" --device=cuda:1 tiny.job
says 'is of version 0.0.1, this program of' "it names both"

# ---- jobs ----
status 2 "an unknown device" "$run" --device=tpu tiny.job
says 'device must be one of cpu|cuda|cuda:N' "it names those there are"
status 2 "a device without a number" "$run" --set device=cuda:x tiny.job
echo device tpu | cat tiny.job - >tpu.job
status 3 "an unknown device in a job" "$run" tpu.job
says 'tpu.job: line 8, column 8: device must be one of' "it names the line"
status 3 "tf32 without a GPU" "$run" --set precision=tf32 tiny.job
says 'precision tf32 is that of GPUs' "it says what to write"
status 0 "the CPU by name" "$run" --device=cpu --log cpu.csv tiny.job

# ---- the real one, where it was built and no GPU is here ----
if [ ! -f "$BIN/paceline-cuda.so" ]; then
	skip "the backend without a GPU" "not built: no nvcc, or a build for tests"
elif [ -e /dev/nvidia0 ]; then
	skip "the backend without a GPU" "there is one: make test-gpu"
else
	status 6 "the backend without a GPU" "$run" --device=cuda tiny.job
	says 'no NVIDIA driver is installed\|no CUDA device is here\|is for CUDA' "it says what is missing"
fi

# ---- an emulated device ----
PL_CUDA_PLUGIN=$BUILD/emu-cuda.so
export PL_CUDA_PLUGIN
if [ ! -f "$PL_CUDA_PLUGIN" ]; then
	skip "an emulated device" "not built: no C++ compiler, or one that cannot have it"
	done_testing
	exit
fi
# refused DEVICE STATUS NAME TEXT
refused() {
	status "$2" "$3" env EMU_DEVICE="$1" "$run" --device=cuda tiny.job
	says "$4" "it says so"
}
refused driver=0 6 "no driver" 'no NVIDIA driver is installed'
refused driver=12020 6 "an old driver" 'is for CUDA 12.2, this backend was built with 13.0'
refused count=0 6 "no device" 'no CUDA device is here'
refused major=7 6 "an old device" 'compute capability 7.0; the backend needs 8.0'
refused memory=20000000 5 "no memory at all" 'no memory for products'
refused memory=33557000 5 "too little memory" 'no memory of the device for .*: [0-9]* bytes; [0-9]* of its 33557000 are free'
refused broken=1 4 "a device that fails" 'unspecified launch failure'
status 6 "a device that is not there" "$run" --device=cuda:4 tiny.job
says 'there is no device cuda:4' "it says how many there are"
status 0 "several, and a launcher that does not say the rank's place on the host" env EMU_DEVICE=count=3 \
	PACELINE_RANK=0 PACELINE_SIZE=1 "$run" --device=cuda tiny.job

# of ranks alone, whatever starts the server before them
status 6 "GPUs of ranks, with a server" env EMU_DEVICE=count=4,major=7 "$run" -n 2 --device=cuda --set 'engine ps' tiny.job
says 'rank 1: device cuda:1,' "they have the numbers of the ranks"
for place in 'LOCAL_RANK=2 LOCAL_WORLD_SIZE=3' ''; do
	# shellcheck disable=SC2086  # several words
	status 6 "... of a launcher that says ${place:-no place}" env EMU_DEVICE=count=4,major=7 RANK=2 WORLD_SIZE=3 \
		PACELINE_TOKEN=0123456789abcdef $place "$run" --meet "dir:$TMP" --device=cuda --set 'engine ps' tiny.job
	says 'rank 1 (RANK=2): device cuda:1,' "they do, too"
done

# near A B SHARE: the losses of two logs
near() {
	losses "$1" >a
	losses "$2" >b
	paste a b | awk -v share="$3" '
		{ d = $1 - $2; if (d < 0) d = -d; if (d > share * $1) bad = 1; n++ }
		END { exit bad || n != 20 }'
}
status 0 "training" "$run" --device=cuda --log gpu.csv --export a.st tiny.job
check "losses are those of the CPU" near cpu.csv gpu.csv 0.0001
status 0 "again" "$run" --device=cuda:0 --export b.st tiny.job
check "the same to the bit" cmp a.st b.st
status 0 "evaluated now and then" "$run" --device=cuda --set eval-every=3 --export c.st tiny.job
check "the same, too" cmp a.st c.st
status 0 "in bfloat16" "$run" --set 'device cuda' --set 'precision bf16' --log half.csv tiny.job
check "losses are near" near cpu.csv half.csv 0.05
check "but not the same" sh -c '! cmp -s gpu.csv half.csv'
status 0 "in tf32" "$run" --device=cuda --set precision=tf32 --log tf32.csv tiny.job
status 0 "in microbatches" "$run" --device=cuda --set accumulate=4 --log four.csv tiny.job
check "they sum up to the same" near cpu.csv four.csv 0.001
status 0 "two ranks on the CPU" "$run" -n 2 --log cpu2.csv tiny.job
for transport in shm tcp; do
	status 0 "two ranks on a device, $transport" timeout 50 "$run" -n 2 --device=cuda --transport=$transport \
		--log two.csv tiny.job
	check "losses are those of the CPU" near cpu2.csv two.csv 0.0001
done

status 0 "a server that evaluates on the second device" env EMU_DEVICE=count=2 timeout 50 "$run" --device=cuda:1 --set 'engine ps' \
	--set eval-every=5 --log server.csv tiny.job
check "it does, while it serves" [ "$(awk -F , 'NR > 1 && $5 > 0' server.csv | wc -l)" -ge 2 ]

# of one rank, at its start and in the middle: all end, and say whose it was
for transport in shm tcp; do
	for at in 30 300; do
		env PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_TOKEN=0123456789abcdef PACELINE_MEET="dir:$TMP" EMU_DEVICE=fails=$at \
			timeout 20 "$run" -q --device=cuda --transport=$transport tiny.job 2>err.1 &
		status 4 "a device of another rank that fails, $transport, operation $at" env PACELINE_RANK=0 PACELINE_SIZE=2 \
			PACELINE_TOKEN=0123456789abcdef PACELINE_MEET="dir:$TMP" timeout 20 "$run" -q --device=cuda \
			--transport=$transport tiny.job
		wait $!
		check "... on both" [ $? = 4 ]
		says 'rank 1' "... it says whose"
		holds err.1 'run: rank 1: .*unspecified launch failure' "... and that rank what"
	done
done

# ---- attention, by instructions of one generation ----
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c", 97 + (i * i + int(i / 7)) % 23 }' >text
steps=2
! sanitized any || steps=1
sed "s/^model .*/model gpt:layers=1,heads=1,width=64,context=70,vocab=32/
	s/^data .*/data tokens:text,type=bytes/; s/^batch .*/batch 2/; s/^steps .*/steps $steps/
	s/^optimizer .*/optimizer sgd lr=0.1/" tiny.job >gpt.job
# attends NAME VARIABLE=VALUE...: trains, exports NAME.st
attends() {
	name=$1
	shift
	status 0 "attention, $name" env "$@" "$run" -v --device=cuda --set precision=bf16 --export "$name.st" gpt.job
}
attends wgmma EMU_DEVICE=
says '^run: attention is computed by wgmma$' "it says so"
attends mma PACELINE_ATTN=mma
says '^run: attention is computed by mma.sync$' "it says so"
attends differs EMU_DEVICE=unswizzled=1
says 'computed by mma.sync, which takes longer: wgmma gave something else .*heads of 64' "it says so"
check "and does not take it" cmp differs.st mma.st
check "though it could have" sh -c '! cmp -s wgmma.st mma.st'
attends ampere EMU_DEVICE=major=8
check "a device without it is not asked" sh -c '[ ! -s err ] && cmp ampere.st mma.st'

# ---- convolutions, by a library that stands in for cuDNN ----
images_job 20
cudnn=$BUILD/emu/fake_cudnn.so
status 0 "images on the CPU" "$run" --log cpu.csv tiny.job
status 0 "on a device" "$run" --device=cuda --log own.csv --export own.st tiny.job
check "losses are those of the CPU" near cpu.csv own.csv 0.0001
status 0 "by cuDNN" env PACELINE_CUDNN="$cudnn" "$run" -v -n 2 --device=cuda --log gpu.csv tiny.job
check "it says so, once" test "$(grep -c 'computed by cuDNN 9.1.0' "$TMP/err")" = 1
status 0 "by cuDNN, one rank" env PACELINE_CUDNN="$cudnn" "$run" --device=cuda --log gpu.csv --export gpu.st tiny.job
check "without a word" test ! -s "$TMP/err"
check "losses are those of the CPU" near cpu.csv gpu.csv 0.0001
check "though it was another who computed" sh -c '! cmp -s own.st gpu.st'
status 0 "by one that is too old" env PACELINE_CUDNN="$cudnn" FAKE_CUDNN=version=8907 "$run" --device=cuda \
	--export old.st tiny.job
says 'without cuDNN, .*: .* is cuDNN 8.9.7, version 9 is needed (PACELINE_CUDNN=' "it says so"
check "our kernels serve, to their bits" cmp own.st old.st
done_testing
