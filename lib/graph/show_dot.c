/*
 * One step for graphviz, small enough to be looked at: operations are folded by rank, phase and
 * module.
 *
 * The step is the first one of the shape that most steps have. A label is a phase with a module, or
 * a kind of communication with its group. If there are too many labels, layers that repeat become
 * one
 * ("layers.3.attn" and "layers.4.attn" become "layers.*.attn"), then the names of modules are cut,
 * then only phases are left. Time between operations and operations of no phase belong to what
 * comes before them on their resource. Ranks with the same labels share a cluster, so a
 * data-parallel job is one cluster and a pipeline is one for each stage. Communications of many
 * ranks stand outside. An edge stands for all edges between operations of two nodes; those within a
 * node are left out. O(nodes + edges), a few times over for the labels.
 */
#include "graph/show.h"

#define LABELS	  48 /* more are folded further */
#define LABEL_MAX 48 /* bytes of a name; longer ones are cut in the middle */
#define STAGES	  8  /* ranks that send and receive, each drawn for itself */
#define TOP	  3  /* classes of operations that a node lists */

enum { WHOLE, REPEATED, CUT_3, CUT_2, CUT_1, PHASES, DEPTHS }; /* how modules are folded */

struct label {
	uint8_t phase, coll; /* coll: PL_COLL_COUNT_: no communication */
	bool joint;	     /* of many ranks */
	pl_id text;	     /* module or group, PL_NONE */
};
struct fold { /* a node of the picture */
	uint32_t set, label;
	uint64_t n, meets, ranks; /* meets: of communications of many ranks */
	pl_ns ns, of[PL_OP_COUNT_];
	int64_t bytes;
};
struct fold_edge {
	uint32_t from, to;
	uint64_t n[PL_E_COUNT_], inferred;
};
struct dot {
	const struct pl_graph *g;
	const struct pl_shape *s;
	const struct pl_gstep *step;
	struct pl_intern text, labels, sets, folds, edges;
	struct label *label;
	struct fold *fold;
	struct fold_edge *edge;
	size_t n_labels, cap_labels, n_folds, cap_folds, n_edges, cap_edges;
	uint32_t *of;	/* [node]: label, then place in fold; PL_NONE: not drawn */
	uint32_t *last; /* [resource]: label */
	uint32_t *
		set; /* [rank]: number of its set of labels; [n_ranks]: of nodes of several ranks */
	struct pl_writer w;
};

/* NULL: that of PL_PH_OTHER */
static const char *const fill[PL_PH_COUNT_] = {
	[PL_PH_UNKNOWN] = "#eceef1",	 [PL_PH_FORWARD] = "#bcd3f0",
	[PL_PH_BACKWARD] = "#b5dcd6",	 [PL_PH_INPUT_GRAD] = "#b5dcd6",
	[PL_PH_WEIGHT_GRAD] = "#cfe8df", [PL_PH_OPTIMIZER] = "#d9cbec",
	[PL_PH_COMM] = "#f4cda9",	 [PL_PH_INPUT] = "#eadfa9",
	[PL_PH_OTHER] = "#eceef1",	 [PL_PH_RECOMPUTATION] = "#bcd3f0",
};

/* ---- labels ---------------------------------------------------------------------------------- */

/* The module as this depth names it; PL_NONE: not at all. */
static int module_text(struct dot *d, const char *name, int depth, pl_id *id, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int parts = depth < CUT_3 ? 1000 : CUT_1 - depth + 1, rc = 0;

	*id = PL_NONE;
	if (depth == PHASES || !*name)
		return 0;
	for (const char *s = name; *s && rc >= 0;) {
		bool digits = depth >= REPEATED && *s >= '0' && *s <= '9';

		if (*s == '.' && !--parts)
			break;
		rc = pl_buf_put(&b, digits ? "*" : s, 1, err);
		s += digits ? strspn(s, "0123456789") : 1;
	}
	if (rc >= 0)
		rc = pl_intern_add(&d->text, (const char *)b.p, b.n, id, err);
	pl_buf_fini(&b);
	return rc;
}

static bool is_comm(const struct pl_shape *s, uint32_t i)
{
	return s->role[i] == PL_RO_ARRIVE || s->role[i] == PL_RO_TRANSFER ||
	       s->type[i] == PL_N_RENDEZVOUS || s->flags[i] & PL_NF_MESSAGE;
}

static int label_of(struct dot *d, uint32_t i, int depth, uint32_t *number, struct pl_err *err)
{
	const struct pl_shape *s = d->s;
	struct label x = { s->phase ? s->phase[i] : PL_PH_UNKNOWN, PL_COLL_COUNT_, false, PL_NONE };
	bool gap = s->role[i] == PL_RO_GAP || x.phase == PL_PH_OTHER || x.phase == PL_PH_UNKNOWN;
	uint32_t key[4];
	pl_id id;

	*number = PL_NONE;
	if (is_comm(s, i)) {
		x.phase = PL_PH_COMM;
		x.coll = (uint8_t)pl_node_coll(s, i);
		x.joint = x.coll != PL_COLL_SEND && x.coll != PL_COLL_RECV;
		if (x.joint && s->group[i] != PL_NONE)
			PL_CHECK(pl_intern_add(
				&d->text, pl_intern_get(&d->g->str, d->g->group[s->group[i]].name),
				strlen(pl_intern_get(&d->g->str, d->g->group[s->group[i]].name)),
				&x.text, err));
	} else if (i < s->n_entries || s->res[i] == PL_NONE || s->role[i] == PL_RO_MARK ||
		   pl_graph_hands_on(d->g, s->res[i])) {
		return 0;
	} else if (gap && d->last[s->res[i]] != PL_NONE) {
		*number = d->last[s->res[i]];
		return 0;
	} else {
		const char *name = s->module ? pl_intern_get(&d->g->str, s->module[i]) : "";

		PL_CHECK(module_text(d, name, depth, &x.text, err));
	}
	memcpy(key, (const uint32_t[]){ x.phase, x.coll, x.joint, x.text }, sizeof(key));
	PL_CHECK(pl_intern_add(&d->labels, (const char *)key, sizeof(key), &id, err));
	*number = id;
	if (!is_comm(s, i))
		d->last[s->res[i]] = id;
	return id < d->n_labels
		       ? 0
		       : pl_append(&d->label, &d->n_labels, &d->cap_labels, &x, sizeof(x), err);
}

static int find_labels(struct dot *d, struct pl_err *err)
{
	for (int depth = WHOLE; depth < DEPTHS; depth++) {
		pl_intern_reset(&d->labels);
		d->n_labels = 0;
		memset(d->last, 0xff, (d->g->n_res + 1) * sizeof(*d->last));
		for (uint32_t i = 0; i < d->s->n_nodes; i++)
			PL_CHECK(label_of(d, i, depth, &d->of[i], err));
		if (d->n_labels <= LABELS)
			break;
	}
	return 0;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Where a send and a receive meet: that is drawn as part of the receive. */
static bool is_delivery(const struct dot *d, uint32_t i)
{
	return d->s->type[i] == PL_N_RENDEZVOUS && d->s->kind[i] == PL_K_RECV;
}

static uint32_t rank_of(const struct dot *d, uint32_t i)
{
	uint32_t res = d->label[d->of[i]].joint ? PL_NONE : d->s->res[i], r;

	for (uint32_t e = d->s->off[i]; is_delivery(d, i) && e < d->s->off[i + 1]; e++)
		if (d->s->kind[d->s->src[e]] == PL_K_RECV)
			res = d->s->res[d->s->src[e]];
	r = res == PL_NONE ? PL_NONE : pl_graph_rank_index(d->g, d->g->res[res].rank);
	return r == PL_NONE ? (uint32_t)d->g->n_ranks : r;
}

/* Which stage of a pipeline is the rank? Without coordinates each of a few ranks is one. */
static int32_t stage_of(const struct dot *d, size_t rank)
{
	for (size_t i = 0; i < d->g->n_res; i++)
		if (d->g->res[i].rank == d->g->rank[rank] && d->g->res[i].coord[PL_COORD_PP] >= 0)
			return d->g->res[i].coord[PL_COORD_PP];
	return d->g->n_ranks <= STAGES ? (int32_t)rank : 0;
}

/* Number the sets of labels that ranks have; stages that send to one another differ. */
static int find_sets(struct dot *d, struct pl_err *err)
{
	size_t n = d->n_labels + sizeof(int32_t), ranks = (size_t)d->g->n_ranks + 1;
	bool stages = false;
	char *has;
	int rc;

	PL_CHECK(pl_alloc(&has, n * ranks + 1, 1, err));
	for (size_t i = 0; i < d->n_labels; i++)
		stages |= d->label[i].phase == PL_PH_COMM && !d->label[i].joint;
	for (size_t r = 0; stages && r + 1 < ranks; r++)
		memcpy(has + n * r + d->n_labels, &(int32_t){ stage_of(d, r) }, sizeof(int32_t));
	for (uint32_t i = 0; i < d->s->n_nodes; i++)
		if (d->of[i] != PL_NONE)
			has[n * rank_of(d, i) + d->of[i]] = 1;
	for (size_t r = 0; r < ranks; r++)
		PL_TRY(pl_intern_add(&d->sets, has + n * r, n, &d->set[r], err));
	rc = 0;
out:
	pl_free(has);
	return rc;
}

static int fold_node(struct dot *d, uint32_t i, struct pl_err *err)
{
	uint32_t key[2] = { d->set[rank_of(d, i)], d->of[i] };
	struct fold *f, x = { .set = key[0], .label = key[1] };
	unsigned op = pl_node_operator(d->g, d->s, i);
	pl_id id;

	PL_CHECK(pl_intern_add(&d->folds, (const char *)key, sizeof(key), &id, err));
	if (id == d->n_folds)
		PL_CHECK(pl_append(&d->fold, &d->n_folds, &d->cap_folds, &x, sizeof(x), err));
	f = &d->fold[id];
	d->of[i] = id;
	if (!is_comm(d->s, i) || d->s->role[i] == PL_RO_TRANSFER)
		f->n++;
	f->meets += d->s->type[i] == PL_N_RENDEZVOUS;
	if (d->s->role[i] == PL_RO_TRANSFER && d->s->bytes && d->s->bytes[i] > 0)
		f->bytes = pl_add_sat(f->bytes, d->s->bytes[i]);
	f->ns = pl_add_sat(f->ns, d->step->dur[i]);
	f->of[op < PL_OP_COUNT_ ? op : 0] += d->step->dur[i];
	return 0;
}

static int fold_edges(struct dot *d, struct pl_err *err)
{
	const struct pl_shape *s = d->s;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
			uint32_t key[2] = { d->of[s->src[e]], d->of[i] };
			struct fold_edge x = { .from = key[0], .to = key[1] };
			pl_id id;

			if (key[0] == PL_NONE || key[1] == PL_NONE || key[0] == key[1] ||
			    (is_delivery(d, s->src[e]) && s->kind[i] == PL_K_SEND))
				continue; /* an arrow from a receive to its send says nothing */
			PL_CHECK(
				pl_intern_add(&d->edges, (const char *)key, sizeof(key), &id, err));
			if (id == d->n_edges)
				PL_CHECK(pl_append(&d->edge, &d->n_edges, &d->cap_edges, &x,
						   sizeof(x), err));
			d->edge[id].n[PL_E_TYPE(s->etype[e])]++;
			d->edge[id].inferred += (s->etype[e] & PL_E_INFERRED) != 0;
		}
	}
	return 0;
}

static int fold(struct dot *d, struct pl_err *err)
{
	PL_CHECK(find_labels(d, err));
	PL_CHECK(find_sets(d, err));
	for (uint32_t i = 0; i < d->s->n_nodes; i++)
		if (d->of[i] != PL_NONE)
			PL_CHECK(fold_node(d, i, err));
	return fold_edges(d, err);
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Inside of quotes, cut in the middle to LABEL_MAX bytes. */
static void put_name(struct pl_writer *w, const char *s)
{
	size_t n = strlen(s), head = n > LABEL_MAX ? (LABEL_MAX - 3) / 2 : n;

	for (size_t i = 0; i < n; i++) {
		if (n > LABEL_MAX && i == head) {
			pl_write_text(w, "...");
			i = n - (LABEL_MAX - 3 - head);
		}
		if (s[i] == '"' || s[i] == '\\')
			pl_write_char(w, '\\');
		pl_write_char(w, (unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7e
					 ? '?'
					 : s[i]); /* a cut may split a character */
	}
}

/* The classes of operations that take most of the node's time. */
static void put_operators(struct dot *d, const struct fold *f, double ranks)
{
	pl_ns below = INT64_MAX;
	char ns[32];

	for (int k = 0; k < TOP; k++) {
		unsigned best = 0;

		for (unsigned i = 1; i < PL_OP_COUNT_; i++)
			if (f->of[i] < below && f->of[i] > f->ns / 50 &&
			    (!best || f->of[i] > f->of[best]))
				best = i;
		if (!best)
			return;
		below = f->of[best];
		pl_write_format(&d->w, "\\l%s %s", pl_graph_operator_name(best),
				pl_fmt_ns(ns, sizeof(ns), (pl_ns)((double)below / ranks)));
	}
}

static void put_fold(struct dot *d, size_t i)
{
	const struct fold *f = &d->fold[i];
	const struct label *x = &d->label[f->label];
	double ranks = (double)f->ranks;
	char ns[32], bytes[32];

	pl_write_format(&d->w, "\t\tn%zu [fillcolor=\"%s\"%s, label=\"", i,
			fill[x->phase] ? fill[x->phase] : fill[PL_PH_OTHER],
			x->joint ? ", shape=ellipse" : "");
	if (x->coll != PL_COLL_COUNT_)
		pl_write_text(&d->w, pl_trace_coll_name(x->coll));
	else
		pl_write_text(&d->w, x->phase == PL_PH_UNKNOWN ? "operations"
							       : pl_graph_phase_name(x->phase));
	if (x->text != PL_NONE) {
		pl_write_text(&d->w, x->joint ? ", group " : " ");
		put_name(&d->w, pl_intern_get(&d->text, x->text));
	}
	pl_write_format(&d->w, "\\n%.0f x, %s", (double)f->n / ranks,
			pl_fmt_ns(ns, sizeof(ns), (pl_ns)((double)f->ns / ranks)));
	if (f->bytes)
		pl_write_format(&d->w, ", %s",
				pl_fmt_bytes(bytes, sizeof(bytes), (double)f->bytes / ranks));
	if (x->coll == PL_COLL_COUNT_)
		put_operators(d, f, ranks);
	pl_write_text(&d->w, "\\l\"];\n");
}

/* "ranks 0-3, 8" */
static void put_ranks(struct dot *d, uint32_t set)
{
	const int32_t *rank = d->g->rank;
	int32_t n = 0;

	for (int32_t i = 0; i < d->g->n_ranks; i++) {
		int32_t k = i;

		if (d->set[i] != set)
			continue;
		while (k + 1 < d->g->n_ranks && d->set[k + 1] == set && rank[k + 1] == rank[k] + 1)
			k++;
		if (++n > 8) {
			pl_write_text(&d->w, ", ...");
			return;
		}
		pl_write_text(&d->w, n > 1 ? ", " : k > i ? "ranks " : "rank ");
		pl_write_int(&d->w, rank[i]);
		if (k > i)
			pl_write_format(&d->w, "-%d", rank[k]);
		i = k;
	}
}

static void put_clusters(struct dot *d)
{
	uint32_t joint = d->set[d->g->n_ranks];

	for (uint32_t set = 0; set < d->sets.n; set++) {
		bool any = false;

		for (size_t i = 0; i < d->n_folds; i++)
			any |= d->fold[i].set == set;
		if (!any)
			continue;
		if (set != joint) {
			pl_write_format(&d->w, "\tsubgraph cluster_%u {\n\t\tlabel=\"", set);
			put_ranks(d, set);
			pl_write_text(&d->w, "\";\n");
		}
		for (size_t i = 0; i < d->n_folds; i++)
			if (d->fold[i].set == set)
				put_fold(d, i);
		if (set != joint)
			pl_write_text(&d->w, "\t}\n");
	}
}

static void put_edges(struct dot *d)
{
	for (size_t i = 0; i < d->n_edges; i++) {
		const struct fold_edge *e = &d->edge[i];
		unsigned most = 0;
		uint64_t n = 0;

		for (unsigned k = 0; k < PL_E_COUNT_; k++) {
			n += e->n[k];
			if (e->n[k] > e->n[most])
				most = k;
		}
		pl_write_format(&d->w, "\tn%u -> n%u [label=\"%s", e->from, e->to,
				pl_graph_edge_type_name(most));
		if (n > 1)
			pl_write_format(&d->w, " x %llu", (unsigned long long)n);
		pl_write_format(&d->w, "\"%s];\n", e->inferred == n ? ", style=dashed" : "");
	}
}

static void print(struct dot *d)
{
	for (size_t i = 0; i < d->n_folds; i++) {
		for (int32_t r = 0; r < d->g->n_ranks; r++)
			d->fold[i].ranks += d->set[r] == d->fold[i].set;
		if (d->label[d->fold[i].label].joint || !d->fold[i].ranks)
			d->fold[i].ranks = d->fold[i].meets ? d->fold[i].n / d->fold[i].meets : 1;
		d->fold[i].ranks += !d->fold[i].ranks;
	}
	pl_write_text(&d->w,
		      "digraph paceline {\n"
		      "\tnode [shape=box, style=\"filled,rounded\", color=\"#8a94a2\", "
		      "fontname=\"sans-serif\", fontsize=10];\n"
		      "\tedge [arrowsize=0.6, color=\"#5d6774\", fontname=\"sans-serif\", "
		      "fontsize=8, fontcolor=\"#5d6774\"];\n"
		      "\tgraph [fontname=\"sans-serif\", fontsize=11, color=\"#c5ccd6\"];\n");
	put_clusters(d);
	put_edges(d);
	pl_write_text(&d->w, "}\n");
}

/* The first step of the shape that most steps have. */
static int usual_step(const struct pl_graph *g, const struct pl_gstep **step, struct pl_err *err)
{
	const struct pl_gstep *best = NULL;
	uint32_t *n;

	PL_CHECK(pl_alloc(&n, g->n_shapes + 1, sizeof(*n), err));
	for (size_t i = 0; i < g->n_steps; i++)
		n[g->step[i].shape] += g->step[i].number != INT64_MIN || g->stepless;
	for (size_t i = 0; i < g->n_steps; i++)
		if (!best || n[g->step[i].shape] > n[best->shape])
			best = &g->step[i];
	pl_free(n);
	*step = best;
	return 0;
}

int pl_graph_show_dot(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct dot d = { .g = g };
	int rc = usual_step(g, &d.step, err), end;

	pl_write_init(&d.w, out, 0);
	if (rc >= 0 && d.step) {
		d.s = &g->shape[d.step->shape];
		PL_TRY(pl_alloc(&d.of, d.s->n_nodes + (size_t)1, sizeof(*d.of), err));
		PL_TRY(pl_alloc(&d.last, g->n_res + 1, sizeof(*d.last), err));
		PL_TRY(pl_alloc(&d.set, (size_t)g->n_ranks + 1, sizeof(*d.set), err));
		PL_TRY(fold(&d, err));
	}
	if (rc >= 0)
		print(&d);
out:
	end = pl_write_end(&d.w, err);
	pl_intern_fini(&d.text);
	pl_intern_fini(&d.labels);
	pl_intern_fini(&d.sets);
	pl_intern_fini(&d.folds);
	pl_intern_fini(&d.edges);
	pl_free(d.label);
	pl_free(d.fold);
	pl_free(d.edge);
	pl_free(d.of);
	pl_free(d.last);
	pl_free(d.set);
	return rc < 0 ? rc : end;
}
