# shellcheck shell=sh
# Libraries for programs that use a GPU, on a machine other than the one they were built on; use: . tests/gpu_libs.sh
#
# gpu_libs DIR    what the loader does not find by itself is looked for in DIR/lib (make gpu-kit fills that), where
#                 containers have the driver, among the packages that python's (PYTHON) torch brings, so that both have
#                 the same, and in the toolkit, and LD_LIBRARY_PATH says so. Prints what is nowhere, a line each.
# without_gpu_libs COMMAND...    with the LD_LIBRARY_PATH of before: torch finds its own libraries, and parts of cuDNN
#                 of two versions, which each load by name, do not go together; GPU_LIBS has that of ours

# gpu_lib_folders DIR: the folders, one a line
gpu_lib_folders() {
	for gpu_dir in "$1/lib" /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
		[ ! -d "$gpu_dir" ] || echo "$gpu_dir"
	done
	"${PYTHON:-python3}" -c '
import glob, nvidia
for p in nvidia.__path__:
    print("\n".join(sorted(glob.glob(glob.escape(p) + "/*/lib"))))' 2>/dev/null
	for gpu_dir in /usr/local/cuda/lib64 /usr/local/cuda/extras/CUPTI/lib64 /usr/local/cuda-*/lib64; do
		[ ! -d "$gpu_dir" ] || echo "$gpu_dir"
	done
}

gpu_libs() {
	gpu_before=$LD_LIBRARY_PATH
	gpu_found=$(gpu_lib_folders "$1")
	gpu_known=$(ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null)
	for gpu_lib in libcuda.so.1 libcsv.so.3 libdeflate.so.0 libcublasLt.so.13 libnccl.so.2 libcupti.so.13 libcudnn.so.9; do
		gpu_at=$(echo "$gpu_known" | awk -v lib="$gpu_lib" '$1 == lib { print $NF; exit }')
		[ -z "$gpu_at" ] || [ ! -e "$gpu_at" ] || continue
		gpu_at=$(echo "$gpu_found:$LD_LIBRARY_PATH" | tr ':' '\n' | while read -r gpu_dir; do
			[ ! -e "$gpu_dir/$gpu_lib" ] || {
				echo "$gpu_dir"
				break
			}
		done)
		if [ -z "$gpu_at" ]; then
			echo "# $gpu_lib is not here"
			continue
		fi
		case :$LD_LIBRARY_PATH: in
		*":$gpu_at:"*) ;;
		*) LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$gpu_at ;;
		esac
	done
	export LD_LIBRARY_PATH
	PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
}

without_gpu_libs() {
	GPU_LIBS=$LD_LIBRARY_PATH
	LD_LIBRARY_PATH=$gpu_before
	export GPU_LIBS LD_LIBRARY_PATH
	"$@"
	gpu_status=$?
	LD_LIBRARY_PATH=$GPU_LIBS
	return $gpu_status
}
LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}
