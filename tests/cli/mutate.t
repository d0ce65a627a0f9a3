# Do the tests of the kernels notice an error? Each line below puts one into a copy of a source: a
# sign, a factor, a border. The test, built with the copy, must fail; an error that no longer fits
# the source fails here. Errors in plain.c are for the gradient test, those elsewhere for the
# comparison with plain.c, or with float64. All of them under LONG=1, else some.
# runner: threads
. "$SRC/tests/cli/tap.sh"

flags="-std=c11 -D_GNU_SOURCE -O1 -w -I$TMP/lib -I$SRC/lib -I$BUILD -I$SRC/tests/unit -pthread"
mkdir -p "$TMP/lib/tensor" "$TMP/tests/oracle" "$TMP/tests/unit"
cp "$SRC/tests/oracle/plain.h" "$TMP/tests/oracle"

# caught FILE EXPRESSION: build with the file changed by sed; does the test find it?
caught() {
	from=lib/tensor/$1
	[ "$1" != plain.c ] || from=tests/oracle/$1
	sed "$2" "$SRC/$from" >"$TMP/$from"
	if cmp -s "$SRC/$from" "$TMP/$from"; then
		echo "# the expression changes nothing"
		return 1
	fi
	if [ "$1" = plain.c ]; then
		test=tensor_grad_test
		cp "$SRC/tests/unit/$test.c" "$TMP/tests/unit"
		set -- "$TMP/tests/unit/$test.c"
	else
		test=tensor_cpu_test
		# its sums are compared with float64: other errors of them are below that test's limits
		[ "$1" != cpu_norm.c ] || test=tensor_precision_test
		set -- "$SRC/tests/unit/$test.c" "$TMP/lib/tensor/$1" "$SRC/tests/oracle/plain.c"
	fi
	# shellcheck disable=SC2086  # lists of words
	$CC $flags -o "$TMP/$test" "$@" "$BUILD/libcore.a" -lm -ldl >"$TMP/log" 2>&1 || {
		sed 's/^/# /' "$TMP/log"
		return 1
	}
	rm -f "$TMP"/lib/tensor/*
	"$TMP/$test" 2>/dev/null | grep -q '^not ok'
}

case $BUILD in
*/build) ;;
*)
	echo "1..0 # SKIP only with what a plain build made"
	exit 0
	;;
esac
cat >"$TMP/mutants" <<'END'
+plain.c s/return 1 - y \* y;/return 1 + y * y;/
-plain.c s/1 + 3 \* GELU_B/1 + 2 * GELU_B/
+plain.c s/k, c, n, dy, k, x, c, 1, dw/k, c, n, dy, k, x, c, 0, dw/
-plain.c s/dwl += g \* op/dwl -= g * op/
-plain.c s/(double)dy\[to\] \/ n/(double)dy[to]/
-plain.c s/(dy\[at\] - sum \/ count/(dy[at] + sum \/ count/
-plain.c s/- sum \/ c -/+ sum \/ c -/
+plain.c s/, size) - own) \* scale/, size) + own) * scale/
-plain.c s/(p - (j == y\[i\]))/(p + (j == y[i]))/
-plain.c s/-scale \* over/scale * over/
-plain.c s/w\[i\] - lr \* d/w[i] + lr * d/
-plain.c s/v1 \/ fix2/v1/
+gemm.c s/j->beta != 0 || lc/j->beta != 0/
+gemm.c s/if (j->half)/if (j->half \&\& k > 99)/
-gemm.c s/j->half || (j->ta/(j->ta/
-cpu_conv.c s/if (v->cpu->half)/if (0)/
-gemm.c s/cd2, 2, 3, 6, 7/cd2, 3, 2, 6, 7/
-cpu.c s/1 - pow((double)b2/1 + pow((double)b2/
+cpu_conv.c s/i > first \&\& g->p/g->p/
-cpu_conv.c s/rs - 1 - i/i/
+cpu_norm.c s/first + sum \/ count/first - sum \/ count/
-cpu_norm.c s/- by_x \* mean/+ by_x * mean/
-cpu_attn.c s/most\[i\] + logf/most[i] - logf/
-cpu_attn.c s/ahead + i + 1 : m/ahead + i : m/
-cpu_loss.c s/\] -= l->scale/] += l->scale/
+cpu_loss.c s/largest, row + at/largest, row/
-cpu_pool.c s/p.at = w.y0 \* d->w/p.at = w.y0/
END
while read -r line; do
	mutant=${line#?}
	case $line in
	+*) ;;
	*) [ "$LONG" = 1 ] || continue ;;
	esac
	check "noticed: $mutant" caught "${mutant%% *}" "${mutant#* }"
done <"$TMP/mutants"
done_testing
