# The README shows what the programs print. To renew it: tools/readme >README.new
. "$SRC/tests/cli/tap.sh"

status 0 "the commands of README.md run" "$SRC/tools/readme"
check "and print what it shows" diff -u "$SRC/README.md" "$TMP/out"
check "it names the two commands" test 2 = "$(grep -cE '^    make (demo|test)$' "$SRC/README.md")"
for f in $(grep -oE '\]\([A-Za-z/.-]+\)' "$SRC/README.md" | tr -d '()]'); do
	check "README.md: $f is there" test -e "$SRC/$f"
done
done_testing
