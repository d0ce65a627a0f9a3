/*
 * import_fixture.h - for the tests of importers: a sink that writes rows down as lines, in `notes`.
 *
 * import() reads a text, recognises its format, and leaves counts and messages in `st` and `err`.
 */
#ifndef IMPORT_FIXTURE_H
#define IMPORT_FIXTURE_H

#include <stdlib.h>

#include "import/internal.h"
#include "tap.h"

struct notes {
	struct pl_sink sink;
	struct pl_buf text;
	uint32_t segments, tracks, part; /* the last one */
	size_t dictionary;		 /* of the segment that has the most */
	int32_t rank;			 /* of the first track */
	int64_t base_ns;
	char host[64];
	uint8_t type[64]; /* of tracks */
	int64_t stream[64];
	int32_t device[64];
	bool ordered; /* rows of columns ascend, firsts add up, tracks are there */
	uint64_t seen;
};

static int note(struct notes *n, struct pl_err *err, const struct pl_segment *seg,
		const struct pl_col *c, uint32_t i)
{
	const char *key = c->key == PL_NONE ? "" : pl_intern_get(&seg->str, c->key);
	int64_t v = c->val[i];

	if (c->role == PL_R_ARG || c->role == PL_R_TOP)
		(void)!pl_buf_printf(&n->text, err, " %s%s=", c->role == PL_R_TOP ? "." : "", key);
	else
		(void)!pl_buf_printf(&n->text, err, " %s<%s>=", key, pl_trace_role_name(c->role));
	if (c->type == PL_V_STR)
		return pl_buf_printf(&n->text, err, "'%s'", pl_intern_get(&seg->str, (pl_id)v));
	if (c->type == PL_V_JSON)
		return pl_buf_printf(&n->text, err, "%s", pl_intern_get(&seg->str, (pl_id)v));
	if (c->type == PL_V_DEC)
		return pl_buf_printf(&n->text, err, "%llde-%d", (long long)v, c->scale[i]);
	if (c->type == PL_V_NULL)
		return pl_buf_printf(&n->text, err, "null");
	return pl_buf_printf(&n->text, err, "%lld", (long long)v);
}

static int on_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct notes *n = (struct notes *)s;

	n->ordered &= b->first == n->seen;
	n->seen += b->n;
	for (uint32_t r = 0; r < b->n; r++)
		n->ordered &= b->track[r] < seg->n_tracks;
	for (uint32_t i = 0; i < b->n_cols; i++)
		for (uint32_t k = 1; k < b->col[i].n; k++)
			n->ordered &= b->col[i].row[k] > b->col[i].row[k - 1];
	for (uint32_t r = 0; r < b->n && n->text.n < 100000; r++) {
		(void)!pl_buf_printf(&n->text, err, "%s '%s' t%u %lld %lld",
				     pl_trace_kind_name(b->kind[r]),
				     pl_intern_get(&seg->str, b->name[r]), b->track[r],
				     (long long)b->ts[r], (long long)b->dur[r]);
		for (uint32_t i = 0; i < b->n_cols; i++)
			for (uint32_t k = 0; k < b->col[i].n; k++)
				if (b->col[i].row[k] == r)
					(void)!note(n, err, seg, &b->col[i], k);
		(void)!pl_buf_printf(&n->text, err, "\n");
	}
	return 0;
}

static int on_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct notes *n = (struct notes *)s;

	(void)err;
	n->seen = 0;
	n->segments++;
	n->part = seg->part;
	n->dictionary = pl_intern_bytes(&seg->str) > n->dictionary ? pl_intern_bytes(&seg->str)
								   : n->dictionary;
	n->tracks = seg->n_tracks;
	n->rank = seg->n_tracks ? seg->track[0].rank : -99;
	n->base_ns = seg->base_ns;
	snprintf(n->host, sizeof(n->host), "%s",
		 seg->n_tracks && seg->track[0].host != PL_NONE
			 ? pl_intern_get(&seg->str, seg->track[0].host)
			 : "-");
	for (uint32_t i = 0; i < seg->n_tracks && i < 64; i++) {
		n->type[i] = seg->track[i].type;
		n->stream[i] = seg->track[i].stream;
		n->device[i] = seg->track[i].device;
	}
	return 0;
}

static struct notes notes;
static struct pl_import_stats st;
static struct pl_err err;

static int import_bytes(const char *name, const void *p, size_t n, const struct pl_import_opts *o)
{
	struct pl_in *in;

	pl_buf_fini(&notes.text);
	memset(&notes, 0, sizeof(notes));
	memset(&err, 0, sizeof(err));
	notes.ordered = true;
	notes.sink = (struct pl_sink){ .batch = on_batch, .end = on_end };
	in = pl_in_open_mem(name, p, n, &err);
	return pl_import_run(in, NULL, o, &notes.sink, &st, &err);
}

static int import(const char *name, const char *text, const struct pl_import_opts *o)
{
	static const struct pl_import_opts none;

	return import_bytes(name, text, strlen(text), o ? o : &none);
}

/* Rows as text, for is_str(). */
static const char *rows(void)
{
	if (pl_buf_put(&notes.text, "", 1, &err) < 0)
		return NULL;
	notes.text.n--;
	return (const char *)notes.text.p;
}

#endif
