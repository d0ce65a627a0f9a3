# shellcheck shell=sh
# A job that run(1) does in an instant:
#
# tiny_job STEPS      into ./tiny.job
# images_job STEPS    the same of convolutions, with its model
# floats FILE         the weights of tiny.job's network from a file of them, one a line
# losses FILE         of a log: those of training, one a line
# child PID NAME       of the processes that run PID has started, the one that it names so: 'rank 2', 'server 0'
# until_trains FILE   waits (10 s at most) until a log has more than ten lines
# mpirun_anywhere     Open MPI's starts ranks where there are two cores, as root too
# explained GRAPH     the error of each replayed step is at most 0.5 %, unexplained time of the critical path 3 %

tiny_job() {
	cat >tiny.job <<-END
	paceline-job 1
	model mlp:16-48-32-4
	data synthetic:samples=2000,dims=16,classes=4
	split 0.8
	batch 32
	optimizer sgd lr=0.05 momentum=0.9
	steps $1
	END
}

images_job() {
	tiny_job "$1"
	sed -i 's/^model .*/model images.model/; s/dims=16/dims=64/' tiny.job
	cat >images.model <<-END
	paceline-model 1
	input 1 8 8
	conv 3 3 pad=same
	relu
	conv 5 3
	flatten
	dense 4
	loss softmax-cross-entropy
	END
}

losses() {
	awk -F , 'NR > 1 && $4 != "" { print $4 }' "$1"
}

child() {
	pgrep -P "$1" -x "run: $2"
}

until_trains() {
	turn=0
	until [ "$(wc -l 2>/dev/null <"$1" || echo 0)" -gt 10 ] || [ $turn = 100 ]; do
		sleep 0.1
		turn=$((turn + 1))
	done
}

mpirun_anywhere() {
	OMPI_ALLOW_RUN_AS_ROOT=1
	OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	OMPI_MCA_rmaps_base_oversubscribe=1
	OMPI_MCA_hwloc_base_binding_policy=none
	export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
		OMPI_MCA_hwloc_base_binding_policy
}

explained() {
	"$BIN/replay" -q -O json "$1" >"$TMP/replayed.json" || return
	sed 's/[{,]/\n/g' <"$TMP/replayed.json" | awk -F : '
		/^"error":/ { n++; if ($2 + 0 > 0.005 || $2 + 0 < -0.005) bad = 1 }
		/^"unexplained_share":/ && !seen++ { share = $2 + 0 }
		END { print "# " n " steps, unexplained " share; exit bad || !n || !seen || share > 0.03 }'
}

# ranks_say REGEX FILE: the ranks whose message matches; a message that several ranks have is there once, with all of them
ranks_say() {
	sed -n "s/^run: ranks\{0,1\} \([0-9,-]*\): .*$1.*/\1/p" "$2" | tr , '\n' |
		awk -F- '{ for (i = $1; i <= $NF; i++) print i }' | sort -n | tr '\n' ' '
}

# they are at the end of the file: those of all tensors
floats() {
	tail -c $((4 * (16 * 48 + 48 + 48 * 32 + 32 + 32 * 4 + 4))) "$1" | od -An -v -tf4 -w4
}
