# Memory that runs out and I/O that fails at any call: status 4 or 5, a message, no partial output.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

programs=$(find "$BIN" -maxdepth 1 -type f -perm -100 ! -name "*.so" ! -name paceline | sed 's|.*/||' | sort)
if [ -z "$programs" ]; then
	echo "1..0 # SKIP no programs in $BIN"
	exit 0
fi
check "the streams of a tiny job" tiny_streams "$TMP"
for p in $programs; do
	input=
	one_run "$p" "$TMP" || continue
	# graph goes on after a failure and looks at it later, so every call of it is tried
	case $LONG,$p in
	1,* | *,graph) set -- -a ;;
	*) set -- -n 100 ;;
	esac
	# the thread sanitizer has nothing to find with one thread
	sanitized thread || check "$p: any call may fail" "$SRC/tests/fault/torture" "$@" "$BIN/$p" "$input"
	check "$p: any call may fail, with four threads" "$SRC/tests/fault/torture" -n 10 \
		"$BIN/$p" -@ 4 "$input"
done
done_testing
