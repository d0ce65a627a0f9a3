/*
 * Inputs and outputs: files, pipes one byte at a time, foreign gzip, temporary files, signals.
 *
 * runner: threads
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "io/stream.h"
#include "tap.h"

static char dir[256];

static const char *in_dir(const char *name)
{
	static char path[4][512];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static uint8_t *sample(size_t n, uint64_t seed)
{
	uint8_t *p = malloc(n + 1);

	for (size_t i = 0; i < n; i++) /* text that deflate can shorten, but not to nothing */
		p[i] = (uint8_t)("{\"name\": \"abc\", 0123}"[pl_rng_next(&seed) % 21]);
	p[n] = 0;
	return p;
}

static size_t gzip(const uint8_t *p, size_t n, uint8_t *out, size_t room)
{
	z_stream z = { 0 };
	gz_header h = { 0 };

	h.name = (Bytef *)(uintptr_t) "some name.json";
	h.comment = (Bytef *)(uintptr_t) "a comment";
	h.extra = (Bytef *)(uintptr_t) "XY\002\000ab";
	h.extra_len = 6;
	h.hcrc = 1;
	deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
	deflateSetHeader(&z, &h);
	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = (uInt)room;
	deflate(&z, Z_FINISH);
	room -= z.avail_out;
	deflateEnd(&z);
	return room;
}

/* All that an input gives, by peeks of `want`; *errors counts failures, the last one is in *err. */
static size_t slurp(struct pl_in *in, uint8_t *out, size_t room, size_t want, int *errors,
		    struct pl_err *err)
{
	size_t done = 0;

	for (*errors = 0; *errors < 3;) {
		struct pl_err e = { 0 };
		const uint8_t *p;
		int64_t n = pl_in_peek(in, want, &p, &e);

		if (n < 0) {
			++*errors;
			*err = e;
			continue;
		}
		if (!n || done + (size_t)n > room)
			break;
		/* leave a little unread, as a parser does with half a record */
		if ((size_t)n > want / 2 + 7)
			n -= 7;
		memcpy(out + done, p, (size_t)n);
		pl_in_skip(in, (size_t)n);
		done += (size_t)n;
	}
	return done;
}

static void test_files(void)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open("/nonexistent/x", &err);
	struct pl_out *o;
	const char *name = in_dir("a");
	const uint8_t *p;
	struct stat st;

	ok(!in && err.code == PL_EIO && strstr(err.msg, "/nonexistent/x"), "missing file: %s",
	   err.msg);
	memset(&err, 0, sizeof(err));
	in = pl_in_open(dir, &err);
	if (in)
		ok(pl_in_peek(in, 1, &p, &err) == PL_EIO, "reading a folder: %s", err.msg);
	pl_in_close(in);

	memset(&err, 0, sizeof(err));
	o = pl_out_open(name, true, &err);
	ok(o && stat(name, &st) < 0, "nothing under the final name while writing");
	ok(!pl_out_write(o, "hello 7\n", 8, &err) && !pl_out_close(o, &err), "closed");
	in = pl_in_open(name, &err);
	ok(in && pl_in_peek(in, 16, &p, &err) == 8 && !memcmp(p, "hello 7\n", 8), "read back");
	pl_in_skip(in, 8);
	is_i64(pl_in_offset(in), 8, "offset");
	is_i64(pl_in_peek(in, 4, &p, &err), 0, "end");
	pl_in_close(in);

	chmod(name, 0600);
	ok(!symlink(name, in_dir("link")), "a link");
	o = pl_out_open(in_dir("link"), true, &err);
	ok(o && !pl_out_write(o, "new", 3, &err) && !pl_out_close(o, &err),
	   "written through a link");
	ok(!lstat(in_dir("link"), &st) && S_ISLNK(st.st_mode), "it is still a link");
	ok(!stat(name, &st) && st.st_size == 3 && (st.st_mode & 0777) == 0600, "contents and mode");
	o = pl_out_open(name, true, &err);
	ok(o && !pl_out_write(o, "other", 5, &err), "abort: opened");
	pl_out_abort(o);
	ok(!stat(name, &st) && st.st_size == 3, "abort leaves the old file");
	ok(system(NULL) && system("test -z \"$(find . -name '*.tmp.*')\"") == 0,
	   "no temporary file is left");
	o = pl_out_open(in_dir("no/such/folder"), true, &err);
	ok(!o && err.code == PL_EIO, "output into a missing folder: %s", err.msg);
}

static void test_full(void)
{
	struct pl_err err = { 0 };
	struct pl_out *o = pl_out_open("/dev/full", true, &err);
	int rc = 0, saved;

	for (int i = 0; i < 100000 && !rc; i++)
		rc = pl_out_write(o, "0123456789", 10, &err);
	ok(rc == PL_EIO && strstr(err.msg, "/dev/full"), "/dev/full: %s", err.msg);
	err.code = 0;
	is_i64(pl_out_close(o, &err), PL_EIO, "close repeats the failure");
	err.code = 0;
	saved = dup(1);
	fflush(stdout);
	close(1);
	o = pl_out_open(NULL, false, &err);
	rc = o ? pl_out_write(o, "x", 1, &err) : PL_EIO;
	if (!rc)
		rc = pl_out_close(o, &err);
	dup2(saved, 1);
	close(saved);
	ok(rc == PL_EIO && strstr(err.msg, "stdout"), "closed stdout: %s", err.msg);
}

struct feeder {
	const uint8_t *p;
	size_t n, step;
	int fd;
};

static void *feed(void *arg)
{
	struct feeder *f = arg;

	for (size_t i = 0, k; i < f->n; i += k) {
		k = pl_min_size(f->step, f->n - i);
		if (write(f->fd, f->p + i, k) != (ssize_t)k)
			break;
	}
	close(f->fd);
	return NULL;
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void through_pipe(const char *name, size_t n, const uint8_t *p, size_t step, bool gz,
			 struct pl_pool *pool, const uint8_t *want, size_t n_want)
{
	int fd[2], errors;
	struct pl_err err = { 0 };
	uint8_t *out = malloc(n_want + 4096);
	struct feeder f = { p, n, step, -1 };
	pthread_t t;
	struct pl_in *in;
	char path[64];
	size_t got;

	ok(!pipe(fd), "a pipe");
	f.fd = fd[1];
	snprintf(path, sizeof(path), "/dev/fd/%d", fd[0]);
	pthread_create(&t, NULL, feed, &f);
	in = pl_in_open(path, &err);
	close(fd[0]);
	if (gz)
		in = pl_in_gunzip(in, pool, &err);
	got = slurp(in, out, n_want + 4096, 1000, &errors, &err);
	ok(!errors && got == n_want && !memcmp(out, want, got), "%s", name);
	pl_in_close(in);
	pthread_join(t, NULL);
	free(out);
}

/* A pipe that gives one byte at a time while signals interrupt every read. */
static void test_pipe(void)
{
	struct sigaction act = { .sa_handler = on_alarm };
	size_t n = 40000;
	uint8_t *p = sample(n, 1), *z = malloc(n + 200);
	size_t nz = gzip(p, n, z, n + 200);
	timer_t timer;
	struct itimerspec every = { { 0, 200000 }, { 0, 200000 } };

	sigaction(SIGALRM, &act, NULL);
	ok(!timer_create(CLOCK_MONOTONIC, NULL, &timer) && !timer_settime(timer, 0, &every, NULL),
	   "signals every 0.2 ms");
	through_pipe("1-byte reads, interrupted", n, p, 1, false, NULL, p, n);
	through_pipe("1-byte reads of gzip", nz, z, 1, true, NULL, p, n);
	timer_delete(timer);
	free(p);
	free(z);
}

/* Many sizes of input, peek and pool; two members and garbage behind them. */
static void test_gunzip(int threads)
{
	static const size_t sizes[] = { 0, 1, 5000, 1 << 20, 3500000 };
	struct pl_err err = { 0 };
	struct pl_pool *pool = threads > 1 ? pl_pool_new(threads, &err) : NULL;

	for (size_t s = 0; s < PL_LEN(sizes); s++) {
		size_t n = sizes[s], room = n + n / 8 + 1000, nz;
		uint8_t *p = sample(n, s), *z = malloc(2 * room + 64), *out = malloc(2 * n + 100);

		nz = gzip(p, n, z, room);
		for (int form = 0; form < 3; form++) {
			size_t want_n = form ? 2 * n : n, len = nz;
			int errors;
			struct pl_in *in;
			size_t got;

			if (form)
				len += gzip(p, n, z + nz, room);
			if (form == 2) {
				memcpy(z + len, "garbage", 7);
				len += 7;
			}
			in = pl_in_gunzip(pl_in_open_mem("x.gz", z, len, &err), pool, &err);
			got = slurp(in, out, 2 * n + 100, form == 1 ? 300000 : 5000, &errors, &err);
			ok(!errors && got == want_n && !memcmp(out, p, n) &&
				   (!form || !memcmp(out + n, p, n)),
			   "gunzip: %zu bytes, form %d, %d threads", n, form, threads);
			is_i64(pl_in_offset(in), (int64_t)want_n, "offset");
			pl_in_close(in);
		}
		free(p);
		free(z);
		free(out);
	}
	pl_pool_free(pool);
}

/* Cut anywhere, and flip anything: a prefix of the right bytes, one failure at most, then the end.
 */
static void test_damage(void)
{
	size_t n = 3000, nz, bad = 0, silent = 0, order = 0;
	uint8_t *p = sample(n, 3), *z = malloc(2 * n), *out = malloc(n + 4096), *w = malloc(2 * n);
	struct pl_err err = { 0 };
	int errors;

	nz = gzip(p, n, z, 2 * n);
	for (size_t cut = 0; cut < nz; cut++) {
		struct pl_in *in = pl_in_gunzip(pl_in_open_mem("cut.gz", z, cut, &err), NULL, &err);
		size_t got = slurp(in, out, n + 4096, 100, &errors, &err);

		bad += got > n || memcmp(out, p, pl_min_size(got, n)) != 0;
		silent += errors != 1 || err.code != PL_EDATA || !strstr(err.msg, "byte");
		pl_in_close(in);
	}
	ok(!bad && !silent, "cut at each of %zu bytes: prefix, one PL_EDATA: %s", nz, err.msg);
	for (size_t bit = 0; bit < nz * 8; bit += 3) {
		struct pl_in *in;
		size_t got;

		memcpy(w, z, nz);
		w[bit / 8] ^= (uint8_t)(1 << bit % 8);
		in = pl_in_gunzip(pl_in_open_mem("flip.gz", w, nz, &err), NULL, &err);
		got = slurp(in, out, n + 4096, 100, &errors, &err);
		order += errors > 1 || (errors && err.code != PL_EDATA) ||
			 (!errors && (got != n || memcmp(out, p, n) != 0));
		pl_in_close(in);
	}
	ok(!order, "flipped bits: either the very bytes or one PL_EDATA");
	free(p);
	free(z);
	free(w);
	free(out);
}

/* A signal in the middle of an output must not leave the temporary file. */
static void test_signal(int sig)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		struct pl_err err = { 0 };
		struct pl_out *o = pl_out_open(in_dir("doomed"), true, &err);

		signal(SIGALRM, SIG_DFL);
		if (!o || pl_out_write(o, "x", 1, &err) < 0)
			_exit(9);
		if (sig)
			raise(sig);
		exit(8);
	}
	waitpid(pid, &status, 0);
	if (sig)
		ok(WIFSIGNALED(status) && WTERMSIG(status) == sig, "died of signal %d", sig);
	else
		ok(WIFEXITED(status) && WEXITSTATUS(status) == 8, "exited without closing");
	ok(!system("test -z \"$(find . -name 'doomed*')\""), "and left nothing");
}

/* In place of that of the C library: what was synced, and whether "kept" had its bytes by then. */
static struct {
	int files, folders;
	bool early, late;
} synced;

int fsync(int fd)
{
	struct stat of_fd, kept;
	bool there = !stat("kept", &kept) && kept.st_size == 3;

	if (!fstat(fd, &of_fd) && S_ISDIR(of_fd.st_mode)) {
		synced.folders++;
		synced.late = there;
	} else {
		synced.files++;
		synced.early = there || of_fd.st_size != 3;
	}
	return (int)syscall(SYS_fsync, fd);
}

static bool write_kept(bool durable)
{
	struct pl_err err = { 0 };
	struct pl_out *o = pl_out_open(in_dir("kept"), true, &err);

	memset(&synced, 0, sizeof(synced));
	if (o && durable)
		pl_out_durable(o);
	return o && pl_out_finish(o, pl_out_write(o, "abc", 3, &err), &err) == 0;
}

static void test_durable(void)
{
	ok(write_kept(false) && !synced.files && !synced.folders, "an output is not synced");
	ok(!unlink("kept") && write_kept(true), "unless it shall be on the disk");
	ok(synced.files == 1 && !synced.early, "all bytes, before it has its name");
	ok(synced.folders == 1 && synced.late, "and its name afterwards");
}

/* A limit of the size of files is a failure like others. */
static void test_size_limit(void)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		static uint8_t much[100000];
		struct rlimit most = { 4096, 4096 };
		struct pl_err err = { 0 };
		struct pl_out *o = pl_out_open(in_dir("limited"), true, &err);
		int rc;

		signal(SIGALRM, SIG_DFL);
		if (!o || setrlimit(RLIMIT_FSIZE, &most))
			_exit(9);
		rc = pl_out_finish(o, pl_out_write(o, much, sizeof(much), &err), &err);
		exit(rc == PL_EIO && err.sys == EFBIG ? 0 : 8);
	}
	waitpid(pid, &status, 0);
	ok(WIFEXITED(status) && !WEXITSTATUS(status), "a file that gets too large: PL_EIO");
	ok(!system("test -z \"$(find . -name 'limited*')\""), "and nothing is left");
}

/* Short and long spools: written in parts, read twice, added to after reading. */
static void test_spool(void)
{
	for (size_t n = 1000; n <= 5u << 20; n *= 5000) {
		uint8_t *p = sample(n, 7), *got = malloc(2 * n + 1);
		struct pl_err err = { 0 };
		struct pl_spool *s = pl_io_spool_new(&err);
		struct pl_out *copy;
		struct pl_buf b = { 0 };
		int errors = 0;

		setenv("TMPDIR", dir, 1);
		for (int round = 1; round <= 2; round++) {
			struct pl_out *o = pl_io_spool_write(s, &err);
			struct pl_in *in;
			size_t all;

			for (size_t at = 0, k; at < n; at += k) {
				k = pl_min_size(n - at, 1 + n / 7);
				ok(pl_out_write(o, p + at, k, &err) == 0, "a part is written");
			}
			ok(pl_out_close(o, &err) == 0, "the output is closed");
			for (int again = 0; again < 2; again++) {
				in = pl_io_spool_read(s, "spool", &err);
				all = slurp(in, got, 2 * n + 1, 1, &errors, &err);
				ok(all == round * n && !errors && !memcmp(got, p, n) &&
					   !memcmp(got + (size_t)(round - 1) * n, p, n),
				   "%zu bytes: round %d is read", n, round);
				pl_in_close(in);
			}
		}
		copy = pl_out_open_buf(&b, &err);
		if (copy) {
			struct pl_in *in = pl_io_spool_read(s, "spool", &err);

			ok(pl_out_copy(copy, in, &err) == 0 && b.n == 2 * n &&
				   !memcmp(b.p + n, p, n),
			   "a copy has all bytes");
			pl_in_close(in);
			pl_out_abort(copy);
		}
		unsetenv("TMPDIR");
		pl_io_spool_free(s);
		pl_buf_fini(&b);
		free(p);
		free(got);
	}
}

int main(void)
{
	snprintf(dir, sizeof(dir), "%s/pl_stream_XXXXXX", getenv("TMP") ? getenv("TMP") : "/tmp");
	if (!mkdtemp(dir) || chdir(dir) < 0)
		return 99;
	test_files();
	test_spool();
	test_full();
	test_pipe();
	test_gunzip(1);
	test_gunzip(3);
	test_damage();
	test_signal(SIGTERM);
	test_signal(SIGINT);
	test_signal(0);
	test_size_limit();
	test_durable();
	if (chdir("/") == 0) {
		char cmd[300];

		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
		ok(!system(cmd), "tidied up");
	}
	return done_testing();
}
