/*
 * Perfetto's archive: a TAR with one trace for each segment and a manifest, which says to which
 * machine each belongs and how their clocks relate (perfetto.dev, "Trace manifest format"). The
 * viewer and trace_processor from version 58 on show the machines of a job apart.
 *
 * Each trace is what the exporter "perfetto" makes of the segment, with the corrections of a merged
 * stream, so that all of them are on the clock of the first: the manifest relates them without an
 * offset, and all have what is added to the times of the first. Traces of one machine share their
 * processes, so the numbers of these are distinct on a machine. The size of a member stands before
 * it, so one member is held in memory.
 */
#include "export/perfetto.h"

#define BLOCK	   512
#define MOST_BYTES ((size_t)8 << 30) /* 11 octal digits */

struct archive {
	struct pl_export_base x; /* first */
	struct pl_sink *inner;
	struct pl_out *out; /* into file */
	struct pl_buf file;
	struct pl_intern machines;   /* ids are indices of pids[] */
	struct pl_export_pids *pids; /* [machine]: the numbers of its processes */
	size_t cap_pids;
	pl_ns shift; /* of all traces, as in struct perfetto */
	bool shifted;
	struct pl_writer manifest; /* its entries */
	char first[64];		   /* name of the first member, and its machine */
	char machine[256];
	uint32_t n;
};

/* ---- the members of the archive ------------------------------------------------------------ */

/* A header of ustar, POSIX.1-1988. */
static void put_header(struct pl_writer *w, const char *name, size_t size)
{
	char h[BLOCK] = { 0 };
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	memcpy(h + 100, "0000644", 8);
	memcpy(h + 108, "0000000", 8);
	memcpy(h + 116, "0000000", 8);
	snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
	memcpy(h + 136, "00000000000", 12);
	memset(h + 148, ' ', 8);
	h[156] = '0';
	memcpy(h + 257, "ustar", 6);
	memcpy(h + 263, "00", 2);
	for (size_t i = 0; i < BLOCK; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	pl_write(w, h, BLOCK);
}

static int put_member(struct archive *a, const char *name, const void *p, size_t n,
		      struct pl_err *err)
{
	static const char zeros[BLOCK];

	if (n >= MOST_BYTES)
		return pl_fail(
			err, PL_ELIMIT,
			"%s: %zu bytes are more than a member of an archive can have; choose "
			"a part of the trace (--step, --time)",
			name, n);
	put_header(&a->x.t, name, n);
	pl_write(&a->x.t, p, n);
	pl_write(&a->x.t, zeros, (BLOCK - n % BLOCK) % BLOCK);
	pl_write_flush(&a->x.t, 0);
	return pl_write_check(&a->x.t, err);
}

/* ---- the manifest -------------------------------------------------------------------------- */

/* The host of a segment, else its rank, else its number. */
static void machine_of(const struct archive *a, const struct pl_segment *seg, char *name,
		       size_t size)
{
	int32_t rank = -1;

	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		if (seg->track[i].host != PL_NONE) {
			snprintf(name, size, "%s", pl_intern_get(&seg->str, seg->track[i].host));
			return;
		}
		rank = rank < 0 ? seg->track[i].rank : rank;
	}
	if (rank >= 0)
		snprintf(name, size, "rank %d", rank);
	else
		snprintf(name, size, "file %u", a->n);
}

static void put_entry(struct archive *a, const char *member, const char *machine)
{
	struct pl_writer *w = &a->manifest;

	pl_write_text(w, a->n ? ",\n{\"path\":" : "{\"path\":");
	pl_write_json_text(w, member);
	pl_write_text(w, ",\"machine\":{\"name\":");
	pl_write_json_text(w, machine);
	pl_write_char(w, '}');
	if (a->n && strcmp(machine, a->machine)) {
		pl_write_text(w, ",\"clocks\":{\"clock\":\"BOOTTIME\",\"sync_to\":{\"file\":");
		pl_write_json_text(w, a->first);
		pl_write_text(w, ",\"clock\":\"BOOTTIME\"}}");
	}
	pl_write_char(w, '}');
	if (!a->n) {
		snprintf(a->first, sizeof(a->first), "%s", member);
		snprintf(a->machine, sizeof(a->machine), "%s", machine);
	}
}

static void last(struct pl_export_base *x)
{
	struct archive *a = (struct archive *)x;
	static const char zeros[2 * BLOCK];
	struct pl_writer w = { 0 };

	pl_write_text(&w, "{\"perfetto_manifest\":{\"version\":1");
	if (a->n) {
		pl_write_text(&w, ",\"trace_time\":{\"clock\":\"BOOTTIME\",\"file\":");
		pl_write_json_text(&w, a->first);
		pl_write_char(&w, '}');
	}
	pl_write_text(&w, ",\"files\":[");
	pl_write(&w, a->manifest.b.p ? (const void *)a->manifest.b.p : "", a->manifest.b.n);
	pl_write_text(&w, "]}}\n");
	if (a->manifest.fail.code)
		w.fail = a->manifest.fail;
	if (pl_write_check(&w, &x->t.fail) >= 0)
		(void)!put_member(a, "perfetto_manifest.json", w.b.p, w.b.n, &x->t.fail);
	pl_write(&x->t, zeros, sizeof(zeros));
	pl_write_fini(&w);
}

/* ---- the sink ------------------------------------------------------------------------------ */

/* The clock of the segment that begins, for an exporter that sees this segment alone. */
static int tell_clock(struct archive *a, struct pl_err *err)
{
	const struct pl_merge *m = &a->x.merge.m;
	struct pl_merge one = { .clock = m->clock, .n_clocks = m->n_clocks };
	int rc;

	if (!a->x.merge.present)
		return 0;
	PL_CHECK(pl_alloc(&one.use, m->n_uses + (size_t)1, sizeof(*one.use), err));
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment == a->x.merge.rel) {
			one.use[one.n_uses] = m->use[i];
			one.use[one.n_uses++].segment = 0;
		}
	rc = a->inner->merge(a->inner, &one, err);
	pl_free(one.use);
	return rc;
}

static int on_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct archive *a = (struct archive *)s;

	pl_trace_merge_context_begin(&a->x.merge);
	a->file.n = 0;
	a->out = pl_out_open_buf(&a->file, err);
	a->inner = a->out ? pl_export_open(&pl_export_perfetto, a->out, &a->x.o, err) : NULL;
	if (!a->inner)
		return err->code;
	PL_CHECK(tell_clock(a, err));
	return a->inner->begin(a->inner, seg, err);
}

static int on_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct archive *a = (struct archive *)s;

	return a->inner->batch(a->inner, seg, b, err);
}

/* The exporter of one trace goes on where that of the trace before it ended. */
static int end_trace(struct archive *a, struct pl_segment *seg, const char *machine,
		     struct pl_err *err)
{
	struct perfetto *p = (struct perfetto *)a->inner;
	size_t n = a->machines.n;
	pl_id id = 0;
	int rc;

	PL_CHECK(pl_grow(&a->pids, &a->cap_pids, n + 1, sizeof(*a->pids), err));
	PL_CHECK(pl_intern_add(&a->machines, machine, strlen(machine), &id, err));
	if (id == n)
		memset(&a->pids[id], 0, sizeof(a->pids[id]));
	p->pids = a->pids[id];
	p->first = a->n;
	p->shift = a->shift;
	p->shifted = a->shifted;
	rc = a->inner->end(a->inner, seg, err);
	a->pids[id] = p->pids;
	a->shift = p->shift;
	a->shifted = p->shifted;
	memset(&p->pids, 0, sizeof(p->pids));
	return rc;
}

static int on_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct archive *a = (struct archive *)s;
	char member[64], machine[256];
	int rc;

	machine_of(a, seg, machine, sizeof(machine));
	rc = end_trace(a, seg, machine, err);
	if (rc >= 0)
		rc = pl_export_close(&pl_export_perfetto, a->inner, err);
	else
		pl_export_abort(&pl_export_perfetto, a->inner);
	a->inner = NULL;
	rc = pl_out_finish(a->out, rc, err);
	a->out = NULL;
	if (rc < 0)
		return rc;
	snprintf(member, sizeof(member), "%05u.pftrace", a->n);
	put_entry(a, member, machine);
	a->n++;
	return put_member(a, member, a->file.p, a->file.n, err);
}

static void init(struct pl_export_base *x)
{
	x->sink = (struct pl_sink){ on_begin, on_batch, on_end, pl_export_base_merge };
}

static void fini(struct pl_export_base *x)
{
	struct archive *a = (struct archive *)x;

	if (a->inner)
		pl_export_abort(&pl_export_perfetto, a->inner);
	pl_out_abort(a->out);
	for (size_t i = 0; i < a->machines.n; i++)
		pl_export_pids_fini(&a->pids[i]);
	pl_free(a->pids);
	pl_intern_fini(&a->machines);
	pl_buf_fini(&a->file);
	pl_write_fini(&a->manifest);
}

const struct pl_exporter pl_export_perfetto_tar = {
	.name = "perfetto-tar",
	.summary =
		"an archive for Perfetto: a trace for each file, and a manifest that merges them",
	.binary = true,
	.kind =
		&(const struct pl_export_kind){
			.size = sizeof(struct archive), .init = init, .last = last, .fini = fini },
};
