/* Input of the program: graphs, and changes from the command line and from files. */
#include "core/progress.h"
#include "derive/describe.h"
#include "graph/edit_messages.h"
#include "graph/select.h"
#include "program.h"

#define CHANGES_MAX (16u << 20) /* bytes of all files */

void changes_fini(struct changes *x)
{
	pl_plan_fini(&x->plan);
	pl_plan_fini(&x->all);
	pl_topology_fini(&x->topo);
	pl_predictor_free(x->predictor);
	pl_free(x->hits);
	pl_free(x->hits_of_a);
}

const struct pl_rewrite *change_line(const struct changes *x, size_t i)
{
	size_t n = x->structural ? x->structural->n_rw : 0;
	const struct pl_plan *rest = x->all.n_rw ? &x->all : &x->plan;

	if (i < n)
		return &x->structural->rw[i];
	return i - n < rest->n_rw ? &rest->rw[i - n] : NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

static int read_file(const char *path, struct pl_buf *b, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_in_read_all(in, CHANGES_MAX, b, err);
	pl_in_close(in);
	return rc < 0 ? rc : pl_buf_put(b, "\n", 1, err);
}

/* One change a line of [line, end); text after # and blank lines do not count. */
static int split(struct changes *x, const char *path, char *line, const char *end,
		 struct pl_err *err)
{
	char *stop;

	for (unsigned number = 1; line < end; line = stop + 1, number++) {
		int rc;
		size_t n;

		stop = memchr(line, '\n', (size_t)(end - line));
		*stop = '\0';
		line[strcspn(line, "#")] = '\0';
		line += strspn(line, " \t\r");
		for (n = strlen(line); n && strchr(" \t\r", line[n - 1]);)
			line[--n] = '\0';
		rc = n ? pl_rewrite_add_line(&x->plan, line, err) : 0;
		if (rc < 0)
			return pl_wrap(err, "%s: line %u", path, number);
	}
	return 0;
}

int read_changes(const struct config *c, struct changes *x, struct pl_err *err)
{
	struct pl_buf text = { 0 };
	int rc = 0;

	x->first = x->plan.n_rw;
	for (size_t i = 0; i < c->whatif.n; i++)
		PL_TRY(pl_rewrite_add_line(&x->plan, c->whatif.v[i], err));
	for (size_t i = 0; i < c->whatif_file.n; i++) {
		text.n = 0;
		PL_TRY(read_file(c->whatif_file.v[i], &text, err));
		PL_TRY(split(x, c->whatif_file.v[i], (char *)text.p, (char *)text.p + text.n, err));
	}
	x->has_topology = c->topology && (x->plan.n_rw || c->plan || c->expand);
	if (x->has_topology)
		PL_TRY(pl_topology_parse(c->topology, &x->topo, err));
	if (c->model)
		rc = pl_predictor_open(
			&(struct pl_predictor_opts){ .model = c->model,
						     .folder = (const char *const *)c->folder.v,
						     .n_folders = c->folder.n,
						     .device = c->device,
						     .log = &c->c.log },
			&x->predictor, err);
out:
	pl_buf_fini(&text);
	return rc;
}

/* Why a change whose selector is right, or that has none, concerns no operation. */
static int refuse_change(const struct pl_rewrite *rw, const struct pl_graph *g, struct pl_err *err)
{
	const char *why = "it changes no operation of the graph";

	if (rw->op == PL_RW_RANKS)
		why = "no communication is known to be data-parallel";
	else if (rw->op == PL_RW_BATCH)
		why = "no operation is known to take in samples";
	else if (rw->op == PL_RW_LATENCY && pl_graph_has_messages(g))
		why = "the graph has no receives behind its messages, which latency would delay; "
		      "graph --fold-messages makes whole transfers of messages, which have latency";
	else if (rw->op == PL_RW_BANDWIDTH || rw->op == PL_RW_LATENCY)
		why = "the graph has no communication between ranks";
	return pl_fail(err, PL_EDATA, "%s", why);
}

/* Where a plan changed the graph, operations may take no time, because another one takes it. To
 * change these changes nothing, which would look like a prediction. */
static int warn_if_short(const struct config *c, const struct pl_rewrite *rw,
			 const struct report *r, struct pl_err *err)
{
	struct pl_graph_select x;
	bool any = false;

	if (!r->planned || !rw->select.key[PL_SEL_NAME] ||
	    (rw->op != PL_RW_SCALE && rw->op != PL_RW_REMOVE && rw->op != PL_RW_FIX))
		return 0;
	PL_CHECK(pl_graph_select_init(&x, &rw->select, &r->g, NULL, err));
	for (size_t k = 0; k < r->g.n_steps && !any; k++) {
		const struct pl_gstep *st = &r->g.step[k];
		const struct pl_shape *sh = &r->g.shape[st->shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && !any; i++)
			any = st->dur[i] > 0 && pl_graph_selects(&x, sh, i) &&
			      pl_graph_select_step(&x, st->number);
	}
	pl_graph_select_fini(&x);
	if (!any)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the change \"%s\" selects only operations that take no time after the "
		       "other changes; of operations that fuse-ops made one, the first has the "
		       "time of all",
		       rw->text);
	return 0;
}

/* A change that concerns no operation, in no job, is refused: that nothing changes would look like
 * a prediction. A link that no communication uses changes nothing indeed, so a warning says it. */
static int check_hits(const struct config *c, const struct changes *x, const uint64_t *before,
		      const struct report *r, struct pl_err *err)
{
	bool last = before || c->n_jobs == 1;

	for (size_t i = 0; i < x->plan.n_rw; i++) {
		const struct pl_rewrite *rw = &x->plan.rw[i];
		bool link = (rw->op == PL_RW_BANDWIDTH || rw->op == PL_RW_LATENCY) && rw->word &&
			    strcmp(rw->word, "*") != 0;

		if (x->hits[i]) {
			PL_CHECK(warn_if_short(c, rw, r, err));
			continue;
		}
		if (last && !link && !(before && before[i]) &&
		    (pl_graph_select_refuse(&rw->select, &r->g, err) < 0 ||
		     refuse_change(rw, &r->g, err) < 0))
			return pl_wrap(err, "the change \"%s\"", rw->text);
		pl_say(&c->c.log, PL_LOG_WARN, "the change \"%s\" selects no operation%s", rw->text,
		       link ? "; no communication uses that link" : "");
	}
	return 0;
}

bool has_streams(const struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_res; i++)
		if (g->res[i].track_type == PL_T_STREAM)
			return true;
	return false;
}

#define MOST_KNOWN 0.9

static void warn_of_basis(const struct config *c, const struct report *r)
{
	if (c->model && r->basis.known_ns < MOST_KNOWN * r->basis.changed_ns)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the cost model knows operations of %.0f %% of the time that changes; the "
		       "others follow rules",
		       100 * r->basis.known_ns / r->basis.changed_ns);
	if (r->basis.guessed)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the graph does not say which communication is data-parallel: for \"ranks\" "
		       "that of all ranks counts as such");
	if (r->basis.no_batch)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the recording does not say which sizes follow the batch (PyTorch: "
		       "record_shapes=True): "
		       "for \"batch\" all computation of samples counts as such");
}

/* Changes of durations alone. before: what they select in another job; NULL: there is none. */
static int use_durations(const struct config *c, struct changes *x, const uint64_t *before,
			 struct report *r, struct pl_err *err)
{
	const struct pl_rewrite_known known = what_is_known(x);
	const bool same = !r->planned || r->basis.carries_same;

	PL_CHECK(pl_alloc(&x->hits, x->plan.n_rw, sizeof(*x->hits), err));
	PL_CHECK(pl_rewrite_durations(r->s, &r->g, &x->plan, &known, x->hits, &r->basis, err));
	r->basis.carries_same &= same;
	/* not before, because a text means that the line is an option */
	PL_CHECK(pl_plan_add_texts(&x->plan, err));
	PL_CHECK(check_hits(c, x, before, r, err));
	warn_of_basis(c, r);
	return explain_plan(NULL, &x->plan, r, err);
}

/* Tensor parallelism is applied to the graph alone, and the other lines to the graph that it makes,
 * as if that had been read. */
static int use_first(const struct config *c, const struct pl_plan *p, const struct changes *x,
		     struct report *r, struct pl_err *err)
{
	struct pl_plan first = *p;  /* borrows all but the list */
	struct changes others = *x; /* borrows all but the plan and the hits */
	int rc;

	others.hits = NULL;
	pl_plan_init(&others.plan);
	others.plan.file = p->file;
	first.n_rw = 0;
	PL_TRY(pl_alloc(&first.rw, p->n_rw, sizeof(*p->rw), err));
	for (size_t i = 0; i < p->n_rw; i++)
		if (pl_rewrite_is_first(p->rw[i].op))
			first.rw[first.n_rw++] = p->rw[i];
		else
			PL_TRY(pl_plan_add(&others.plan, &p->rw[i], err));
	PL_TRY(use_plan(&first, x, r, err));
	if (r->basis.links_unknown)
		pl_say(&c->c.log, PL_LOG_WARN, PL_REWRITE_LINKS_UNKNOWN);
	if (others.plan.n_rw)
		rc = pl_rewrite_is_timing(&others.plan) ? use_durations(c, &others, NULL, r, err)
							: use_lines(c, &others.plan, x, r, err);
	r->basis.in_other_parts = false; /* that is not all that changes */
out:
	pl_free(first.rw);
	pl_plan_fini(&others.plan);
	pl_free(others.hits);
	return rc;
}

/* Does it only change the durations of communication? Then microbatches do not repeat it. */
static int find_comm_only(const struct pl_graph *g, const struct pl_rewrite *rw, bool *only,
			  struct pl_err *err)
{
	struct pl_graph_select s;
	bool comm = false, other = false;

	*only = rw->op == PL_RW_NO_SYNC;
	if (rw->op != PL_RW_SCALE && rw->op != PL_RW_REMOVE && rw->op != PL_RW_SET &&
	    rw->op != PL_RW_FIX)
		return 0;
	PL_CHECK(pl_graph_select_init(&s, &rw->select, g, NULL, err));
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *sh = &g->shape[k];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && !other; i++) {
			bool is = pl_graph_select_is_comm(sh->role[i], sh->kind[i]);
			bool selected = pl_graph_selects(&s, sh, i);

			comm |= selected && is;
			other |= selected && !is;
		}
	}
	pl_graph_select_fini(&s);
	*only = comm && !other;
	return 0;
}

/* The turns of lines. Each but the first of them is applied to what those before have made, as if
 * that had been read. */
enum turn {
	TURN_OVERLAP, /* what moves waits of communication that other lines build again */
	TURN_GRAPH,   /* all else that changes the graph or its network */
	TURN_WORK,    /* durations */
	TURN_LAST,    /* microbatches, which repeat what has these durations */
	TURN_COMM,    /* durations of communication, which they do not repeat */
	TURNS
};

/* The turn of each line, and *some if there are several turns. */
static int find_turns(const struct pl_plan *p, const struct pl_graph *g, uint8_t *turn, bool *some,
		      struct pl_err *err)
{
	bool overlaps = false, builds = false, last = false, work = false, comm;

	*some = false;
	for (size_t i = 0; i < p->n_rw; i++) {
		overlaps |= p->rw[i].op == PL_RW_OVERLAP;
		last |= pl_rewrite_is_last(p->rw[i].op);
		builds |= pl_rewrite_is_comm(p->rw[i].op) || pl_rewrite_is_last(p->rw[i].op);
	}
	for (size_t i = 0; i < p->n_rw; i++) {
		const struct pl_rewrite *rw = &p->rw[i];

		turn[i] = TURN_GRAPH;
		if (pl_rewrite_changes_durations(rw->op)) {
			comm = false;
			if (last)
				PL_CHECK(find_comm_only(g, rw, &comm, err));
			turn[i] = comm ? TURN_COMM : TURN_WORK;
			work |= !comm;
		} else if (overlaps && builds && !pl_rewrite_is_comm(rw->op) &&
			   !pl_rewrite_is_network(rw->op) && !pl_rewrite_is_last(rw->op)) {
			turn[i] = TURN_OVERLAP;
		}
		*some |= turn[i] != TURN_GRAPH;
	}
	for (size_t i = 0; i < p->n_rw && work; i++)
		if (pl_rewrite_is_last(p->rw[i].op))
			turn[i] = TURN_LAST;
	return 0;
}

/* The changed durations of r->s become those of its graph. */
static int take_durations(struct report *r, struct pl_err *err)
{
	struct pl_edit e = { 0 };
	int rc;

	PL_TRY(pl_sim_edit(r->s, 0, r->g.n_steps, &e, err));
	for (size_t k = 0; k < r->g.n_steps; k++) {
		const pl_ns *ns = pl_sim_durations(r->s, k);
		uint32_t n = r->g.shape[r->g.step[k].shape].n_nodes;

		for (uint32_t i = r->g.shape[r->g.step[k].shape].n_entries; i < n; i++)
			PL_TRY(pl_edit_set_dur(&e, e.step[k].first + i, ns[i], err));
	}
	PL_TRY(pl_sim_settle(&e, err));
	rc = take_graph(r, &e, err);
out:
	pl_edit_fini(&e);
	return rc;
}

/* The lines of a turn. That of the graph checks that the job has the tensors of the plan. */
static int use_turn(const struct config *c, const struct pl_plan *p, const uint8_t *turn,
		    enum turn now, const struct changes *x, struct report *r, struct pl_err *err)
{
	struct changes some = *x; /* borrows all but the plan and the hits */
	struct pl_plan lines;	  /* borrows from both plans */
	int rc = 0;

	some.hits = NULL;
	pl_plan_init(&some.plan);
	some.plan.file = p->file;
	for (size_t i = 0; i < p->n_rw; i++)
		if (turn[i] == now)
			PL_TRY(pl_plan_add(&some.plan, &p->rw[i], err));
	lines = some.plan;
	if (now == TURN_GRAPH) {
		lines.tensor = p->tensor;
		lines.n_tensors = p->n_tensors;
	}
	if (!lines.n_rw && !lines.n_tensors)
		goto out;
	if (now == TURN_WORK || now == TURN_COMM) {
		PL_TRY(use_durations(c, &some, NULL, r, err));
	} else {
		if (now == TURN_LAST)
			PL_TRY(take_durations(r, err));
		PL_TRY(use_plan(&lines, x, r, err));
	}
out:
	pl_plan_fini(&some.plan);
	pl_free(some.hits);
	return rc;
}

static int use_turns(const struct config *c, const struct pl_plan *p, const uint8_t *turn,
		     const struct changes *x, struct report *r, struct pl_err *err)
{
	for (int now = 0; now < TURNS; now++)
		PL_CHECK(use_turn(c, p, turn, (enum turn)now, x, r, err));
	r->basis.in_other_parts = false; /* that is not all that changes */
	return 0;
}

int use_lines(const struct config *c, const struct pl_plan *p, const struct changes *x,
	      struct report *r, struct pl_err *err)
{
	uint8_t *turn;
	bool some;
	int rc = 0;

	for (size_t i = 0; i < p->n_rw; i++)
		if (pl_rewrite_is_first(p->rw[i].op))
			return use_first(c, p, x, r, err);
	if (!p->n_rw && !p->n_tensors)
		return 0;
	PL_CHECK(pl_alloc(&turn, p->n_rw, sizeof(*turn), err));
	PL_TRY(find_turns(p, &r->g, turn, &some, err));
	PL_TRY(some ? use_turns(c, p, turn, x, r, err) : use_plan(p, x, r, err));
	if (r->basis.unused_link)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "a change of the network selects no operation; no communication uses that "
		       "link");
	r->basis.unused_link = false; /* once */
out:
	pl_free(turn);
	return rc;
}

/* A line of --what-if concerns all microbatches of a plan, so lines such as accumulate wait for the
 * lines of --what-if. */
int hold_back(const struct config *c, struct changes *x, struct pl_plan *p, struct pl_err *err)
{
	size_t n = 0, last = 0;

	for (size_t i = 0; i < p->n_rw; i++)
		last += pl_rewrite_is_last(p->rw[i].op);
	if (!last || !x->structural || !x->plan.n_rw)
		return 0;
	for (size_t i = 0; i < x->plan.n_rw && c->expand; i++)
		if (x->plan.rw[i].op == PL_RW_BATCH || x->plan.rw[i].op == PL_RW_DEVICE)
			return pl_fail(err, PL_EUSAGE,
				       "what-if \"%s\": with --expand it does not concern all "
				       "microbatches of the plan; put the line into the plan",
				       x->plan.rw[i].text);
	if (c->expand)
		return 0;
	x->all.file = p->file;
	for (size_t i = 0; i < x->plan.n_rw; i++)
		PL_CHECK(pl_plan_add(&x->all, &x->plan.rw[i], err));
	for (size_t i = 0; i < p->n_rw; i++)
		if (pl_rewrite_is_last(p->rw[i].op))
			PL_CHECK(pl_plan_add(&x->all, &p->rw[i], err));
		else
			p->rw[n++] = p->rw[i];
	p->n_rw = n;
	return 0;
}

/* On hosts it changes nothing, which would look like a prediction. */
static void warn_of_precision(const struct config *c, const struct changes *x,
			      const struct report *r)
{
	const struct pl_rewrite *rw;

	for (size_t i = 0; !has_streams(&r->g) && !x->predictor && (rw = change_line(x, i)); i++)
		if (rw->op == PL_RW_PRECISION && rw->x <= 0)
			pl_say(&c->c.log, PL_LOG_WARN,
			       "precision: not modelled for host operations; give share=X");
}

/* Operations of the graph that --plan makes may take the time of others, which another precision
 * changes by another factor. */
static int check_precision(const struct changes *x, struct pl_err *err)
{
	bool merged = false;

	for (size_t i = 0; x->structural && i < x->structural->n_rw; i++)
		merged |= x->structural->rw[i].op == PL_RW_FUSE_OPS ||
			  x->structural->rw[i].op == PL_RW_RECOMPUTE;
	for (size_t i = 0; merged && i < x->plan.n_rw; i++) {
		const struct pl_rewrite *rw = &x->plan.rw[i];

		if (rw->op != PL_RW_PRECISION || (!rw->n_args && rw->x > 0))
			continue;
		pl_fail(err, PL_EDATA,
			"some operations take the time of others, by fuse-ops or recompute of the "
			"plan; put precision into the plan");
		return pl_wrap(err, "the change \"%s\"", rw->text);
	}
	return 0;
}

int use_changes(const struct config *c, struct changes *x, struct report *r, struct pl_err *err)
{
	warn_of_precision(c, x, r);
	if (!x->plan.n_rw)
		return 0;
	PL_CHECK(check_precision(x, err));
	if (x->all.n_rw)
		return use_lines(c, &x->all, x, r, err);
	if (!pl_rewrite_is_timing(&x->plan))
		return use_lines(c, &x->plan, x, r, err);
	x->hits_of_a = x->hits; /* there are two jobs at most */
	x->hits = NULL;
	return use_durations(c, x, x->hits_of_a, r, err);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int fold(const struct config *c, struct report *r, struct pl_err *err)
{
	for (size_t k = 0; k < r->g.n_steps; k++)
		r->n_recorded += r->g.step[k].number != INT64_MIN;
	return pl_sim_fold(&r->g, c->fold == FOLD_MEDIAN, &r->g, &r->n_folded, err);
}

/* Is anything about whole collectives, not messages? Lines of a plan are as those of --what-if. */
static bool wants_whole(const struct config *c, const struct changes *x)
{
	for (size_t i = 0; x && i < x->plan.n_rw; i++)
		if (x->plan.rw[i].op == PL_RW_RANKS)
			return true;
	return c->expand || c->stragglers ||
	       (x && (x->structural || !pl_rewrite_is_timing(&x->plan)));
}

/* The optional columns that the verdict reads besides the phase, and those of the memory. */
#define OF_VERDICT (PL_HAS_peer | PL_HAS_module | PL_HAS_comm | PL_HAS_work | PL_HAS_line)
#define OF_MEMORY  (PL_HAS_bytes | PL_HAS_mb | PL_HAS_layer)

/* Does the run only report? Without changes and timelines the rest of a report distinguishes nodes
 * by kind, role, resource, name and phase. */
static bool only_reports(const struct config *c, const struct report *r)
{
	const struct changes *x = r->changes;

	return x && !x->plan.n_rw && !c->plan && !c->expand && !c->stragglers && !c->timeline &&
	       !c->per && c->fold == FOLD_NONE && !r->whole;
}

/* A table is of the memory, of changes, for which equal operations show what communication beside
 * them costs, or needs none of the optional columns. */
static unsigned unused_columns(const struct config *c)
{
	if (c->table == SEC_ALL)
		return PL_HAS_chunk;
	return PL_HAS_chunk | (c->table == SEC_WORTH ? OF_VERDICT & ~PL_HAS_work : OF_VERDICT) |
	       (c->table == SEC_MEMORY ? 0 : OF_MEMORY | PL_HAS_phase);
}

/* May it gather sharded parameters, in so few nodes that other settings of them are tried? The
 * steps are not there yet. */
static bool may_gather(const struct pl_graph *g)
{
	size_t nodes = 0;
	bool any = false;

	for (size_t i = 0; i < g->n_shapes; i++) {
		nodes += g->shape[i].n_nodes;
		for (uint32_t k = 0; k < g->shape[i].n_comms; k++)
			any |= g->shape[i].comms[k].kind == PL_COLL_ALLGATHER;
	}
	return any && !is_large(nodes);
}

/* The memory needs activations; the verdict reads the sizes of messages too; a graph is changed
 * with all columns. */
static unsigned unused_now(const struct pl_graph *g)
{
	if (knows_memory(g) || may_gather(g))
		return 0;
	return pl_graph_has_messages(g) ? OF_MEMORY & ~PL_HAS_bytes : OF_MEMORY;
}

static void drop_from_shapes(struct pl_graph *g, unsigned columns)
{
	for (size_t i = 0; i < g->n_shapes; i++)
		pl_graph_shape_drop_columns(&g->shape[i], columns);
	pl_mem_trim(); /* because simulations need larger pieces than the columns were */
}

void drop_columns(const struct config *c, struct report *r)
{
	if (only_reports(c, r))
		drop_from_shapes(&r->g, OF_VERDICT | OF_MEMORY);
}

static int read_input(const struct config *c, struct job *job, struct pl_pool *pool,
		      struct report *r, struct pl_err *err)
{
	struct pl_inputs_graph o;
	struct pl_in *in;
	int rc;

	if (!job->graph) {
		pl_inputs_graph_init(&o, &c->c, pool);
		PL_CHECK(pl_inputs_graph(&job->inputs, &o, &r->g, err));
		if (only_reports(c, r))
			drop_from_shapes(&r->g, unused_columns(c) | unused_now(&r->g));
		return 0;
	}
	in = pl_inputs_open(&job->inputs.v[0], err);
	if (!in)
		return err->code;
	pl_progress("reading %s", pl_in_name(in));
	if (only_reports(c, r))
		rc = pl_graph_read_without(in, pool, unused_columns(c), unused_now, &r->g, err);
	else
		rc = pl_derive_read(in, pool, &r->g, err);
	pl_in_close(in);
	return rc;
}

int read_graph(const struct config *c, struct job *job, struct pl_pool *pool, struct report *r,
	       struct pl_err *err)
{
	int rc;

	PL_CHECK(read_input(c, job, pool, r, err));
	if (r->changes && r->changes->has_topology)
		PL_CHECK(pl_topology_check(&r->changes->topo, r->g.n_ranks, err));
	if (wants_whole(c, r->changes)) {
		r->messages_folded = pl_graph_has_messages(&r->g);
		PL_CHECK(pl_sim_fold_messages(&r->g, err));
	}
	if (c->fold == FOLD_NONE)
		return 0;
	rc = fold(c, r, err);
	return rc < 0 ? pl_wrap(err, "%s", pl_inputs_all(&job->inputs)) : rc;
}

struct pl_rewrite_known what_is_known(const struct changes *x)
{
	return (struct pl_rewrite_known){ .topo = x->has_topology ? &x->topo : NULL,
					  .predictor = x->predictor };
}

int fit_cost(const struct changes *x, const struct pl_graph *g, struct pl_cost *cost,
	     struct pl_err *err)
{
	PL_CHECK(pl_cost_fit(g, x->has_topology ? &x->topo : NULL, cost, err));
	cost->predictor = x->predictor;
	return 0;
}

int take_graph(struct report *r, const struct pl_edit *e, struct pl_err *err)
{
	struct pl_graph out;

	PL_CHECK(pl_edit_graph(e, &out, err));
	pl_sim_run_fini(&r->run);
	pl_sim_free(r->s);
	pl_graph_fini(&r->g);
	r->g = out;
	r->s = pl_sim_new(&r->g, err);
	return r->s ? find_new_memory(r, err) : err->code; /* its shapes are others */
}
