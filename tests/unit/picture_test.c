/* Pictures: rows and events of runs and traces, the page decoded again, SVG; hostile names, many
 * ranks. */
#include <stdlib.h>
#include <time.h>

#include "io/json.h"
#include "report/html.h"
#include "report/svg.h"
#include "sim_fixture.h"

/* ---- jobs ------------------------------------------------------------------------------------ */

static const char hostile[] = "</script><!--\"'&\\\n\xc3\xa9\xff<b>";

/* A run whose path and picture are found. */
struct made {
	struct job j;
	struct pl_sim *s;
	struct pl_run run;
	struct pl_path path;
	struct pl_picture p;
};

static const char *made_name; /* of the kernel of the first rank; NULL: as others */

/* Each rank: `ops` operations on its thread, 10 ns each, then a kernel of 100 ns that the last one
 * launched, 5 ns after it. */
static bool make(struct made *m, int ranks, int ops, struct pl_err *err)
{
	struct pl_shape *s;
	pl_id odd, first;

	*m = (struct made){ .path = { 0 } };
	m->j = (struct job){ .rng = 7, .ranks = ranks, .per_rank = 2, .unit = 1000 };
	if (job_tables(&m->j, err) < 0 || one_step(&m->j.g, err) < 0 ||
	    pl_intern_add(&m->j.g.str, hostile, sizeof(hostile) - 1, &odd, err) < 0)
		return false;
	s = &m->j.g.shape[0];
	for (uint32_t r = 0; r < (uint32_t)ranks; r++) {
		uint32_t last = PL_NONE, mark;
		pl_ns t = 0;

		mark = add_node(s, PL_N_OP, PL_RO_MARK, PL_K_STEP, 2 * r, odd);
		s->flags[mark] = PL_NF_STEP_BEGIN | PL_NF_IN_STEP;
		last = mark;
		for (int i = 0; i < ops; i++, t += 10) {
			uint32_t n = add_node(s, PL_N_OP, PL_RO_HOST, PL_K_HOST_OP, 2 * r, odd);

			add_edge(s, last, PL_E_SEQ);
			m->j.g.step[0].start[n] = t;
			m->j.g.step[0].dur[n] = 10;
			last = n;
		}
		first = m->j.name[0];
		if (!r && made_name &&
		    pl_intern_add(&m->j.g.str, made_name, strlen(made_name), &first, err) < 0)
			return false;
		last = add_node(s, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, 2 * r + 1, first);
		add_edge(s, last - 1, PL_E_LAUNCH);
		m->j.g.step[0].start[last] = t + 5;
		m->j.g.step[0].dur[last] = 100 + (pl_ns)r;
	}
	if (!ok(pl_graph_valid(&m->j.g, err), "a valid graph %s", err->msg))
		return false;
	m->s = pl_sim_new(&m->j.g, err);
	return m->s && pl_sim_run(m->s, &m->run, err) >= 0 &&
	       pl_sim_path_find(m->s, &m->run, &m->path, err) >= 0 &&
	       pl_picture_of_run(&m->p, &m->j.g, m->s, &m->run, &m->path, err) >= 0;
}

static void made_fini(struct made *m)
{
	pl_picture_fini(&m->p);
	pl_sim_path_fini(&m->path);
	pl_sim_run_fini(&m->run);
	pl_sim_free(m->s);
	pl_graph_fini(&m->j.g);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static char *drawn(const struct pl_picture *p, const char *title, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);
	int rc = pl_svg_draw(p, title, 0, p->span, out, &err);

	ok(pl_out_finish(out, rc, &err) >= 0 && pl_buf_put(b, "", 1, &err) >= 0, "an SVG %s",
	   err.msg);
	return (char *)b->p;
}

static char *page(const struct pl_picture *p, const char *title, const char *report,
		  struct pl_buf *b)
{
	struct pl_buf text = { (uint8_t *)(uintptr_t)report, strlen(report), 0, false };
	struct pl_html h = { title, &text, p };
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);
	int rc = pl_html_write(&h, out, &err);

	ok(pl_out_finish(out, rc, &err) >= 0 && pl_buf_put(b, "", 1, &err) >= 0, "a page %s",
	   err.msg);
	return (char *)b->p;
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;

	for (; (s = strstr(s, what)); s++)
		n++;
	return n;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void rows_and_events(void)
{
	struct pl_err err = { 0 };
	struct made m;
	pl_ns sum = 0;

	if (!ok(make(&m, 2, 3, &err), "two ranks %s", err.msg))
		return;
	is_i64((long long)m.p.n_rows, 4, "a row for each thread and stream");
	is_i64((long long)m.p.n_events, 8, "the operations, without marks and waits of 0 ns");
	is_i64(m.p.span, 136, "the end of the last one");
	is_i64(m.p.row[0].rank, 0, "rows by rank");
	is_i64(m.p.row[0].type, PL_T_THREAD, "... threads first");
	is_i64(m.p.event[1].start - m.p.event[0].start, 10, "events by time");
	is_i64(m.p.event[3].start, 35, "the kernel after its launch");
	is_i64(m.p.style[m.p.event[3].style].class, PL_PICTURE_COMPUTE, "it computes");
	for (size_t i = 0; i < m.p.n_path; i++)
		sum += m.p.path[i].dur;
	is_i64(sum, 136, "the path is as long as the step");
	is_i64(m.p.n_steps, 1, "one step");
	is_i64(m.p.step[0].end, 136, "... that ends with the path");
	made_fini(&m);
}

/* Is event i of this picture in the m-th mark? */
static bool is_marked(const struct pl_picture *p, size_t m, size_t i)
{
	size_t at = 0;

	for (size_t k = 0; k < p->mark[m].n; k++) {
		at += p->runs[p->mark[m].first + k];
		if (i < at)
			return k % 2;
	}
	return false;
}

/* What changes select, of names that no regular expression of theirs finds. */
static void marks(void)
{
	static const char odd[] = "void k<4, a[1]>(x|y, b=2)\\";
	static const struct {
		const char *line, *name;
		int32_t rank;
		size_t n;
	} rows[] = {
		{ "scale name=void k<4, a\\[1\\]>(x\\|y? b=2)\\\\ by 0.5", odd, -1, 1 },
		{ "scale kind=kernel by 0.5", NULL, -1, 2 },
		{ "scale rank=2 by 0.5", NULL, 2, 4 },
		{ "scale kind=host_op,rank=0 by 0.5", hostile, 0, 3 },
		{ "scale step=0 by 0.5", NULL, -1, 8 },
	};
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_plan plan;
	struct made m;

	pl_plan_init(&plan);
	made_name = odd;
	if (!ok(make(&m, 2, 3, &err), "two ranks %s", err.msg))
		return;
	made_name = NULL;
	is_i64(m.j.g.step[0].number, 0, "the only step");
	for (size_t k = 0; k < PL_LEN(rows); k++) {
		size_t n = 0, wrong = 0;

		if (!ok(pl_plan_add_line(&plan, rows[k].line, &err) >= 0 &&
				pl_picture_mark(&m.p, &m.j.g, rows[k].line,
						&plan.rw[plan.n_rw - 1].select, &err) >= 0 &&
				m.p.n_marks == k + 1,
			"%s %s", rows[k].line, err.msg))
			break;
		for (size_t i = 0; i < m.p.n_events; i++) {
			const struct pl_picture_event *e = &m.p.event[i];
			const char *name = pl_intern_get(&m.p.str, m.p.style[e->style].name);

			n += is_marked(&m.p, k, i);
			wrong += is_marked(&m.p, k, i) &&
				 ((rows[k].name && strcmp(name, rows[k].name) != 0) ||
				  (rows[k].rank >= 0 && m.p.row[e->row].rank != rows[k].rank));
		}
		ok(n == rows[k].n && !wrong, "... selects %zu events, %zu wrong", n, wrong);
	}
	ok(pl_picture_mark(&m.p, &m.j.g, rows[1].line, &plan.rw[1].select, &err) >= 0 &&
		   m.p.n_marks == PL_LEN(rows),
	   "once for each line");
	ok(pl_plan_add_line(&plan, "scale name=nobody by 0.5", &err) >= 0 &&
		   pl_picture_mark(&m.p, &m.j.g, "nobody", &plan.rw[plan.n_rw - 1].select, &err) >=
			   0 &&
		   m.p.n_marks == PL_LEN(rows),
	   "none that selects nothing");
	page(&m.p, "x", "{}", &b);
	made_fini(&m);
	pl_plan_fini(&plan);
	pl_buf_fini(&b);
}

static void svg(void)
{
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_picture none = { 0 };
	struct made m;
	char *s;

	if (!ok(make(&m, 2, 3, &err), "two ranks %s", err.msg))
		return;
	s = drawn(&m.p, hostile, &b);
	ok(!strncmp(s, "<svg ", 5) && strstr(s, "</svg>\n"), "svg: begins and ends");
	ok(!strstr(s, "</script>") && !strstr(s, "<b>") && !strchr(s, '\xff'),
	   "svg: hostile names");
	ok(strstr(s, "&#60;/script&#62;") && strstr(s, "\xc3\xa9"), "svg: ... are still readable");
	is_i64((long long)count(s, "<rect class=\"c"), 8 + 2,
	       "svg: a shape an event, two in the legend");
	ok(strstr(s, "critical path") && strstr(s, "class=\"p\" d=\"M128"), "svg: the path");
	ok(strstr(s, ">rank 0<") && strstr(s, ">rank 2<"), "svg: names of ranks");
	b.n = 0;
	ok(strstr(drawn(&none, NULL, &b), "</svg>") != NULL, "svg: of nothing");
	made_fini(&m);
	pl_buf_fini(&b);
}

static void svg_is_small(void)
{
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_picture p = { 0 };
	struct pl_sink *sink = pl_picture_open(&p, &err);
	struct pl_segment seg = { 0 };
	struct pl_batch batch;
	struct pl_track k;
	pl_id name;
	int rc = 0;

	rc = pl_trace_batch_init(&batch, &err);
	rc = rc < 0 ? rc : pl_intern_add(&seg.str, "op", 2, &name, &err);
	for (int r = 0; r < 1024 && rc >= 0; r++) {
		pl_id track;

		pl_trace_track_init(&k);
		k.rank = r;
		k.type = PL_T_THREAD;
		k.pid = k.tid = k.name = name;
		k.sort = r;
		rc = pl_trace_segment_track(&seg, &k, &track, &err);
	}
	rc = rc < 0 ? rc : sink->begin(sink, &seg, &err);
	for (int i = 0; i < 20 && rc >= 0; i++) {
		pl_trace_batch_clear(&batch);
		for (uint32_t n = 0; n < PL_BATCH_ROWS; n++) {
			batch.kind[n] = PL_K_HOST_OP;
			batch.track[n] = n % 1024;
			batch.name[n] = name;
			batch.ts[n] = 1000 * (i * 16 + (pl_ns)n / 1024);
			batch.dur[n] = 900;
			batch.n++;
		}
		rc = sink->batch(sink, &seg, &batch, &err);
	}
	rc = rc < 0 ? rc : sink->end(sink, &seg, &err);
	ok(rc >= 0 && pl_picture_close(sink, &err) >= 0, "1,024 ranks %s", err.msg);
	is_i64((long long)p.n_rows, 1024, "a row each");
	is_i64((long long)p.n_events, 20 * PL_BATCH_ROWS, "all events");
	drawn(&p, NULL, &b);
	ok(count((char *)b.p, "<rect") < 4000, "svg: %zu shapes", count((char *)b.p, "<rect"));
	ok(strstr((char *)b.p, "928 more rows are not drawn") != NULL,
	   "svg: says what is left out");
	b.n = 0;
	page(&p, "many", "{}", &b);
	ok(b.n < 4 << 20, "page: %zu bytes", b.n);
	pl_buf_fini(&b);
	pl_picture_fini(&p);
	pl_trace_batch_fini(&batch);
	pl_trace_segment_fini(&seg);
}

static void html(void)
{
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_picture none = { 0 };
	struct made m;
	char *s;

	if (!ok(make(&m, 1, 2, &err), "one rank %s", err.msg))
		return;
	s = page(&m.p, hostile, "{\"a\":\"</script><!--\"}", &b);
	is_i64((long long)count(s, "</script>"), 3, "page: three scripts end");
	ok(!strstr(s, "\xff<b>") || !strstr(s, "</script><!--"), "page: nothing of a name is code");
	ok(strstr(s, "{\"a\":\"\\u003c/script>\\u003c!--\"}") != NULL, "page: the report, escaped");
	ok(!strstr(s, "http://") && !strstr(s, "https://") && !strstr(s, "src="),
	   "page: loads nothing");
	ok(strstr(s, "<style>:root") && strstr(s, "<script>'use strict'"),
	   "page: style and script are in it");
	b.n = 0;
	s = page(NULL, "x", "{}", &b);
	ok(strstr(s, "id=\"events\">\n</script>") != NULL, "page: without a timeline");
	b.n = 0;
	page(&none, "x", "{}", &b);
	made_fini(&m);
	pl_buf_fini(&b);
}

static void base64(void)
{
	static const char *const want[] = { "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==" };

	for (size_t n = 0; n < PL_LEN(want); n++) {
		struct pl_writer w = { 0 };

		pl_write_base64(&w, "foob", n);
		pl_write_char(&w, '\0');
		is_str((char *)w.b.p, want[n], "base64");
		pl_write_fini(&w);
	}
}

int main(void)
{
	rows_and_events();
	marks();
	svg();
	svg_is_small();
	html();
	base64();
	return done_testing();
}
