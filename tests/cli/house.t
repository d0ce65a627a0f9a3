# The house itself, on a small tree with one program: make, probes, sanitizers, install, the front,
# completion, and the runner of the tests.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
CC=${CC:-cc}
not_under any "what it builds and runs is the same with and without a sanitizer"
# this may run below a make: its variables are not those of the small tree
unset SAN WITH_LIBDEFLATE WITH_OPENBLAS WITH_SQLITE CUDA DEPS TESTS BUILD BIN MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
tree=$TMP/tree
mkdir -p "$tree/cmd/hello" "$tree/man" "$tree/tests/unit" "$tree/lib" || exit 1
cp -r "$SRC/Makefile" "$SRC/VERSION" "$SRC/tools" "$tree"
cp -r "$SRC/lib/core" "$tree/lib"
cp -r "$SRC/cmd/main.c" "$SRC/cmd/paceline" "$tree/cmd"
cp "$SRC/tests/run" "$tree/tests"
cp "$SRC/tests/unit/tap.h" "$tree/tests/unit"
printf '.Dd\n' >"$tree/man/paceline-hello.1"
cat >"$tree/cmd/hello/hello.c" <<'END'
#include "core/cmd.h"

struct config {
	struct pl_common common;
	int mood;
};

static const struct pl_opt options[] = {
	{ 'm', "mood", "MOOD", "how [to] greet: it's free", PL_OPT_CHOICE, offsetof(struct config, mood),
	  "kind|gruff" },
	PL_OPTS_COMMON,
};

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;

	(void)err;
	printf("%s %s\n", c->mood ? "what," : "hello", argc ? argv[0] : "world");
	return 0;
}

const struct pl_cmd pl_command = {
	.name = "hello", .synopsis = "[NAME]", .summary = "greet", .opts = options,
	.config_size = sizeof(struct config), .run = run,
};
END
cat >"$tree/tests/unit/good_test.c" <<'END'
#include "tap.h"

int main(void)
{
	ok(true, "fine");
	skip("later", "not today");
	return done_testing();
}
END

# mk ARGUMENT...: make in the small tree
mk() {
	env -u MAKEFLAGS -u BUILD -u BIN make --no-print-directory -C "$tree" CC="$CC" CFLAGS=-O0 "$@"
}

status 0 "a fresh tree builds" mk -j2
for word in compiler zlib libcsv libdeflate openblas sqlite3 cuda; do
	says "^  $word" "the probe says what it found: $word"
done
check "the program is in bin/" test -x "$tree/bin/hello"
status 0 "make again" mk
check "has nothing to do and says so" grep -q "Nothing to be done" "$TMP/out"
check "and does not probe again" test ! -s "$TMP/err"
touch -r "$tree/Makefile" "$tree/build/config.h"
cp -p "$tree/build/config.h" "$TMP/config.h"
mk >/dev/null 2>&1
check "config.h is not rewritten without need" test ! "$tree/build/config.h" -nt "$TMP/config.h"
status 0 "another feature" mk WITH_LIBDEFLATE=0 CUDA=0
says "WITH_LIBDEFLATE=0" "is said"
says "CUDA=0" "and so is CUDA=0"
check "is in config.h" grep -q "HAVE_LIBDEFLATE 0" "$tree/build/config.h"
status 0 "and in --version" "$tree/bin/hello" --version
check "libdeflate is gone from it" test "$(grep -c libdeflate "$TMP/out")" = 0
status 0 "V=1 shows commands" mk V=1 CPPFLAGS=-DCHANGED bin/hello
check "... all of them" grep -q -e '-DCHANGED.*-c -o build/lib/core/cmd.o' "$TMP/out"
status 0 "print-VARIABLE" mk print-VERSION
check "prints it" grep -qx "VERSION = $(cat "$SRC/VERSION")" "$TMP/out"
status 0 "help" mk help
check "names the two commands of the README" test 2 = "$(grep -cE '^  make (demo|test) ' "$TMP/out")"
echo 'PREFIX = /somewhere' >"$tree/config.mk"
mk print-bindir >"$TMP/out"
check "config.mk is read" grep -q '= /somewhere/bin$' "$TMP/out"
rm "$tree/config.mk"

echo 'int main(void) { return 0; }' >"$TMP/s.c"
if $CC -fsanitize=undefined -o "$TMP/s" "$TMP/s.c" 2>/dev/null; then
	status 0 "SAN= builds" mk -j2 SAN=undefined all
	check "in a tree of its own" test -x "$tree/build-undefined/bin/hello"
else
	skip "SAN= builds" "the compiler has no sanitizers"
fi

# ---- what is missing -----------------------------------------------------------------------------

# toolkits that cannot compile the kernels: the programs are built without
cat >"$TMP/nvcc" <<'END'
#!/bin/sh
here=$(dirname "$0")/../tk
case $1 in
--list-gpu-arch) echo "compute_$KNOWS" ;;
--dryrun) printf '#$ INCLUDES="-I%s"  \n#$ LIBRARIES=  "-L%s" "-L%s"\n' $here/include $here/lib/stubs $here/lib >&2 ;;
--version) echo "release 99.9, V99.9.1" ;;
*)
	[ ! -e "$here/include/cublasLt.h" ] || exit 0
	echo "x.cu: error: cublasLt.h is not here" >&2 && exit 1
	;;
esac
END
chmod +x "$TMP/nvcc"
# probe KNOWS CUDA: with such an nvcc
probe() {
	env CC="$CC" NVCC="$TMP/nvcc" KNOWS="$1" CUDA="$2" "$tree/tools/probe" "$TMP/probed.mk"
}
status 0 "a toolkit that is too old" probe 90 auto
says 'cuda .*no: run computes on CPUs alone (.*/nvcc knows no compute_100, which toolkits from 12.8 on do)' "is left alone, which is said"
check "and used by none" grep -qx 'NVCC_FOUND := ' "$TMP/probed.mk"
status 0 "one without cuBLASLt" probe 100 auto
says 'nvcc cannot compile: x.cu: error: cublasLt.h is not here' "is left alone, too"
# one that is laid out as PyPI's packages are: all in include and lib, libraries with numbers alone
mkdir -p "$TMP/bin" "$TMP/tk/include" "$TMP/tk/lib/stubs"
cp "$TMP/nvcc" "$TMP/bin"
: >"$TMP/tk/include/cublasLt.h"
probe_tk() {
	env CC="${1:-$CC}" NVCC="$TMP/bin/nvcc" KNOWS=100 CUDA=auto "$tree/tools/probe" "$TMP/probed.mk"
}
cat >"$TMP/no-blas" <<END
#!/bin/sh
case "\$*" in *-lcublasLt*) echo "cannot find -lcublasLt" >&2 && exit 1 ;; esac
exec $CC "\$@"
END
chmod +x "$TMP/no-blas"
status 0 "one without its libraries" probe_tk "$TMP/no-blas"
says 'nvcc has no libcublasLt to link with: .*cublasLt' "is left alone, which is said"
$CC -shared -o "$TMP/tk/lib/libcublasLt.so.13" -x c /dev/null
: >"$TMP/tk/lib/stubs/libcublasLt.so"
status 0 "one whose libraries have numbers alone" probe_tk
says 'cuda .*toolkit 99.9 ' "is taken"
check "with its headers" grep -qx "CUDA_INC := $TMP/bin/../tk/include" "$TMP/probed.mk"
check "its libraries" grep -qx "CUDA_LIB := $TMP/tk/lib" "$TMP/probed.mk"
check "and that number" grep -qx 'CUDA_BLAS := -l:libcublasLt.so.13' "$TMP/probed.mk"
cp "$TMP/tk/lib/libcublasLt.so.13" "$TMP/tk/lib/libcublasLt.so"
status 0 "one with names without" probe_tk
check "is linked with by them" grep -qx 'CUDA_BLAS := -lcublasLt' "$TMP/probed.mk"
status 1 "one that is demanded" probe 90 1
says 'CUDA=1 but .*nvcc knows no compute_100.*; set NVCC=, or build with CUDA=0' "is an error"

# a compiler that knows no csv.h
cat >"$TMP/cc" <<END
#!/bin/sh
for a; do case \$a in *.c) grep -q 'csv[.]h' "\$a" && exit 1 ;; esac; done
exec $CC "\$@"
END
chmod +x "$TMP/cc"
status 2 "a mandatory library is missing" mk CC="$TMP/cc" BUILD="$TMP/b2"
says "apt-get install libcsv-dev" "the package is named"
status 2 "DEPS=0 installs nothing" mk CC="$TMP/cc" DEPS=0 deps
says "libcsv-dev.*DEPS=0\|DEPS=0.*libcsv-dev" "and names the package too"

# ---- the runner of the tests ---------------------------------------------------------------------

status 0 "make check" mk -j2 check
check "counts" grep -qx "1 passed, 0 failed, 1 skipped" "$TMP/out"

mkdir -p "$tree/tests/cli" "$tree/tests/golden/one"
# runner WANT NAME LINE: what the last line must be
runner() {
	status "$1" "runner: $2" env BUILD="$tree/build" BIN="$tree/bin" "$tree/tests/run" -t 2 cli golden
	check "runner: ... $3" grep -qx "$3" "$TMP/out"
}
rm -rf "$tree/tests/golden/one"
runner 1 "nothing to run is a failure" "0 passed, 0 failed, 0 skipped"
printf 'echo 1..1\necho not ok 1 - no\necho why >&2\n' >"$tree/tests/cli/a.t"
runner 1 "a failure" "0 passed, 1 failed, 0 skipped"
check "runner: shows it in full" grep -qx "why" "$TMP/out"
printf 'echo 1..2\necho ok 1 - yes\n' >"$tree/tests/cli/a.t"
runner 1 "fewer than planned" "1 passed, 1 failed, 0 skipped"
printf 'echo ok 1 - yes\nexit 0\n' >"$tree/tests/cli/a.t"
runner 1 "no plan" "1 passed, 1 failed, 0 skipped"
printf 'echo 1..1\necho ok 1 - yes\nkill -SEGV $$\n' >"$tree/tests/cli/a.t"
runner 1 "a crash at the end" "1 passed, 1 failed, 0 skipped"
printf 'echo ok 1 - yes\necho 1..1\nsleep 60\n' >"$tree/tests/cli/a.t"
runner 1 "a hang" "1 passed, 1 failed, 0 skipped"
printf '# runner: waits\nsleep 3\necho 1..1\necho ok 1 - yes\n' >"$tree/tests/cli/a.t"
export TIMES="$TMP/times"
runner 0 "who waits has more time" "1 passed, 0 failed, 0 skipped"
unset TIMES
# shellcheck disable=SC2016  # fields of awk
check "runner: TIMES says when a test began and ended" \
	awk '$3 == "cli/a" && $1 <= 1 && $2 - $1 >= 2 && $2 - $1 < 60 { n++ } END { exit n != 1 || NR != 1 }' "$TMP/times"
cat >"$TMP/thread.c" <<'END'
#include <pthread.h>
static void *nothing(void *p) { return p; }
int main(void) { pthread_t t; return pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0); }
END
$CC -pthread -o "$TMP/thread" "$TMP/thread.c"
mkdir -p "$tree/build/emu"
cp "${GEN%/gen}/emu/fake_threads.so" "$tree/build/emu/"
printf '"%s" && echo ok 1 - yes\necho 1..1\n' "$TMP/thread" >"$tree/tests/cli/a.t"
runner 1 "a thread that the test does not announce" "0 passed, 1 failed, 0 skipped"
check "runner: says what to write" grep -q 'must say "runner: threads"' "$TMP/out"
status 1 "runner: the thread sanitizer gets no test without threads" \
	env BUILD="$tree/build-thread" BIN="$tree/bin" "$tree/tests/run" -t 2 cli
check "runner: ... how many these are" grep -qx "without 1 tests that start no thread" "$TMP/out"
printf '# runner: threads\n' | cat - "$tree/tests/cli/a.t" >"$TMP/a.t"
cp "$TMP/a.t" "$tree/tests/cli/a.t"
runner 0 "a thread that the test announces" "1 passed, 0 failed, 0 skipped"
status 0 "runner: the thread sanitizer gets a test with threads" \
	env BUILD="$tree/build-thread" BIN="$tree/bin" "$tree/tests/run" -t 2 cli
printf 'echo "1..0 # SKIP no reason"\n' >"$tree/tests/cli/a.t"
# shellcheck disable=SC2016  # the test expands them
printf 'touch "$TMP/x"; echo 1..1; [ -x "$BIN/hello" ] && [ -d "$SRC" ] && echo ok 1\n' >"$tree/tests/cli/b.t"
runner 0 "the surroundings of a test" "1 passed, 0 failed, 1 skipped"
rm "$tree"/tests/cli/*.t
mkdir "$tree/tests/golden/one"
# shellcheck disable=SC2016
printf '"$BIN/hello" you; "$BIN/hello" --no-such\n' >"$tree/tests/golden/one/cmd"
runner 1 "a golden case without expectations" "0 passed, 1 failed, 0 skipped"
env BUILD="$tree/build" BIN="$tree/bin" "$tree/tests/run" -u golden >/dev/null 2>&1
check "runner: -u writes them" grep -qx "hello you" "$tree/tests/golden/one/expout"
check "runner: ... the exit status too" grep -qx 2 "$tree/tests/golden/one/exit"
runner 0 "a golden case" "1 passed, 0 failed, 0 skipped"
echo other >"$tree/tests/golden/one/experr"
runner 1 "another standard error" "0 passed, 1 failed, 0 skipped"

# ---- install, the front, completion -----------------------------------------------------------------

status 0 "make install" mk install DESTDIR="$TMP/d" PREFIX=/opt/x
d=$TMP/d/opt/x
for f in bin/paceline libexec/paceline/hello share/man/man1/paceline-hello.1 \
	share/bash-completion/completions/paceline share/zsh/site-functions/_paceline; do
	check "installed: $f" test -s "$d/$f"
done
front=$d/bin/paceline
status 0 "front: runs a program" "$front" hello --mood gruff
check "front: with its arguments" grep -qx "what, world" "$TMP/out"
status 0 "front: --exec-path" "$front" --exec-path
status 0 "front: ... holds the plain names" sh -c "PATH=\"\$('$front' --exec-path):\$PATH\"; hello you"
status 0 "front: --version" "$front" --version
check "front: the version" grep -qx "paceline $(cat "$SRC/VERSION")" "$TMP/out"
status 0 "front: --list" "$front" --list
check "front: programs with their summaries" grep -q "hello *greet" "$TMP/out"
status 0 "front: --help" "$front" --help
check "front: says nothing on standard error" test ! -s "$TMP/err"
status 2 "front: no program" "$front"
status 2 "front: unknown program" "$front" nonesuch
says "^paceline: .*nonesuch" "front: is named"
status 2 "front: unknown option" "$front" --nonesuch
status 2 "front: the status of the program" "$front" hello --nonesuch
status 4 "front: a full disk" sh -c "'$front' --version >/dev/full"

c=$d/share/bash-completion/completions/paceline
if command -v bash >/dev/null 2>&1; then
	# offers WORD...: what bash offers for the last one
	offers() {
		bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }
			_paceline; printf "%s\n" "${COMPREPLY[@]}"' "$c" "$@"
	}
	check "bash: the programs" test hello = "$(offers paceline he)"
	check "bash: a long option" test --mood = "$(offers paceline hello --mo)"
	check "bash: the values of a choice" test gruff = "$(offers paceline hello --mood g)"
	check "bash: the same after =" test gruff = "$(offers paceline hello --mood = g)"
	check "bash: all options" test "$("$d/libexec/paceline/hello" --dump-options | wc -l)" = \
		"$(offers paceline hello -- | grep -cv -e --no-)"
else
	skip "bash completion" "no bash"
fi
z=$d/share/zsh/site-functions/_paceline
check "zsh: the values of a choice" grep -q -e "--mood=.*(kind gruff)" "$z"
if command -v zsh >/dev/null 2>&1; then
	check "zsh: the file is well formed" zsh -n "$z"
else
	skip "zsh: the file is well formed" "no zsh"
fi
status 0 "make uninstall" mk uninstall DESTDIR="$TMP/d" PREFIX=/opt/x
check "leaves no file" test -z "$(find "$d" -type f)"
status 0 "make clean" mk clean
check "leaves no build" test -z "$(find "$tree" -name '*.o' -o -name hello -type f)"
done_testing
