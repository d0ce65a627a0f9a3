#!/bin/sh
# runner: waits, threads
#
# Progress follows one rule in every program: "auto" draws on a terminal, after one second, not with
# -q; "always" draws at once, also to a file and with -q; "never" draws nothing.
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"
cd "$TMP" || exit 1
tiny_streams . || exit 1

# slow PROGRAM NAME OPTION...: the program, whose input comes after 3 s (a busy machine may take 2 s to start it); what it says goes to NAME.said
slow() {
	p=$1
	name=$2
	one_run "$p" . || return 1
	shift 2
	{ sleep 3 && cat "$input"; } | "$BIN/$p" "$@" -o "$name.out" >/dev/null 2>"$name.said"
}
# lines PROGRAM NAME: what it drew; warnings are other lines
lines() {
	tr '\r' '\n' <"$2.said" | sed 's/^.\[K//' | grep "^$1: .*, [0-9]* s$"
}
drawn() {
	lines "$@" | grep -q ' [1-9][0-9]* s$'
}
erased() {
	tr '\r' '\n' <"$2.said" | tail -n 1 | no grep -q ', [0-9]* s$'
}
silent() {
	no lines "$@" >/dev/null
}

for p in trace merge graph replay plan; do
	slow $p $p.tty --fake-tty &
	slow $p $p.quiet --fake-tty -q &
	slow $p $p.never --fake-tty --progress=never &
	slow $p $p.file &
done
wait
for p in trace merge graph replay plan; do
	check "$p: a line on a terminal after one second" drawn $p $p.tty
	check "$p: ... which is erased" erased $p $p.tty
	check "$p: none with -q" silent $p $p.quiet
	check "$p: none with never" silent $p $p.never
	check "$p: none without a terminal" silent $p $p.file
	one_run $p .
	"$BIN/$p" --progress=always -q -o $p.out "$input" >/dev/null 2>$p.said
	check "$p: always, also to a file, at once and with -q" grep -q "^$p: .*, 0 s$" $p.said
	check "$p: ... in lines" no grep -q "$(printf '\r')" $p.said
	"$BIN/$p" --fake-tty -o $p.out "$input" >/dev/null 2>$p.said
	check "$p: nothing for what is done at once" silent $p $p
done

train() {
	name=$1
	shift
	timeout -s INT 3 "$BIN/run" --set steps=1000000 "$@" "$SRC/samples/blobs.job" >/dev/null 2>"$name.said"
}
train tty --fake-tty &
train quiet --fake-tty -q &
train file &
train always --progress=always -q &
wait
check "run: a line on a terminal after one second" drawn run tty
check "run: none with -q" silent run quiet
check "run: none without a terminal" silent run file
check "run: always, from the first step on, also to a file and with -q" grep -q "^run: step 1 of .* s\$" always.said
done_testing
