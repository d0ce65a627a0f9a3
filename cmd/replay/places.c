/*
 * Where two jobs differ: by phase, module and operator, which stay the same where the names of
 * kernels do not; and why: more operations, longer ones, other kernels, or a rank of its own.
 *
 * The place of a node is found once for its shape. Its name counts only where neither module nor
 * operator is known. Then a pass over the nodes of each job sums times by place, and by place and
 * name. The places that differ most get a sentence, for which a third pass sums their times by
 * rank. O(nodes).
 */
#include <math.h>
#include <stdlib.h>

#include "program.h"

#define SENTENCES 5
#define RANKS	  1024 /* of more ranks no sentence names one */

struct finding {
	const struct report *r[2];
	struct pl_intern keys;	/* phase, module, operator: place */
	struct pl_intern names; /* place, name: number in `name` */
	struct place *place;
	size_t n, cap;
	struct name_time {
		uint32_t place;
		const char *text;
		double ns[2];
	} * name;
	size_t n_names, cap_names;
	uint32_t **of[2]; /* [job][shape][node]: place, PL_NONE */
};

/* ---- places ---------------------------------------------------------------------------------- */

static const char *operator_of(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i,
			       bool module)
{
	unsigned op = pl_node_operator(g, sh, i);

	if (sh->role[i] == PL_RO_TRANSFER)
		return pl_trace_coll_name(pl_node_coll(sh, i));
	if (sh->role[i] == PL_RO_GAP)
		return "host gap";
	if (sh->role[i] == PL_RO_COPY)
		return "copy";
	if (sh->role[i] == PL_RO_HOST ||
	    sh->role[i] == PL_RO_SYNC) /* not the kernels it launches */
		return module ? "host" : pl_intern_get(&g->str, sh->name[i]);
	if (op != PL_OP_UNKNOWN)
		return pl_graph_operator_name(op);
	return module ? "other operations" : pl_intern_get(&g->str, sh->name[i]);
}

static int place_of(struct finding *f, const struct pl_graph *g, const struct pl_shape *sh,
		    uint32_t i, uint32_t *place, struct pl_err *err)
{
	unsigned phase = sh->phase ? sh->phase[i] : PL_PH_UNKNOWN;
	const char *module = sh->module ? pl_intern_get(&g->str, sh->module[i]) : "";
	const char *op = operator_of(g, sh, i, *module);
	struct pl_buf key = { 0 };
	struct place x = { .phase = phase == PL_PH_OTHER ? PL_PH_UNKNOWN : (uint8_t)phase };
	size_t at;
	pl_id id;
	int rc;

	PL_TRY(pl_buf_put(&key, &x.phase, 1, err));
	PL_TRY(pl_buf_put(&key, module, strlen(module) + 1, err));
	at = key.n;
	PL_TRY(pl_buf_put(&key, op, strlen(op), err));
	PL_TRY(pl_intern_add(&f->keys, (const char *)key.p, key.n, &id, err));
	x.module = pl_intern_get(&f->keys, id) + 1;
	x.op = pl_intern_get(&f->keys, id) + at;
	x.rank = -1;
	*place = id;
	if (id == f->n)
		rc = pl_append(&f->place, &f->n, &f->cap, &x, sizeof(x), err);
out:
	pl_buf_fini(&key);
	return rc;
}

static bool counts(const struct pl_shape *sh, uint32_t i)
{
	return i >= sh->n_entries && sh->res[i] != PL_NONE && sh->role[i] != PL_RO_MARK &&
	       sh->role[i] != PL_RO_ARRIVE;
}

static int find_places(struct finding *f, int job, struct pl_err *err)
{
	const struct pl_graph *g = &f->r[job]->g;

	PL_CHECK(pl_alloc(&f->of[job], g->n_shapes + 1, sizeof(*f->of[job]), err));
	for (size_t s = 0; s < g->n_shapes; s++) {
		const struct pl_shape *sh = &g->shape[s];
		uint32_t *of;

		PL_CHECK(pl_alloc(&f->of[job][s], sh->n_nodes + (size_t)1, sizeof(*of), err));
		of = f->of[job][s];
		for (uint32_t i = 0; i < sh->n_nodes; i++) {
			of[i] = PL_NONE;
			if (counts(sh, i))
				PL_CHECK(place_of(f, g, sh, i, &of[i], err));
		}
	}
	return 0;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int add_name(struct finding *f, int job, uint32_t place, pl_id name, double ns,
		    struct pl_err *err)
{
	struct name_time x = { .place = place, .text = pl_intern_get(&f->r[job]->g.str, name) };
	struct pl_buf key = { 0 };
	pl_id id;
	int rc;

	PL_TRY(pl_buf_put(&key, &place, sizeof(place), err));
	PL_TRY(pl_buf_put(&key, x.text, strlen(x.text), err));
	PL_TRY(pl_intern_add(&f->names, (const char *)key.p, key.n, &id, err));
	if (id == f->n_names)
		PL_TRY(pl_append(&f->name, &f->n_names, &f->cap_names, &x, sizeof(x), err));
	f->name[id].ns[job] += ns;
out:
	pl_buf_fini(&key);
	return rc;
}

static int add_times(struct finding *f, int job, struct pl_err *err)
{
	const struct report *r = f->r[job];
	double steps = (double)r->n_steps, all = steps * (r->g.n_ranks ? r->g.n_ranks : 1);

	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_shape *sh = &r->g.shape[r->g.step[k].shape];
		const uint32_t *of = f->of[job][r->g.step[k].shape];

		for (uint32_t i = 0; i < sh->n_nodes && pl_sim_reported(r->s, k); i++) {
			double ns;

			if (of[i] == PL_NONE)
				continue;
			ns = (double)pl_sim_run_dur(r->s, &r->run, k, i) / all;
			f->place[of[i]].total[job] += ns;
			f->place[of[i]].count[job] += (sh->role[i] != PL_RO_SYNC) / all;
			PL_CHECK(add_name(f, job, of[i], sh->name[i], ns, err));
		}
	}
	for (size_t i = 0; i < r->path.n; i++) {
		const struct pl_path_item *p = &r->path.item[i];
		uint32_t place = f->of[job][r->g.step[p->step].shape][p->node];

		if (place != PL_NONE && p->part == PL_PP_NODE)
			f->place[place].path[job] += (double)p->ns / steps;
	}
	return 0;
}

/* The name that takes most of the time of its place. */
static void choose_names(struct finding *f)
{
	for (size_t i = 0; i < f->n_names; i++) {
		const struct name_time *x = &f->name[i];
		struct place *p = &f->place[x->place];

		for (int job = 0; job < 2; job++) {
			if (x->ns[job] <= p->most[job])
				continue;
			p->most[job] = x->ns[job];
			p->name[job] = x->text;
		}
	}
}

static double gain(const struct place *p)
{
	return p->path[1] - p->path[0];
}

static int by_gain(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;
	int c = PL_COMPARE(fabs(gain(b)), fabs(gain(a)));

	c = c ? c : PL_COMPARE(fabs(b->total[1] - b->total[0]), fabs(a->total[1] - a->total[0]));
	c = c ? c : PL_COMPARE(a->phase, b->phase);
	c = c ? c : strcmp(a->module, b->module);
	return c ? c : strcmp(a->op, b->op);
}

/* The rank on which the place changed most, if it did so by more than half of the whole change and
 * there are others: p->rank. `number`: that of the place before sorting. */
static int find_rank(struct finding *f, uint32_t number, struct place *p, struct pl_err *err)
{
	const struct pl_graph *g = &f->r[1]->g;
	double *ns, whole = (p->total[1] - p->total[0]) * g->n_ranks, sum = 0;

	if (g->n_ranks < 2 || g->n_ranks > RANKS || g->n_ranks != f->r[0]->g.n_ranks)
		return 0;
	PL_CHECK(pl_alloc(&ns, (size_t)g->n_ranks, sizeof(*ns), err));
	for (int job = 0; job < 2; job++) {
		const struct report *r = f->r[job];

		for (size_t k = 0; k < r->g.n_steps; k++) {
			const struct pl_shape *sh = &r->g.shape[r->g.step[k].shape];
			const uint32_t *of = f->of[job][r->g.step[k].shape];

			for (uint32_t i = 0; i < sh->n_nodes && pl_sim_reported(r->s, k); i++) {
				uint32_t rank;

				if (of[i] != number)
					continue;
				rank = pl_graph_rank_index(&r->g, pl_node_rank(&r->g, sh, i));
				if (rank != PL_NONE)
					ns[rank] += (job ? 1 : -1) / (double)r->n_steps *
						    (double)pl_sim_run_dur(r->s, &r->run, k, i);
			}
		}
	}
	for (int32_t i = 0; i < g->n_ranks; i++)
		sum += fabs(ns[i]);
	/* where work only moved between ranks, the whole says nothing */
	for (int32_t i = 0; i < g->n_ranks && 2 * fabs(whole) > sum; i++)
		if (ns[i] / whole > 0.5 + 0.5 / g->n_ranks)
			p->rank = g->rank[i];
	pl_free(ns);
	return 0;
}

int find_differences(const struct report *a, const struct report *b, struct place **place,
		     size_t *n, struct pl_intern *keep, struct pl_err *err)
{
	struct finding f = { .r = { a, b } };
	int rc;

	for (int job = 0; job < 2; job++)
		PL_TRY(find_places(&f, job, err));
	for (int job = 0; job < 2; job++)
		PL_TRY(add_times(&f, job, err));
	choose_names(&f);
	for (uint32_t i = 0; i < f.n; i++)
		f.place[i].number = i;
	pl_sort(f.place, f.n, sizeof(*f.place), by_gain);
	for (size_t i = 0; i < f.n && i < SENTENCES; i++)
		PL_TRY(find_rank(&f, f.place[i].number, &f.place[i], err));
	*place = f.place;
	*n = f.n;
	*keep = f.keys;
	f.place = NULL;
	f.keys = (struct pl_intern){ 0 };
out:
	for (int job = 0; job < 2; job++) {
		for (size_t s = 0; f.of[job] && s < f.r[job]->g.n_shapes; s++)
			pl_free(f.of[job][s]);
		pl_free(f.of[job]);
	}
	pl_intern_fini(&f.keys);
	pl_intern_fini(&f.names);
	pl_free(f.name);
	pl_free(f.place);
	return rc;
}

/* ---- sentences ------------------------------------------------------------------------------- */

void place_name(const struct place *p, char *out, size_t size)
{
	const char *phase = p->phase == PL_PH_UNKNOWN ? "" : pl_graph_phase_name(p->phase);

	snprintf(out, size, "%s%s%s%s%s", phase, *phase ? " " : "", p->module,
		 *p->module ? " " : "", p->op);
}

static size_t add_text(char *out, size_t size, size_t n, const char *text)
{
	return n < size ? n + (size_t)snprintf(out + n, size - n, "%s%s", n ? "; " : "", text) : n;
}

void place_reason(const struct place *p, char *out, size_t size)
{
	double mean[2] = { p->count[0] > 0 ? p->total[0] / p->count[0] : 0,
			   p->count[1] > 0 ? p->total[1] / p->count[1] : 0 };
	char text[256], a[32], b[32];
	size_t n = 0;

	out[0] = '\0';
	if (p->count[0] <= 0 || p->count[1] <= 0) {
		snprintf(text, sizeof(text), "only in %c", p->count[0] > 0 ? 'A' : 'B');
		n = add_text(out, size, n, text);
	} else {
		if (fabs(p->count[1] / p->count[0] - 1) > 0.005) {
			snprintf(text, sizeof(text), "%.4g operations, were %.4g", p->count[1],
				 p->count[0]);
			n = add_text(out, size, n, text);
		}
		if (fabs(mean[1] - mean[0]) > 0.02 * mean[0]) {
			snprintf(text, sizeof(text), "each takes %s, was %s",
				 fmt_ns(b, sizeof(b), mean[1]), fmt_ns(a, sizeof(a), mean[0]));
			n = add_text(out, size, n, text);
		}
		if (p->name[0] && p->name[1] && strcmp(p->name[0], p->name[1])) {
			snprintf(text, sizeof(text), "mostly %.90s, was %.90s", p->name[1],
				 p->name[0]);
			n = add_text(out, size, n, text);
		}
	}
	if (gain(p) * (p->total[1] - p->total[0]) < 0) {
		snprintf(text, sizeof(text), "%s of it is on the critical path",
			 gain(p) > 0 ? "more" : "less");
		n = add_text(out, size, n, text);
	}
	if (p->rank >= 0) {
		snprintf(text, sizeof(text), "most of it on rank %d", p->rank);
		n = add_text(out, size, n, text);
	}
	if (!n)
		add_text(out, size, n,
			 gain(p) > 0 ? "as before, but more of it is on the critical path"
				     : "as before, but less of it is on the critical path");
}
