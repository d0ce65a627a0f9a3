/*
 * Types of operations and their typical durations.
 *
 * Operations are: computation, host operations, copies, time of a host thread between its
 * operations (which shows garbage collection), and the transfer of a communication. Begins of
 * steps, arrivals, rendezvous and modelled delays are not operations.
 *
 * The typical duration of a class is the mean, which keeps the total work. For a transfer it is the
 * median, because the time that a network or a late member adds to some transfers is the
 * irregularity itself. If the partners of a transfer were not recorded, its duration includes their
 * lateness; therefore such a transfer counts only if its class has no other. Mean and median are as
 * in "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et al., OSDI
 * 2025), which has operation tables. Classes by size and gaps are added here, because the names of
 * a profiler do not distinguish large messages from small ones.
 *
 * Two passes over all nodes of all steps; 8 bytes for each transfer, or for each operation if the
 * median of every operation is needed.
 */
#include <math.h>
#include <string.h>

#include "sim/straggler_typical.h"

/* ---- types ----------------------------------------------------------------------------------- */

static size_t unnamed_at(const char *p)
{
	static const char *const unnamed[] = { "(anonymous namespace)", "<unnamed>" };

	for (size_t i = 0; i < PL_LEN(unnamed); i++)
		if (!strncmp(p, unnamed[i], strlen(unnamed[i])))
			return strlen(unnamed[i]);
	return 0;
}

/* One kernel is compiled for many types: its name without template arguments and parameters. */
static size_t kernel_name(const char **name)
{
	const char *s = strncmp(*name, "void ", 5) ? *name : *name + 5, *p = s;

	for (size_t skip = unnamed_at(p); *p && (skip || (*p != '<' && *p != '('));
	     skip = unnamed_at(p))
		p += skip ? skip : 1;
	if (p == s)
		return strlen(*name);
	*name = s;
	return (size_t)(p - s);
}

static bool separates(char c)
{
	return c == '-' || c == '_' || c == ' ' || c == '.' || c == ':';
}

/* "forward-send" and "forward-recv" are two ends of one thing: the length of what is before the
 * word, or -1 when the name does not end in it. */
static long before_direction(const char *name)
{
	static const char *const word[] = { "send", "recv", "receive" };
	size_t n = strlen(name);

	for (size_t i = 0; i < PL_LEN(word); i++) {
		size_t k = strlen(word[i]);

		if (n < k || strcmp(name + n - k, word[i]) != 0)
			continue;
		if (n == k)
			return 0;
		if (separates(name[n - k - 1]))
			return (long)(n - k - 1);
	}
	return -1;
}

static int add_type(struct typical *t, const char *name, uint8_t role, uint8_t kind, pl_id *type,
		    struct pl_err *err)
{
	struct pl_buf b = { 0 };
	long n;
	int rc;

	if (role == PL_RO_GAP)
		return pl_intern_add(&t->types, "gap", 3, type, err);
	if (!*name)
		name = pl_trace_kind_name(kind);
	if (kind == PL_K_KERNEL) {
		size_t len = kernel_name(&name);

		return pl_intern_add(&t->types, name, len, type, err);
	}
	n = role == PL_RO_TRANSFER && kind != PL_K_COLLECTIVE ? before_direction(name) : -1;
	if (n < 0)
		return pl_intern_add(&t->types, name, strlen(name), type, err);
	rc = pl_buf_printf(&b, err, "%.*s%spp-comm", (int)n, name, n ? "-" : "");
	if (rc >= 0)
		rc = pl_intern_add(&t->types, (const char *)b.p, strlen((const char *)b.p), type,
				   err);
	pl_buf_fini(&b);
	return rc;
}

/* ---- classes --------------------------------------------------------------------------------- */

struct key { /* equal in every byte: of one class */
	int64_t bytes;
	pl_id name, after;
	uint32_t role, kind;
};

static bool is_operation(const struct pl_shape *s, uint32_t i)
{
	static const bool is[PL_RO_COUNT_] = {
		[PL_RO_COMPUTE] = true, [PL_RO_HOST] = true, [PL_RO_GAP] = true,
		[PL_RO_COPY] = true,	[PL_RO_SYNC] = true, [PL_RO_TRANSFER] = true,
	};

	return (s->type[i] == PL_N_OP || s->type[i] == PL_N_RESOURCE) && is[s->role[i]] &&
	       s->res[i] != PL_NONE;
}

/* Gaps have no names: those after the same operation are of one class. */
static pl_id name_before(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (PL_E_TYPE(s->etype[e]) == PL_E_SEQ && s->res[s->src[e]] == s->res[i])
			return s->name[s->src[e]];
	return PL_NONE;
}

static int classify(const struct pl_graph *g, size_t shape, struct pl_intern *keys,
		    struct typical *t, size_t *cap, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[shape];
	int rc;

	PL_TRY(pl_alloc(&t->class[shape], s -> n_nodes, sizeof(**t->class), err));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		struct key key = { .bytes = s->bytes ? s->bytes[i] : -1,
				   .name = s->name[i],
				   .after = PL_NONE,
				   .role = s->role[i],
				   .kind = s->kind[i] };

		t->class[shape][i] = PL_NONE;
		if (!is_operation(s, i))
			continue;
		if (s->role[i] == PL_RO_GAP)
			key.after = name_before(s, i);
		PL_TRY(pl_intern_add(keys, (const char *)&key, sizeof(key), &t->class[shape][i],
				     err));
		if (keys->n == t->n)
			continue;
		PL_TRY(pl_grow(&t->type, cap, keys->n, sizeof(*t->type), err));
		PL_TRY(add_type(t, pl_intern_get(&g->str, s->name[i]), s->role[i], s->kind[i],
				&t->type[t->n++], err));
	}
	rc = 0;
out:
	return rc;
}

/* ---- durations ------------------------------------------------------------------------------- */

struct sample {	    /* of one class */
	double sum; /* of those whose values are not kept */
	uint64_t n;
	size_t first, n_kept, n_missing; /* at value[first]; the missing from the back */
	size_t room;
};

/* The mean of operations that are all alike needs no values. */
static bool keeps(enum typical_how how, const struct pl_shape *s, uint32_t i)
{
	return s->role[i] == PL_RO_TRANSFER || how == TYPICAL_MEDIAN;
}

/* Counts the values, or puts them where there is room for them. value NULL: counts. */
static void gather(const struct pl_graph *g, enum typical_how how, const struct typical *t,
		   struct sample *v, pl_ns *value)
{
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *s = &g->shape[st->shape];

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			uint32_t c = t->class[st->shape][i];
			struct sample *x = c == PL_NONE ? NULL : &v[c];

			if (!x || (value && !keeps(how, s, i)))
				continue;
			if (!keeps(how, s, i)) {
				x->sum += (double)st->dur[i];
				x->n++;
			} else if (!value) {
				x->room++;
			} else if (s->flags[i] & PL_NF_MISSING) {
				value[x->first + x->room - ++x->n_missing] = st->dur[i];
			} else {
				value[x->first + x->n_kept++] = st->dur[i];
			}
		}
	}
}

static pl_ns mean(const pl_ns *v, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)v[i];
	return (pl_ns)llround(sum / (double)n);
}

static int durations(const struct pl_graph *g, enum typical_how how, struct typical *t,
		     struct pl_err *err)
{
	struct sample *v = NULL;
	pl_ns *value = NULL;
	size_t room = 0;
	int rc;

	PL_TRY(pl_alloc(&v, t->n, sizeof(*v), err));
	PL_TRY(pl_alloc(&t->ns, t->n, sizeof(*t->ns), err));
	gather(g, how, t, v, NULL);
	for (size_t c = 0; c < t->n; c++) {
		v[c].first = room;
		room += v[c].room;
	}
	PL_TRY(pl_alloc(&value, room, sizeof(*value), err));
	gather(g, how, t, v, value);
	for (size_t c = 0; c < t->n; c++) {
		size_t n = v[c].n_kept ? v[c].n_kept : v[c].n_missing;

		if (n)
			t->ns[c] = how == TYPICAL_MEAN ? mean(value + v[c].first, n)
						       : pl_median_mean_i64(value + v[c].first, n);
		else if (v[c].n)
			t->ns[c] = (pl_ns)llround(v[c].sum / (double)v[c].n);
	}
out:
	pl_free(v);
	pl_free(value);
	return rc;
}

int pl_sim_typical_find(const struct pl_graph *g, enum typical_how how, struct typical *t,
			struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	size_t cap = 0;
	int rc;

	memset(t, 0, sizeof(*t));
	t->n_shapes = g->n_shapes;
	PL_TRY(pl_alloc(&t->class, g->n_shapes, sizeof(*t->class), err));
	for (size_t i = 0; i < g->n_shapes; i++)
		PL_TRY(classify(g, i, &keys, t, &cap, err));
	PL_TRY(durations(g, how, t, err));
out:
	pl_intern_fini(&keys);
	return rc;
}

void pl_sim_typical_fini(struct typical *t)
{
	for (size_t i = 0; t->class && i < t->n_shapes; i++)
		pl_free(t->class[i]);
	pl_free(t->class);
	pl_free(t->ns);
	pl_free(t->type);
	pl_intern_fini(&t->types);
}
