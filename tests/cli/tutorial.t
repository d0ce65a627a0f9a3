# docs/TUTORIAL.md: its commands exist and take these options and changes. The recordings are small ones made here; the
# jobs themselves need PyTorch.
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"
page=$SRC/docs/TUTORIAL.md
mkdir "$TMP/work" && cd "$TMP/work" || exit 1
tiny_streams "$TMP" || exit 1
for f in recorded-ddp recorded-starved; do
	mkdir $f && for r in 0 1; do
		sed 's/aten::mm/enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__/
			s/record_param_comms/c10d::_all_gather/' "$TMP/rank$r.json" >"$f/rank$r.json"
	done
done
mkdir recorded-sharded && awk -v dir=recorded-sharded -f "$SRC/tests/gen/sharded.awk" && rm recorded-sharded/truth
for r in 0 1; do gzip -c "$TMP/rank$r.json" >"rank$r.1.pt.trace.json.gz"; done
# shellcheck disable=SC2016  # back quotes of the page
sed -n '/^```console/,/^```$/s/^\$ //p' "$page" >commands
check "there are commands" test "$(wc -l <commands)" -ge 15
n=0
while read -r line; do
	case $line in
	torchrun*) # its script, and the folder that is replayed later
		script=$(echo "$line" | grep -o 'docs/examples/[a-z]*\.py')
		check "$line: the script is there" test -x "$SRC/$script"
		;;
	PATH=*) ;;
	*)
		n=$((n + 1))
		status 0 "$line" sh -c "PATH='$BIN:$PATH'; $line"
		;;
	esac
done <commands
check "programs of ours are among them" test $n -ge 8
for f in "$SRC"/docs/examples/*.py; do
	check "${f##*/}: at most 60 lines" test "$(wc -l <"$f")" -le 60
	if command -v python3 >/dev/null 2>&1; then
		check "${f##*/}: is Python" python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$f"
	else
		skip "${f##*/}: is Python" "no python3"
	fi
done
for f in $(grep -oE '\]\([A-Za-z/._-]+\)' "$page" | tr -d '()]'); do
	check "TUTORIAL.md: $f is there" test -e "$SRC/docs/$f"
done
done_testing
