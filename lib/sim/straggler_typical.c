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
 * 2025), which has operation tables. Classes by size and shapes, and gaps, are added here, because
 * the names of a profiler do not distinguish large messages from small ones, nor large tensors.
 *
 * Two passes over all nodes of all steps; 8 bytes for each transfer, or for each operation if the
 * median of every operation is needed.
 */
#include <math.h>

#include "sim/straggler_typical.h"

/* ---- types ----------------------------------------------------------------------------------- */

static size_t unnamed_at(const char *name)
{
	static const char *const unnamed[] = { "(anonymous namespace)", "<unnamed>" };

	for (size_t i = 0; i < PL_LEN(unnamed); i++)
		if (!strncmp(name, unnamed[i], strlen(unnamed[i])))
			return strlen(unnamed[i]);
	return 0;
}

/* One kernel is compiled for many types: its name without template arguments and parameters. */
static size_t kernel_name(const char **name)
{
	const char *start = strncmp(*name, "void ", 5) ? *name : *name + 5, *end = start;

	for (size_t skip = unnamed_at(end); *end && (skip || (*end != '<' && *end != '('));
	     skip = unnamed_at(end))
		end += skip ? skip : 1;
	if (end == start)
		return strlen(*name);
	*name = start;
	return (size_t)(end - start);
}

static bool separates(char c)
{
	return c == '-' || c == '_' || c == ' ' || c == '.' || c == ':';
}

/* "forward-send" and "forward-recv" are two ends of one thing: the length of what is before the
 * word, or -1 when the name does not end in it. */
static long before_direction(const char *name)
{
	static const char *const directions[] = { "send", "recv", "receive" };
	size_t length = strlen(name);

	for (size_t i = 0; i < PL_LEN(directions); i++) {
		size_t suffix = strlen(directions[i]);

		if (length < suffix || strcmp(name + length - suffix, directions[i]) != 0)
			continue;
		if (length == suffix)
			return 0;
		if (separates(name[length - suffix - 1]))
			return (long)(length - suffix - 1);
	}
	return -1;
}

static int add_type(struct typical *typical, const char *name, uint8_t role, uint8_t kind,
		    pl_id *type, struct pl_err *err)
{
	struct pl_buf text = { 0 };
	long prefix;
	int rc;

	if (role == PL_RO_GAP)
		return pl_intern_add(&typical->types, "gap", 3, type, err);
	if (!*name)
		name = pl_trace_kind_name(kind);
	if (kind == PL_K_KERNEL) {
		size_t length = kernel_name(&name);

		return pl_intern_add(&typical->types, name, length, type, err);
	}
	prefix = role == PL_RO_TRANSFER && kind != PL_K_COLLECTIVE ? before_direction(name) : -1;
	if (prefix < 0)
		return pl_intern_add(&typical->types, name, strlen(name), type, err);
	rc = pl_buf_printf(&text, err, "%.*s%spp-comm", (int)prefix, name, prefix ? "-" : "");
	if (rc >= 0)
		rc = pl_intern_add(&typical->types, (const char *)text.p,
				   strlen((const char *)text.p), type, err);
	pl_buf_fini(&text);
	return rc;
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool is_operation(const struct pl_shape *shape, uint32_t node)
{
	static const bool has_duration[PL_RO_COUNT_] = {
		[PL_RO_COMPUTE] = true, [PL_RO_HOST] = true, [PL_RO_GAP] = true,
		[PL_RO_COPY] = true,	[PL_RO_SYNC] = true, [PL_RO_TRANSFER] = true,
	};

	return (shape->type[node] == PL_N_OP || shape->type[node] == PL_N_RESOURCE) &&
	       has_duration[shape->role[node]] && shape->res[node] != PL_NONE;
}

/* Gaps have no names: those after the same operation are of one class. */
static pl_id name_before(const struct pl_shape *shape, uint32_t node)
{
	for (uint32_t edge = shape->off[node]; edge < shape->off[node + 1]; edge++)
		if (PL_E_TYPE(shape->etype[edge]) == PL_E_SEQ &&
		    shape->res[shape->src[edge]] == shape->res[node])
			return shape->name[shape->src[edge]];
	return PL_NONE;
}

bool pl_sim_class_of(const struct pl_graph *g, const struct pl_shape *sh, uint32_t node,
		     struct pl_sim_class *out)
{
	uint32_t work = sh->work ? sh->work[node] : PL_NONE;

	if (!is_operation(sh, node))
		return false;
	*out = (struct pl_sim_class){
		.bytes = sh->bytes ? sh->bytes[node] : -1,
		.name = sh->name[node],
		.after = sh->role[node] == PL_RO_GAP ? name_before(sh, node) : PL_NONE,
		.role = sh->role[node],
		.kind = sh->kind[node],
		.work = work != PL_NONE && g->work[work].dims != PL_NONE ? work : PL_NONE
	};
	return true;
}

#define PIECES_BACK 8  /* nodes of the thread */
#define NODES_BACK  32 /* nodes of all, to either side */

struct pl_sim_piece pl_sim_piece_of(const struct pl_shape *sh, uint32_t node)
{
	struct pl_sim_piece p = { PL_NONE, PL_NONE, 0, 0 };
	uint32_t begin = node - sh->n_entries < NODES_BACK ? sh->n_entries : node - NODES_BACK;
	uint32_t end = sh->n_nodes - node < NODES_BACK ? sh->n_nodes : node + NODES_BACK, own = 0;

	for (uint32_t i = node; i-- > begin && own < PIECES_BACK;) {
		if (sh->res[i] != sh->res[node])
			continue;
		if (!own++)
			p.before = sh->name[i];
		p.number += sh->name[i] == sh->name[node];
	}
	for (uint32_t i = node + 1; i < end && p.after == PL_NONE; i++)
		if (sh->res[i] == sh->res[node])
			p.after = sh->name[i];
	return p;
}

static int classify(const struct pl_graph *g, size_t shape_index, struct pl_intern *keys,
		    struct typical *typical, size_t *capacity, struct pl_err *err)
{
	const struct pl_shape *shape = &g->shape[shape_index];

	PL_CHECK(pl_alloc(&typical->class[shape_index], shape -> n_nodes, sizeof(**typical->class),
			  err));
	for (uint32_t node = 0; node < shape->n_nodes; node++) {
		struct pl_sim_class key;

		typical->class[shape_index][node] = PL_NONE;
		if (!pl_sim_class_of(g, shape, node, &key))
			continue;
		PL_CHECK(pl_intern_add(keys, (const char *)&key, sizeof(key),
				       &typical->class[shape_index][node], err));
		if (keys->n == typical->n)
			continue;
		PL_CHECK(pl_grow(&typical->type, capacity, keys->n, sizeof(*typical->type), err));
		PL_CHECK(add_type(typical, pl_intern_get(&g->str, shape->name[node]),
				  shape->role[node], shape->kind[node],
				  &typical->type[typical->n++], err));
	}
	return 0;
}

/* ---- durations ------------------------------------------------------------------------------- */

struct sample {	    /* of one class */
	double sum; /* of those whose values are not kept */
	uint64_t n;
	size_t first, n_kept, n_missing; /* at value[first]; the missing from the back */
	size_t n_slots;			 /* values that there is room for */
};

/* The mean of operations that are all alike needs no values. */
static bool keeps_values(enum typical_how method, const struct pl_shape *shape, uint32_t node)
{
	return shape->role[node] == PL_RO_TRANSFER || method == TYPICAL_MEDIAN;
}

/* Counts the values, or puts them where there is room for them. values NULL: counts. */
static void gather(const struct pl_graph *g, enum typical_how method, const struct typical *typical,
		   struct sample *samples, pl_ns *values)
{
	for (size_t index = 0; index < g->n_steps; index++) {
		const struct pl_gstep *step = &g->step[index];
		const struct pl_shape *shape = &g->shape[step->shape];

		for (uint32_t node = 0; node < shape->n_nodes; node++) {
			uint32_t number = typical->class[step->shape][node];
			struct sample *sample = number == PL_NONE ? NULL : &samples[number];

			if (!sample || (values && !keeps_values(method, shape, node)))
				continue;
			if (!keeps_values(method, shape, node)) {
				sample->sum += (double)step->dur[node];
				sample->n++;
			} else if (!values) {
				sample->n_slots++;
			} else if (shape->flags[node] & PL_NF_MISSING) {
				values[sample->first + sample->n_slots - ++sample->n_missing] =
					step->dur[node];
			} else {
				values[sample->first + sample->n_kept++] = step->dur[node];
			}
		}
	}
}

static pl_ns mean(const pl_ns *values, size_t n)
{
	double sum = 0;

	for (size_t index = 0; index < n; index++)
		sum += (double)values[index];
	return (pl_ns)llround(sum / (double)n);
}

static int find_durations(const struct pl_graph *g, enum typical_how method,
			  struct typical *typical, struct pl_err *err)
{
	struct sample *samples = NULL;
	pl_ns *values = NULL;
	size_t n_values = 0;
	int rc;

	PL_TRY(pl_alloc(&samples, typical->n, sizeof(*samples), err));
	PL_TRY(pl_alloc(&typical->ns, typical->n, sizeof(*typical->ns), err));
	gather(g, method, typical, samples, NULL);
	for (size_t number = 0; number < typical->n; number++) {
		samples[number].first = n_values;
		n_values += samples[number].n_slots;
	}
	PL_TRY(pl_alloc(&values, n_values, sizeof(*values), err));
	gather(g, method, typical, samples, values);
	for (size_t number = 0; number < typical->n; number++) {
		const struct sample *sample = &samples[number];
		size_t n = sample->n_kept ? sample->n_kept : sample->n_missing;
		pl_ns *first = values + sample->first;

		if (n)
			typical->ns[number] = method == TYPICAL_MEAN ? mean(first, n)
								     : pl_median_mean_i64(first, n);
		else if (sample->n)
			typical->ns[number] = (pl_ns)llround(sample->sum / (double)sample->n);
	}
out:
	pl_free(samples);
	pl_free(values);
	return rc;
}

int pl_sim_typical_find(const struct pl_graph *g, enum typical_how method, struct typical *typical,
			struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	size_t capacity = 0;
	int rc;

	memset(typical, 0, sizeof(*typical));
	typical->n_shapes = g->n_shapes;
	PL_TRY(pl_alloc(&typical->class, g->n_shapes, sizeof(*typical->class), err));
	for (size_t shape = 0; shape < g->n_shapes; shape++)
		PL_TRY(classify(g, shape, &keys, typical, &capacity, err));
	PL_TRY(find_durations(g, method, typical, err));
out:
	pl_intern_fini(&keys);
	return rc;
}

void pl_sim_typical_fini(struct typical *typical)
{
	for (size_t shape = 0; typical->class && shape < typical->n_shapes; shape++)
		pl_free(typical->class[shape]);
	pl_free(typical->class);
	pl_free(typical->ns);
	pl_free(typical->type);
	pl_intern_fini(&typical->types);
}
