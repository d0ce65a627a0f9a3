/*
 * The container: round trips, threads, standard tools, truncation, damage, salvage, copies.
 *
 * runner: threads
 */
#include <stdlib.h>
#include <unistd.h>

#include "io/container.h"
#include "tap.h"

#define KIND PL_KIND_TRACE
#define DATA PL_FOURCC('D', 'A', 'T', 'A')

static const struct pl_container_writer_opts plain = {
	.kind = KIND, .major = 1, .minor = 2, .level = 1
};

/* Block i of a stream made from `seed`: length and contents follow from the two. */
static size_t block_size(uint64_t seed, unsigned i, size_t scale)
{
	uint64_t s = seed * 1000 + i;

	return (size_t)(pl_rng_next(&s) % scale);
}

static int put_block(struct pl_container_writer *w, struct pl_buf *b, uint64_t seed, unsigned i,
		     size_t scale, struct pl_err *err)
{
	size_t n = block_size(seed, i, scale);
	uint64_t s = seed + i;

	b->n = 0;
	if (pl_buf_need(b, n, err) < 0)
		return -1;
	for (size_t k = 0; k < n; k++) /* compressible, or in every fifth block not */
		b->p[k] = (uint8_t)(i % 5 == 4 ? pl_rng_next(&s) : 'a' + pl_rng_next(&s) % 4);
	b->n = n;
	return pl_container_writer_put(w, DATA, 3, i * 10, b, err);
}

static struct pl_buf make(unsigned segments, unsigned blocks, size_t scale, int level,
			  struct pl_pool *pool)
{
	struct pl_container_writer_opts o = plain;
	struct pl_buf out = { 0 }, b = { 0 };
	struct pl_err err = { 0 };
	struct pl_out *f = pl_out_open_buf(&out, &err);
	struct pl_container_writer *w;
	int rc = 0;

	o.level = level;
	o.pool = pool;
	w = pl_container_writer_open(f, &o, &err);
	for (unsigned s = 0; s < segments; s++) {
		if (s)
			rc |= pl_container_writer_next_segment(w, &err);
		for (unsigned i = 0; i < blocks; i++)
			rc |= put_block(w, &b, s, i, scale, &err);
	}
	rc |= pl_container_writer_close(w, &err);
	if (rc)
		printf("# making a stream: %s\n", err.msg);
	pl_buf_fini(&b);
	rc = pl_out_close(f, &err);
	return out;
}

struct seen {
	unsigned blocks, segments;
	bool wrong; /* a block was not what was written */
	int rc;
	bool truncated; /* a warning says that the end is missing */
	struct pl_err err;
};

static void note_warning(void *arg, enum pl_level level, const char *text)
{
	struct seen *s = arg;

	s->truncated |=
		level == PL_LOG_WARN && (strstr(text, "truncated") || strstr(text, ": byte "));
}

/* Read a stream of make(); blocks must be right wherever they are shown. */
static struct seen look(const void *p, size_t n, size_t scale, bool salvage, struct pl_pool *pool)
{
	struct seen s = { 0 };
	const struct pl_log log = { note_warning, &s };
	struct pl_container_reader_opts o = {
		.kind = KIND, .major = 1, .salvage = salvage, .pool = pool, .log = &log
	};
	struct pl_in *in = pl_in_open_mem("mem", p, n, &s.err);
	struct pl_container_reader *r = pl_container_reader_open(in, &o, &s.err);
	struct pl_block b;

	while ((s.rc = pl_container_reader_next(r, &b, &s.err)) > 0) {
		if (b.type == PL_BLOCK_SEGMENT) {
			s.segments++;
			s.wrong |= b.kind != KIND || b.major != 1 || b.minor != 2;
			continue;
		}
		s.blocks++;
		s.wrong |= b.type != DATA || b.version != 3 || b.count != b.ordinal * 10 ||
			   b.n != block_size(b.segment, b.ordinal, scale);
		for (size_t k = 0; k < b.n && b.ordinal % 5 != 4; k++)
			s.wrong |= b.p[k] < 'a' || b.p[k] > 'd';
	}
	pl_container_reader_close(r);
	pl_in_close(in);
	return s;
}

static void test_round_trip(void)
{
	static const int levels[] = { 0, 1, 6, 12 };
	struct pl_err err = { 0 };
	struct pl_pool *pool = pl_pool_new(4, &err);

	for (size_t i = 0; i < PL_LEN(levels); i++) {
		int level = levels[i];
		struct pl_buf a = make(3, 20, 60000, level, NULL);
		struct pl_buf b = make(3, 20, 60000, level, pool);
		struct seen one = look(a.p, a.n, 60000, false, NULL),
			    four = look(a.p, a.n, 60000, false, pool);

		ok(a.n == b.n && !memcmp(a.p, b.p, a.n), "level %d: 1 and 4 threads, %zu bytes",
		   level, a.n);
		ok(!one.rc && one.blocks == 60 && one.segments == 3 && !one.wrong, "read: %s",
		   one.err.msg);
		ok(!four.rc && four.blocks == 60 && four.segments == 3 && !four.wrong,
		   "read by 4 threads: %s", four.err.msg);
		pl_buf_fini(&a);
		pl_buf_fini(&b);
	}
	pl_pool_free(pool);
}

static void test_empty(void)
{
	struct pl_buf a = make(1, 0, 10, 1, NULL);
	struct seen s = look(a.p, a.n, 10, false, NULL);

	ok(!s.rc && s.segments == 1 && !s.blocks, "a stream without blocks");
	ok(pl_container_probe(a.p, 18) && !pl_container_probe(a.p, 17), "probe");
	ok(a.n > 50 && !memcmp(a.p + 33, "paceline", 8) && !memcmp(a.p + 24, "TRAC", 4),
	   "magic and kind stand where the page says");
	s = look("", 0, 10, false, NULL);
	ok(s.rc == PL_EDATA, "no bytes at all: %s", s.err.msg);
	s = look("hello, this is no stream of ours", 32, 10, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "mem: byte 0"), "text: %s", s.err.msg);
	pl_buf_fini(&a);
}

static void test_tools(void)
{
	struct pl_buf a = make(2, 6, 50000, 1, NULL), b = make(2, 6, 50000, 0, NULL);
	char dir[300], cmd[1500];
	struct pl_err err = { 0 };
	struct pl_out *o;

	snprintf(dir, sizeof(dir), "%s/pl_container_XXXXXX",
		 getenv("TMP") ? getenv("TMP") : "/tmp");
	if (!mkdtemp(dir)) {
		ok(false, "a folder");
		return;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(cmd, sizeof(cmd), "%s/%c", dir, 'a' + i);
		o = pl_out_open(cmd, true, &err);
		ok(o && !pl_out_write(o, i ? b.p : a.p, i ? b.n : a.n, &err) &&
			   !pl_out_close(o, &err),
		   "written");
	}
	snprintf(cmd, sizeof(cmd), "cd '%s' && gzip -t <a && gzip -t <b", dir);
	ok(!system(cmd), "gzip -t");
	snprintf(cmd, sizeof(cmd),
		 "cd '%s' && zcat <a >a.raw && zcat <b >b.raw && cmp a.raw b.raw && test $(wc -c "
		 "<a.raw) -gt 50000",
		 dir);
	ok(!system(cmd), "zcat: the same payloads at levels 0 and 1");
	snprintf(cmd, sizeof(cmd), "cd '%s' && test \"$(head -c 12 a.raw)\" = pacelineTRAC", dir);
	ok(!system(cmd), "which begin with the magic and the kind");
	snprintf(cmd, sizeof(cmd), "cd '%s' && cat a b >ab && gzip -t <ab && rm -rf '%s'", dir,
		 dir);
	ok(!system(cmd), "cat a b");
	pl_buf_fini(&a);
	pl_buf_fini(&b);
}

static void test_concatenated(void)
{
	struct pl_buf a = make(1, 3, 1000, 1, NULL), two = { 0 };
	struct pl_err err = { 0 };
	struct pl_container_reader_opts o = { .kind = KIND, .major = 1 };
	struct pl_in *in;
	struct pl_container_reader *r;
	struct pl_block b;
	unsigned blocks = 0, last = 9;

	ok(!pl_buf_put(&two, a.p, a.n, &err) && !pl_buf_put(&two, a.p, a.n, &err), "a, a");
	in = pl_in_open_mem("two", two.p, two.n, &err);
	r = pl_container_reader_open(in, &o, &err);
	while (pl_container_reader_next(r, &b, &err) > 0) {
		blocks += b.type != PL_BLOCK_SEGMENT;
		last = b.segment;
	}
	ok(!err.code && blocks == 6 && last == 1, "two streams are one of two segments");
	pl_container_reader_close(r);
	pl_in_close(in);
	two.n -= 34 + a.n; /* the first without its end member, and a whole one behind it */
	if (pl_buf_put(&two, a.p, a.n, &err))
		ok(false, "memory");
	ok(look(two.p, two.n, 1000, false, NULL).rc == PL_EDATA, "cut, then whole: refused: %s",
	   look(two.p, two.n, 1000, false, NULL).err.msg);
	pl_buf_fini(&two);
	pl_buf_fini(&a);
}

/* Every prefix: refused with a position; salvage gives exactly the whole blocks. */
static void test_truncation(int level)
{
	enum { SCALE = 150, BLOCKS = 8 };
	struct pl_buf a = make(1, BLOCKS, SCALE, level, NULL);
	size_t end[BLOCKS + 1], at = 0; /* end[i]: where block i - 1 ends; end[0]: the header */
	unsigned bad = 0, unplaced = 0, unsaved = 0;

	for (unsigned i = 0; i <= BLOCKS; i++) {
		at += (size_t)a.p[at + 20] | (size_t)a.p[at + 21] << 8;
		end[i] = at;
	}
	for (size_t n = 0; n < a.n; n++) {
		struct seen s = look(a.p, n, SCALE, false, NULL),
			    v = look(a.p, n, SCALE, true, NULL);
		unsigned whole = 0;

		while (whole < BLOCKS && end[whole + 1] <= n)
			whole++;
		bad += s.rc != PL_EDATA || s.wrong || s.blocks != whole;
		unplaced += !strstr(s.err.msg, "mem: byte ");
		if (n < end[0])
			unsaved += v.rc != PL_EDATA;
		else
			unsaved += v.rc != 0 || !v.truncated || v.blocks != whole || v.wrong;
	}
	ok(!bad, "level %d: each of %zu prefixes is refused after its whole blocks", level, a.n);
	ok(!unplaced, "and says where");
	ok(!unsaved, "salvage gives exactly the whole blocks");
	pl_buf_fini(&a);
}

/* Some bits of deflate mean nothing: such a flip must leave all contents right. */
static void test_flips(int level, unsigned stride, struct pl_pool *pool)
{
	enum { SCALE = 60, BLOCKS = 4 };
	struct pl_buf a = make(2, BLOCKS, SCALE, level, NULL);
	unsigned silent = 0, other = 0, wrong = 0, salvage = 0, few = 0;

	for (size_t bit = 0; bit < a.n * 8; bit += stride) {
		struct seen s;

		a.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		s = look(a.p, a.n, SCALE, false, pool);
		silent += s.rc == 0 && (s.blocks != 2 * BLOCKS || s.segments != 2);
		other += s.rc != 0 && s.rc != PL_EDATA;
		wrong += s.wrong;
		s = look(a.p, a.n, SCALE, true, pool);
		salvage += (s.rc != 0 && s.rc != PL_EDATA) || (s.wrong && s.segments == 2);
		/* one flip costs one block, or a segment where it hits its header */
		few += s.rc == 0 && s.segments == 2 && s.blocks < 2 * BLOCKS - 1;
		a.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	ok(!other && !wrong, "level %d: %zu flipped bits: PL_EDATA or nothing", level, a.n * 8);
	is_i64(silent, 0, "no loss goes unnoticed");
	ok(!salvage && !few, "salvage loses the block that was hit (%u, %u)", salvage, few);
	pl_buf_fini(&a);
}

/* Lost, repeated, exchanged and foreign members. */
static void test_order(void)
{
	enum { SCALE = 4000, BLOCKS = 5 };
	struct pl_buf a = make(1, BLOCKS, SCALE, 1, NULL), c = { 0 };
	size_t at[BLOCKS + 2], pos = 0;
	struct pl_err err = { 0 };
	struct seen s;

	for (unsigned i = 0; i < BLOCKS + 2; i++) {
		at[i] = pos;
		pos += (size_t)a.p[pos + 20] | (size_t)a.p[pos + 21] << 8;
	}
	ok(!pl_buf_put(&c, a.p, at[2], &err) && !pl_buf_put(&c, a.p + at[3], a.n - at[3], &err),
	   "block 1 left out");
	s = look(c.p, c.n, SCALE, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "missing"), "noticed: %s", s.err.msg);
	s = look(c.p, c.n, SCALE, true, NULL);
	ok(!s.rc && s.blocks == BLOCKS - 1, "salvage keeps the others");
	c.n = 0;
	ok(!pl_buf_put(&c, a.p, at[BLOCKS], &err) &&
		   !pl_buf_put(&c, a.p + at[BLOCKS + 1], a.n - at[BLOCKS + 1], &err),
	   "the last block left out");
	s = look(c.p, c.n, SCALE, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "index"), "noticed: %s", s.err.msg);
	s = look(c.p, c.n, SCALE, true, NULL);
	ok(!s.rc && s.blocks == BLOCKS - 1, "salvage keeps the others");
	c.n = 0;
	ok(!pl_buf_put(&c, a.p, at[2], &err) && !pl_buf_put(&c, "junk!", 5, &err) &&
		   !pl_buf_put(&c, a.p + at[2], a.n - at[2], &err),
	   "junk between blocks");
	s = look(c.p, c.n, SCALE, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "byte"), "noticed: %s", s.err.msg);
	s = look(c.p, c.n, SCALE, true, NULL);
	ok(!s.rc && s.blocks == BLOCKS, "salvage steps over it");
	c.n = 0;
	ok(!pl_buf_put(&c, a.p, a.n, &err) && !pl_buf_put(&c, "xyz", 3, &err), "junk at the end");
	s = look(c.p, c.n, SCALE, false, NULL);
	ok(s.rc == PL_EDATA, "noticed: %s", s.err.msg);
	pl_buf_fini(&a);
	pl_buf_fini(&c);
}

static struct pl_err open_as(const struct pl_buf *a, struct pl_container_reader_opts o)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("mem", a->p, a->n, &err);
	struct pl_container_reader *r = pl_container_reader_open(in, &o, &err);
	struct pl_block b;

	while (pl_container_reader_next(r, &b, &err) > 0)
		;
	pl_container_reader_close(r);
	pl_in_close(in);
	return err;
}

static void test_versions(void)
{
	struct pl_container_writer_opts o = { .kind = PL_KIND_GRAPH, .major = 2, .incompat = 4 };
	struct pl_buf a = { 0 };
	struct pl_err err = { 0 };
	struct pl_out *f = pl_out_open_buf(&a, &err);
	struct pl_container_writer *w = pl_container_writer_open(f, &o, &err);

	ok(!pl_container_writer_close(w, &err) && !pl_out_close(f, &err),
	   "a graph 2.0 with a feature");
	err = open_as(&a, (struct pl_container_reader_opts){
				  .kind = PL_KIND_GRAPH, .major = 2, .known = 5 });
	ok(!err.code, "known");
	err = open_as(&a, (struct pl_container_reader_opts){ .major = 2, .known = 1 });
	ok(err.code == PL_EDATA && strstr(err.msg, "feature"), "unknown feature: %s", err.msg);
	err = open_as(&a, (struct pl_container_reader_opts){ .major = 1, .known = 5 });
	ok(err.code == PL_EDATA && strstr(err.msg, "newer"), "too new: %s", err.msg);
	err = open_as(&a,
		      (struct pl_container_reader_opts){ .kind = KIND, .major = 2, .known = 5 });
	ok(err.code == PL_EDATA && strstr(err.msg, "graph"), "another kind: %s", err.msg);
	err = open_as(&a, (struct pl_container_reader_opts){
				  .kind = KIND, .major = 2, .known = 5, .salvage = true });
	ok(err.code == PL_EDATA, "salvage does not change that");
	pl_buf_fini(&a);
}

/* A filter that passes members on, behind a segment of its own. */
static void test_copy(struct pl_pool *pool)
{
	struct pl_container_writer_opts wo = plain;
	struct pl_container_reader_opts ro = {
		.kind = KIND, .major = 1, .raw = true, .pool = pool
	};
	struct pl_buf a = make(2, 5, 20000, 1, NULL), out = { 0 }, b = { 0 };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("mem", a.p, a.n, &err);
	struct pl_container_reader *r = pl_container_reader_open(in, &ro, &err);
	struct pl_out *f = pl_out_open_buf(&out, &err);
	struct pl_container_writer *w;
	struct pl_block blk;
	unsigned index = 0, end = 0, rc = 0;
	size_t head;
	struct seen s;

	wo.pool = pool;
	w = pl_container_writer_open(f, &wo, &err);
	rc |= put_block(w, &b, 0, 0, 20000, &err) < 0;
	while (pl_container_reader_next(r, &blk, &err) > 0) {
		const void *p;
		size_t n;

		index += blk.type == PL_BLOCK_INDEX;
		end += blk.type == PL_BLOCK_END;
		pl_container_reader_raw(r, &p, &n);
		rc |= pl_container_writer_copy(w, p, n, &err) < 0;
	}
	ok(!rc && index == 2 && end == 2, "index and end members come in raw mode: %s", err.msg);
	ok(pl_container_writer_copy(w, "junk", 4, NULL) == PL_EINTERNAL, "junk is not copied");
	ok(!pl_container_writer_close(w, &err) && !pl_out_close(f, &err), "closed: %s", err.msg);
	head = out.n - a.n;
	ok(out.n > a.n && !memcmp(out.p + head, a.p, a.n), "copied byte for byte");
	s = look(out.p, head, 20000, false, NULL);
	ok(!s.rc && s.blocks == 1 && s.segments == 1, "behind a whole segment");
	pl_container_reader_close(r);
	pl_in_close(in);
	pl_buf_fini(&a);
	pl_buf_fini(&b);
	pl_buf_fini(&out);
}

static void test_failing_output(void)
{
	struct pl_err err = { 0 };
	struct pl_out *f = pl_out_open("/dev/full", true, &err);
	struct pl_container_writer *w = pl_container_writer_open(f, &plain, &err);
	struct pl_buf b = { 0 };
	int rc = 0;

	for (unsigned i = 0; i < 1000 && !rc; i++)
		rc = put_block(w, &b, 1, i, 50000, &err);
	ok(rc == PL_EIO, "a full disk: %s", err.msg);
	err.code = 0;
	ok(pl_container_writer_close(w, &err) == PL_EIO, "and close says so again");
	pl_out_abort(f);
	pl_buf_fini(&b);
}

/* A header that promises 256 MiB costs no memory that did not arrive. */
static void test_absurd(void)
{
	struct pl_buf a = make(1, 1, 100, 1, NULL);
	size_t at = (size_t)a.p[20] | (size_t)a.p[21] << 8;
	struct seen s;

	memcpy(a.p + at + 20, "\x00\x00\x00\x0f", 4);
	s = look(a.p, a.n, 100, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "truncated"), "absurd member: %s", s.err.msg);
	memcpy(a.p + at + 20, "\xff\xff\xff\xff", 4);
	s = look(a.p, a.n, 100, false, NULL);
	ok(s.rc == PL_EDATA && strstr(s.err.msg, "size"), "impossible member: %s", s.err.msg);
	pl_buf_fini(&a);
}

int main(void)
{
	struct pl_err err = { 0 };
	struct pl_pool *pool = pl_pool_new(3, &err);

	test_round_trip();
	test_empty();
	test_tools();
	test_concatenated();
	test_truncation(1);
	test_truncation(0);
	test_flips(1, 1, NULL);
	test_flips(0, 1, NULL);
	test_flips(1, 7, pool);
	test_order();
	test_versions();
	test_copy(NULL);
	test_copy(pool);
	test_failing_output();
	test_absurd();
	pl_pool_free(pool);
	return done_testing();
}
