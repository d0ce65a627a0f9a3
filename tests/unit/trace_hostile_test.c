/*
 * trace(5), hostile streams: payloads that are damaged under a right checksum are refused or read,
 * and nothing worse; each rule of the format has its refusal.
 */
#include "trace_fixture.h"

/* ---- tests: hostile streams ------------------------------------------------------------------ */

struct block {
	uint32_t type, count;
	uint16_t version;
	struct pl_buf data;
};

static size_t take_blocks(const struct pl_buf *bytes, struct block *b, size_t max)
{
	struct pl_err err = { 0 };
	struct pl_container_reader_opts o = { .major = 1 };
	struct pl_in *in = pl_in_open_mem("mem", bytes->p, bytes->n, &err);
	struct pl_container_reader *r = pl_container_reader_open(in, &o, &err);
	struct pl_block k;
	size_t n = 0;

	while (pl_container_reader_next(r, &k, &err) > 0) {
		if (n == max)
			abort();
		b[n] = (struct block){ .type = k.type, .count = k.count, .version = k.version };
		if (pl_buf_put(&b[n++].data, k.p, k.n, &err) < 0)
			abort();
	}
	pl_container_reader_close(r);
	pl_in_close(in);
	return n;
}

static struct pl_buf wrap_blocks(const struct block *b, size_t n)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = { 0 }, copy = { 0 };
	struct pl_out *out = pl_out_open_buf(&bytes, &err);
	struct pl_container_writer_opts o = { .kind = PL_KIND_TRACE, .major = 1, .level = 1 };
	struct pl_container_writer *w = pl_container_writer_open(out, &o, &err);
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0; i++) {
		if (b[i].type == PL_BLOCK_SEGMENT) {
			rc = i ? pl_container_writer_next_segment(w, &err) : 0;
			continue;
		}
		rc = pl_buf_put(&copy, b[i].data.p, b[i].data.n, &err);
		if (rc >= 0)
			rc = pl_container_writer_put(w, b[i].type, b[i].version, b[i].count, &copy,
						     &err);
	}
	if (rc < 0 || pl_container_writer_close(w, &err) < 0 || pl_out_close(out, &err) < 0)
		printf("# wrapping failed: %s\n", err.msg);
	pl_buf_fini(&copy);
	return bytes;
}

static void free_blocks(struct block *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pl_buf_fini(&b[i].data);
}

static bool expected(int rc, const struct pl_err *err)
{
	return rc == 0 || ((rc == PL_EDATA || rc == PL_ELIMIT) && err->msg[0]);
}

static void damage(struct block *b)
{
	uint64_t times = 1 + below(3);

	for (; times && b->data.n; times--) {
		switch (below(6)) {
		case 0:
			b->count = (uint32_t)(below(2) ? below(70000) : pl_rng_next(&rng));
			break;
		case 1:
			b->data.n = below(b->data.n);
			break;
		case 2:
			b->data.p[below(b->data.n)] = (uint8_t)(below(2) ? 0xff : 0x80);
			break;
		default:
			b->data.p[below(b->data.n)] ^= (uint8_t)(1u << below(8));
		}
	}
}

static void test_hostile(const struct pl_buf *bytes, uint32_t trials, const char *what)
{
	struct block b[200];
	size_t n = take_blocks(bytes, b, PL_LEN(b));
	uint32_t fine = 0, refused = 0, wrong = 0, salvaged = 0;
	struct pl_trace_reader_opts o = { .salvage = true };

	rng = 99;
	for (uint32_t i = 0; i < trials; i++) {
		struct pl_err err = { 0 };
		struct printer p = printer();
		size_t k = below(n);
		struct block was = { .count = b[k].count };
		struct pl_buf bad;
		struct pl_trace t;
		int rc;

		if (pl_buf_put(&was.data, b[k].data.p, b[k].data.n, &err) < 0)
			abort();
		damage(&b[k]);
		bad = wrap_blocks(b, n);
		rc = read_stream(&bad, NULL, &p.sink, &err);
		wrong += !expected(rc, &err);
		*(rc ? &refused : &fine) += 1;
		memset(&err, 0, sizeof(err));
		rc = load_stream(&bad, NULL, &t, &err);
		wrong += !expected(rc, &err);
		if (!rc)
			pl_trace_fini(&t);
		memset(&err, 0, sizeof(err));
		rc = load_stream(&bad, &o, &t, &err);
		salvaged += !rc;
		wrong += !expected(rc, &err);
		if (!rc)
			pl_trace_fini(&t);
		pl_buf_fini(&b[k].data);
		b[k].data = was.data;
		b[k].count = was.count;
		pl_buf_fini(&p.text);
		pl_buf_fini(&bad);
	}
	ok(!wrong, "%s: %u refused, %u read, %u salvaged, none worse", what, refused, fine,
	   salvaged);
	ok(refused > trials / 20 && salvaged > trials / 2, "%s: the damage is real", what);
	free_blocks(b, n);
}

/* One block replaced or added: what is said about it. */
static void refuse(const struct block *b, size_t n, const char *text)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = wrap_blocks(b, n);
	struct pl_sink nothing = { 0 };
	int rc = read_stream(&bytes, NULL, &nothing, &err);

	ok(rc == PL_EDATA && strstr(err.msg, text) && !strncmp(err.msg, "mem: block ", 11),
	   "refused: %s", text);
	if (rc != PL_EDATA || !strstr(err.msg, text))
		printf("# %d %s\n", rc, err.msg);
	pl_buf_fini(&bytes);
}

static struct block make_block(uint32_t type, uint32_t count, const void *p, size_t n)
{
	struct block b = { .type = type, .count = count, .version = 1 };
	struct pl_err err = { 0 };

	if (pl_buf_put(&b.data, p, n, &err) < 0)
		abort();
	return b;
}

static struct block nothing_but(uint32_t type)
{
	return make_block(type, 0, "", 0);
}

/* kind, track, name, ts, dur as columns of equal values, then no arguments */
static struct block events(uint32_t count, uint8_t first, uint8_t track, uint8_t name)
{
	const uint8_t p[] = { first, 2, 2, 2, track, 2, name, 2, 2, 2, 2, 0 };

	return make_block(PL_BLOCK_EVNT, count, p, sizeof(p));
}

static void test_rules(void)
{
	static const uint8_t track0[] = {
		18, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0
	};
	static const uint8_t track9[] = {
		18, 9, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0
	};
	static const uint8_t meta[] = { 1, 0 }, twice[] = { 1, 1, 'a' }, gap[] = { 2, 1, 'b' };
	static const uint8_t odd_type[] = { 0, 2, 2, 2, 0, 2, 0, 2, 2, 2, 2, 1,
					    7, 0, 0, 0, 0, 9, 0, 1, 0, 2, 2 };
	static const uint8_t huge[] = { 0, 2, 2, 2, 0, 2, 0,	2,    2,    2,	  2,	1, 9,
					0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0 };
	struct pl_err err = { 0 };
	struct counter c = { .sink = { .batch = count_batch } };
	struct block b[6];
	struct pl_buf bytes;

	b[0] = nothing_but(PL_BLOCK_SEGMENT);
	b[1] = make_block(PL_BLOCK_SEGM, 1, "\0\1x\1y", 5);
	b[2] = make_block(PL_BLOCK_STRS, 1, "\0\1a", 3);
	b[3] = make_block(PL_BLOCK_TRAK, 1, track0, sizeof(track0));
	b[4] = events(3, 0, 0, 0);
	b[5] = make_block(PL_FOURCC('N', 'E', 'W', '1'), 77, "whatever", 8);
	b[5].version = 9;
	bytes = wrap_blocks(b, 6);
	is_i64(read_stream(&bytes, NULL, &c.sink, &err), 0, "a stream made by hand");
	is_i64((long long)c.events, 3, "with three events, and a block of a type to come");
	pl_buf_fini(&bytes);
#define TRY(block, text)                                                                           \
	do {                                                                                       \
		pl_buf_fini(&b[5].data);                                                           \
		b[5] = (block);                                                                    \
		refuse(b, 6, text);                                                                \
	} while (0)
	TRY(events(3, 3, 2, 0), "track 1 is used, 1 are defined");
	TRY(events(3, 3, 0, 2), "string 1 is used, 1 are defined");
	TRY(events(3, 4, 0, 0), "events from 4 on, but 3 came before");
	TRY(events(0, 3, 0, 0), "a block of 0 events");
	TRY(events(PL_BATCH_ROWS + 1, 3, 0, 0), "a block of 16385 events");
	TRY(make_block(PL_BLOCK_STRS, 1, twice, sizeof(twice)), "string 1 repeats string 0");
	TRY(make_block(PL_BLOCK_STRS, 1, gap, sizeof(gap)), "strings from 2 on, but 1 are defined");
	TRY(make_block(PL_BLOCK_STRS, 9, "\1", 1), "the payload ends too early");
	TRY(make_block(PL_BLOCK_TRAK, 1, track9, sizeof(track9)), "track 9 is defined after 1");
	TRY(make_block(PL_BLOCK_META, 1, meta, sizeof(meta)), "metadata without key or value");
	TRY(make_block(PL_BLOCK_EVNT, 1, odd_type, sizeof(odd_type)), "unknown type 9 of a column");
	TRY(make_block(PL_BLOCK_EVNT, 1, huge, sizeof(huge)), "a column of");
	b[5].version = 2;
	refuse(b, 6, "newer than this program");
#undef TRY
	free_blocks(b, 6);
}

/* A block that cannot be used is left out with `salvage`, and said. */
struct said {
	struct pl_log log;
	int n;
	char last[300];
};

static void hear(void *arg, enum pl_level level, const char *text)
{
	struct said *s = arg;

	(void)level;
	s->n++;
	snprintf(s->last, sizeof(s->last), "%s", text);
}

static void test_salvage(void)
{
	static const uint8_t track0[] = {
		18, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0
	};
	struct said said = { .n = 0 };
	struct pl_trace_reader_opts o = { .salvage = true };
	struct pl_err err = { 0 };
	struct counter c = { .sink = { .batch = count_batch } };
	struct block b[5];
	struct pl_buf bytes;

	said.log = (struct pl_log){ .say = hear, .arg = &said };
	o.log = &said.log;
	b[0] = make_block(PL_BLOCK_STRS, 1, "\0\1a", 3);
	b[1] = make_block(PL_BLOCK_TRAK, 1, track0, sizeof(track0));
	b[2] = events(3, 0, 0, 0);
	b[3] = events(3, 3, 0, 8);
	b[4] = events(3, 6, 0, 0);
	bytes = wrap_blocks(b, 5);
	is_i64(read_stream(&bytes, &o, &c.sink, &err), 0, "a bad block is left out");
	is_i64((long long)c.events, 6, "the others are kept");
	ok(said.n == 1 && strstr(said.last, "block 3 at byte"), "and it is said: %s", said.last);
	free_blocks(b, 5);
	pl_buf_fini(&bytes);
}

int main(void)
{
	struct recipe small = { .seed = 28, .segments = 2, .batches = 3, .rows = 40 };
	struct pl_merge m;
	struct pl_buf bytes;

	make_merge(&m, 2, 8, 1, false);
	bytes = write_stream(&small, &m, 1);
	test_hostile(&bytes, CASES(1500), "merged trace");
	pl_buf_fini(&bytes);
	pl_trace_merge_fini(&m);
	test_rules();
	test_salvage();
	return done_testing();
}
