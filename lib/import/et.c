/*
 * PyTorch execution traces (schemas 1.0.x and 1.1.x): only the collectives of one process are read,
 * in order of start, with their sizes.
 *
 * Nodes are cut out of the array by counting brackets. Only nodes whose text has a name of
 * communication are parsed. Schema 1.0 has inputs and outputs as arrays and rf_id as a member; 1.1
 * has them as objects ("values") and rf_id in a list of attributes. A tensor is [id, storage,
 * offset, elements, bytes of one, device] in both. One pass at the speed of the bracket scanner.
 */
#include "import/internal.h"
#include "trace/chakra.h"

struct pl_et {
	struct pl_et_file *file;
	size_t n, cap;
	struct pl_arena mem; /* groups */
};

struct pl_et *pl_import_et_new(struct pl_err *err)
{
	struct pl_et *et = NULL;

	return pl_alloc(&et, 1, sizeof(*et), err) < 0 ? NULL : et;
}

void pl_import_et_free(struct pl_et *et)
{
	if (!et)
		return;
	for (size_t i = 0; i < et->n; i++) {
		pl_free(et->file[i].pid);
		pl_free(et->file[i].node);
	}
	pl_free(et->file);
	pl_arena_fini(&et->mem);
	pl_free(et);
}

const struct pl_et_file *pl_import_et_find(const struct pl_et *et, const char *pid, int32_t rank)
{
	const struct pl_et_file *found = NULL;

	for (size_t i = 0; i < et->n; i++) {
		const struct pl_et_file *f = &et->file[i];

		if (!strcmp(f->pid, pid) && (!found || (rank >= 0 && f->rank == rank)))
			found = f;
	}
	return found;
}

bool pl_import_et_probe(const uint8_t *p, size_t n)
{
	return pl_import_has(p, n, "\"schema\"") && pl_import_has(p, n, "\"nodes\"") &&
	       (pl_import_has(p, n, "\"rf_id\"") || pl_import_has(p, n, "execution_trace|") ||
		pl_import_has(p, n, "\"ctrl_deps\"")) &&
	       !pl_import_has(p, n, "\"traceEvents\"");
}

/* ---- one node ------------------------------------------------------------------------------ */

struct tensors {
	int64_t elements, bytes;
	int n;
};

/* The members of a node, which have no fixed order. */
struct raw_node {
	const char *name;
	size_t n_name;
	int64_t rf;
	struct tensors in, out;
	const char *coll; /* from the inputs */
	bool wait;
	int64_t size;		      /* last integer of the inputs: ranks of the group */
	int64_t in_n, out_n, pg_size; /* attributes of newer traces, -1 */
	const char *dtype, *group;
	size_t n_dtype, n_group;
};

/* An input of record_param_comms that is a word. */
static void comm_word(struct raw_node *r, const char *s, size_t n)
{
	char text[64];
	const char *coll;

	if ((n == 4 && !memcmp(s, "wait", 4)) || (n == 4 && !memcmp(s, "init", 4))) {
		r->wait = true;
		return;
	}
	if (r->coll || !n || n > 40)
		return;
	snprintf(text, sizeof(text), "nccl:%.*s", (int)n, s);
	coll = pl_trace_coll_from_name(text, strlen(text));
	if (coll && strcmp(coll, "collective") != 0)
		r->coll = coll;
}

/*
 * An array of values; j is after its '['. Six members of the form of a tensor are one tensor;
 * arrays of another form are searched for tensors. False: bad JSON.
 */
static bool values(struct pl_json *j, struct raw_node *r, struct tensors *t, int depth)
{
	int64_t v[5] = { 0 }, x;
	bool tensor = true, device = false;
	enum pl_json_type k;
	int n = 0;

	while ((k = pl_json_next(j)) != PL_JSON_ARRAY_END) {
		switch (k) {
		case PL_JSON_NUMBER:
			x = 0;
			if (!pl_json_i64(j->text, j->len, &x))
				tensor = false;
			if (n < 5)
				v[n] = x;
			else
				tensor = false;
			if (!depth && t == &r->in)
				r->size = x;
			break;
		case PL_JSON_STRING:
			device = n == 5;
			tensor = tensor && device;
			if (!depth && t == &r->in)
				comm_word(r, j->text, j->len);
			break;
		case PL_JSON_ARRAY:
			tensor = false;
			if (!values(j, r, t, depth + 1))
				return false;
			break;
		case PL_JSON_TRUE:
		case PL_JSON_FALSE:
		case PL_JSON_NULL:
		case PL_JSON_WORD:
			tensor = false;
			break;
		default:
			return false;
		}
		n++;
	}
	if (tensor && device && n == 6 && v[3] >= 0 && v[4] > 0 && v[4] <= 64 &&
	    v[3] <= INT64_MAX >> 8) {
		t->n++;
		t->elements = pl_add_sat(t->elements, v[3]);
		t->bytes = pl_add_sat(t->bytes, v[3] * v[4]);
	}
	return true;
}

/* "inputs" or "outputs": an array, or an object with an array "values". */
static bool io_member(struct pl_json *j, struct raw_node *r, struct tensors *t)
{
	enum pl_json_type k = pl_json_next(j);
	const char *p;
	size_t n;

	if (k == PL_JSON_ARRAY)
		return values(j, r, t, 0);
	if (k != PL_JSON_OBJECT)
		return k == PL_JSON_STRING || k == PL_JSON_NULL;
	while ((k = pl_json_next(j)) == PL_JSON_KEY) {
		if (j->len == 6 && !memcmp(j->text, "values", 6)) {
			k = pl_json_next(j);
			if (k == PL_JSON_ARRAY ? !values(j, r, t, 0) : k != PL_JSON_STRING)
				return false;
		} else if (pl_json_skip(j, &p, &n) < 0) {
			return false;
		}
	}
	return k == PL_JSON_OBJECT_END;
}

static bool is(const char *s, size_t n, const char *what)
{
	return strlen(what) == n && !memcmp(s, what, n);
}

static void attribute(struct raw_node *r, const char *name, size_t n_name, const char *v, size_t n)
{
	bool quoted = n >= 2 && *v == '"';
	const char *s = v + quoted;
	size_t len = n - 2 * quoted;
	int64_t x;

	if (is(name, n_name, "dtype") && quoted) {
		r->dtype = s;
		r->n_dtype = len;
	} else if (is(name, n_name, "pg_name") && quoted) {
		r->group = s;
		r->n_group = len;
	} else if (is(name, n_name, "collective_name") && quoted) {
		comm_word(r, s, len);
	} else if (pl_json_i64(s, len, &x)) {
		if (is(name, n_name, "rf_id"))
			r->rf = x;
		else if (is(name, n_name, "in_msg_nelems"))
			r->in_n = x;
		else if (is(name, n_name, "out_msg_nelems"))
			r->out_n = x;
		else if (is(name, n_name, "pg_size") || is(name, n_name, "group_size"))
			r->pg_size = x;
	}
}

/* [{"name": "rf_id", "type": "uint64", "value": 0}, ...] */
static bool attributes(struct pl_json *j, struct raw_node *r)
{
	enum pl_json_type k = pl_json_next(j);

	if (k != PL_JSON_ARRAY)
		return k == PL_JSON_NULL;
	while ((k = pl_json_next(j)) == PL_JSON_OBJECT) {
		const char *name = NULL, *value = NULL, *p;
		size_t n_name = 0, n_value = 0, n;

		while ((k = pl_json_next(j)) == PL_JSON_KEY) {
			bool is_name = is(j->text, j->len, "name"),
			     is_value = is(j->text, j->len, "value");

			if (pl_json_skip(j, &p, &n) < 0)
				return false;
			if (is_name && n >= 2 && *p == '"') {
				name = p + 1;
				n_name = n - 2;
			} else if (is_value) {
				value = p;
				n_value = n;
			}
		}
		if (k != PL_JSON_OBJECT_END)
			return false;
		if (name && value)
			attribute(r, name, n_name, value, n_value);
	}
	return k == PL_JSON_ARRAY_END;
}

static bool parse(const char *s, size_t n, struct raw_node *r)
{
	enum pl_json_type k;
	struct pl_json j;
	const char *p;
	size_t len;

	memset(r, 0, sizeof(*r));
	r->rf = r->size = r->in_n = r->out_n = r->pg_size = -1;
	pl_json_init(&j, s, n);
	if (pl_json_next(&j) != PL_JSON_OBJECT)
		return false;
	while ((k = pl_json_next(&j)) == PL_JSON_KEY) {
		const char *key = j.text;
		size_t n_key = j.len;

		if (is(key, n_key, "inputs")) {
			if (!io_member(&j, r, &r->in))
				return false;
		} else if (is(key, n_key, "outputs")) {
			if (!io_member(&j, r, &r->out))
				return false;
		} else if (is(key, n_key, "attrs")) {
			if (!attributes(&j, r))
				return false;
		} else {
			if (pl_json_skip(&j, &p, &len) < 0)
				return false;
			if (is(key, n_key, "name") && len >= 2 && *p == '"') {
				r->name = p + 1;
				r->n_name = len - 2;
			} else if (is(key, n_key, "rf_id") && !pl_json_i64(p, len, &r->rf)) {
				return false;
			}
		}
	}
	return k == PL_JSON_OBJECT_END;
}

/* ---- files --------------------------------------------------------------------------------- */

struct reader {
	struct pl_et *et;
	struct pl_et_file *file;
	struct pl_report *report;
	struct pl_src src;
};

static int add_node(struct reader *r, const struct raw_node *raw, uint8_t nclass,
		    struct pl_err *err)
{
	struct pl_et_file *f = r->file;
	struct pl_et_node *n;

	PL_CHECK(pl_grow(&f->node, &f->cap, f->n + 1, sizeof(*f->node), err));
	n = &f->node[f->n];
	memset(n, 0, sizeof(*n));
	n->rf = raw->rf;
	n->rpc = nclass == PL_N_RPC;
	n->wait = raw->wait;
	n->coll = raw->coll;
	if (!n->coll && nclass != PL_N_RPC)
		n->coll = pl_trace_coll_from_name(raw->name, raw->n_name);
	n->bytes = n->elements = n->elements_out = -1;
	n->group_size = raw->pg_size >= 0 ? raw->pg_size : n->rpc ? raw->size : -1;
	if (raw->in.n || raw->out.n) {
		/* gloo records the size of one part, not of all that is gathered */
		if (raw->out.n || !n->coll || strcmp(n->coll, "allgather") != 0)
			n->bytes = pl_max_i64(raw->in.bytes, raw->out.bytes);
		n->elements = raw->in.n ? raw->in.elements : -1;
		n->elements_out = raw->out.n ? raw->out.elements : -1;
	} else if (raw->in_n >= 0 || raw->out_n >= 0) {
		int64_t size = pl_trace_dtype(raw->dtype ? raw->dtype : "", raw->n_dtype, NULL);

		n->elements = raw->in_n;
		n->elements_out = raw->out_n;
		if (size && pl_max_i64(raw->in_n, raw->out_n) <= INT64_MAX / 16)
			n->bytes = pl_max_i64(raw->in_n, raw->out_n) * size;
	}
	if (raw->group && raw->n_group) {
		n->group = pl_arena_dup(&r->et->mem, raw->group, raw->n_group);
		if (!n->group)
			return pl_fail(err, PL_ENOMEM, "out of memory (group)");
	}
	f->n++;
	return 0;
}

/*
 * Can the node in [p, q) be a communication? If it has a name, the name decides: files of PyTorch
 * write the name before all nested members. Else the whole text is searched.
 */
static bool may_communicate(const char *p, const char *q)
{
	const char *key = memmem(p, pl_min_size((size_t)(q - p), 256), "\"name\"", 6), *v;
	size_t n = key ? (size_t)(key - p) - 1 : 0;

	if (key && !memchr(p + 1, '[', n) && !memchr(p + 1, '{', n)) {
		v = pl_scan_space(key + 6, q);
		v = *v == ':' ? pl_scan_space(v + 1, q) : v;
		if (*v == '"' && !strchr("rgmu\\", v[1]))
			return false;
	}
	n = (size_t)(q - p);
	return pl_import_has(p, n, "record_param_comms") || pl_import_has(p, n, "gloo:") ||
	       pl_import_has(p, n, "mpi:") || pl_import_has(p, n, "ucc:");
}

/* The object in [p, q). */
static int one_node(struct reader *r, const char *p, const char *q, struct pl_err *err)
{
	size_t n = (size_t)(q - p);
	struct raw_node raw;
	uint8_t nclass;

	if (!may_communicate(p, q))
		return 0;
	if (!parse(p, n, &raw))
		return pl_import_report(r->report, PL_BAD, pl_import_src_at(&r->src, p),
					"a node that cannot be read", err);
	if (!raw.name)
		return 0;
	nclass = pl_import_name_class(raw.name, raw.n_name);
	if (nclass != PL_N_RPC && nclass != PL_N_HOSTCOMM)
		return 0;
	return add_node(r, &raw, nclass, err);
}

/* s->p is after the '[' of the nodes. */
static int nodes(struct reader *r, struct pl_err *err)
{
	struct pl_src *s = &r->src;
	int rc;

	for (;;) {
		const char *q = NULL;

		s->p = pl_scan_space(s->p, s->end);
		if (s->p < s->end && *s->p == ',') {
			s->p++;
			continue;
		}
		if (s->p < s->end && *s->p != '{') {
			if (*s->p == ']') {
				s->p++;
				return 0;
			}
			PL_CHECK(pl_import_report(r->report, PL_TRUNCATED,
						  pl_import_src_at(s, s->p), "a node expected",
						  err));
			s->p = s->end;
			return 0;
		}
		if (s->p < s->end)
			q = pl_scan_nested(s->p, s->end);
		if (q && q <= s->end) {
			PL_CHECK(one_node(r, s->p, q, err));
			s->p = q;
		} else if (s->eof || (size_t)(s->end - s->p) > PL_SRC_MAX) {
			rc = pl_import_report(r->report, PL_TRUNCATED, pl_import_src_at(s, s->p),
					      "the list of nodes is cut off", err);
			s->p = s->end;
			return rc;
		} else {
			if (s->p > s->end)
				s->p = s->end;
			PL_CHECK(pl_import_src_fill(s, 2 * (size_t)(s->end - s->p), err));
		}
	}
	return 0;
}

static int set_pid(struct reader *r, const char *v, size_t n, struct pl_err *err)
{
	char *pid;

	if (n >= 2 && *v == '"') {
		v++;
		n -= 2;
	}
	pid = pl_malloc(n + 1);
	if (!pid)
		return pl_fail(err, PL_ENOMEM, "out of memory (execution trace)");
	memcpy(pid, v, n);
	pid[n] = '\0';
	pl_free(r->file->pid);
	r->file->pid = pid;
	return 0;
}

/* One member of the top level. *done at the closing bracket or the end. */
static int member(struct reader *r, bool *done, struct pl_err *err)
{
	struct pl_src *s = &r->src;
	const char *key, *q, *v, *e;
	unsigned flags;

	s->p = pl_scan_space(s->p, s->end);
	if (s->p < s->end && *s->p == ',')
		s->p = pl_scan_space(s->p + 1, s->end);
	if (s->p < s->end && *s->p != '"') {
		*done = true;
		if (*s->p != '}')
			return pl_import_report(r->report, PL_TRUNCATED, pl_import_src_at(s, s->p),
						"a key in quotes expected", err);
		return 0;
	}
	if (s->p >= s->end) {
		s->p = s->end;
		goto more;
	}
	key = s->p + 1;
	q = pl_scan_string(key, s->end, &flags);
	v = q < s->end ? pl_scan_space(q + 1, s->end) : s->end;
	v = v < s->end && *v == ':' ? pl_scan_space(v + 1, s->end) : s->end;
	if (v >= s->end)
		goto more;
	if (*v == '[' && is(key, (size_t)(q - key), "nodes")) {
		s->p = v + 1;
		return nodes(r, err);
	}
	e = pl_import_value_end(v, s->end);
	if (e >= s->end)
		goto more;
	if (is(key, (size_t)(q - key), "pid"))
		PL_CHECK(set_pid(r, v, (size_t)(e - v), err));
	s->p = e;
	return 0;
more:
	if (!s->eof && (size_t)(s->end - s->p) < PL_SRC_MAX)
		return pl_import_src_fill(s, 2 * (size_t)(s->end - s->p), err);
	*done = true;
	return pl_import_report(r->report, PL_TRUNCATED, pl_import_src_at(s, s->p),
				"the end bracket is missing", err);
}

PL_COMPARATOR(by_rf, struct pl_et_node, rf);

static int load(struct reader *r, struct pl_err *err)
{
	struct pl_src *s = &r->src;
	bool done = false;

	PL_CHECK(pl_import_src_begin(s, err));
	if (s->p >= s->end || *s->p != '{')
		return pl_fail(err, PL_EDATA, "%s: byte %lld: not an execution trace",
			       r->report->file, (long long)pl_import_src_at(s, s->p));
	s->p++;
	while (!done)
		PL_CHECK(member(r, &done, err));
	pl_sort(r->file->node, r->file->n, sizeof(*r->file->node), by_rf);
	r->report->st->events += r->file->n;
	if (!r->file->pid)
		PL_CHECK(set_pid(r, "", 0, err));
	return 0;
}

#define PEEK ((size_t)64 << 10)

/* The text of *in, if that is a trace of Chakra: *in becomes an input of *json. */
static int convert(struct pl_in **in, struct pl_buf *json, struct pl_err *err)
{
	struct pl_in *text;
	const uint8_t *p;
	int64_t n = pl_in_peek(*in, PEEK, &p, err);

	if (n < 0 || !pl_trace_is_chakra(p, (size_t)n))
		return n < 0 ? (int)n : 0;
	PL_CHECK(pl_import_et_of_chakra(*in, json, err));
	text = pl_in_open_mem(pl_in_name(*in), json->p, json->n, err);
	if (!text)
		return err->code;
	pl_in_close(*in);
	*in = text;
	return 0;
}

int pl_import_et_load(struct pl_et *et, struct pl_in *raw, const struct pl_import_opts *o,
		      struct pl_import_stats *st, struct pl_err *err)
{
	struct pl_in *in = pl_import_open(raw, o->pool, err);
	struct pl_report report = { .o = o, .st = st };
	struct reader r = { .et = et, .report = &report };
	struct pl_buf json = { 0 };
	const char *host;
	size_t n;
	int rc;

	memset(st, 0, sizeof(*st));
	if (!in)
		return err->code;
	PL_TRY(convert(&in, &json, err));
	report.file = pl_in_name(in);
	pl_import_src_init(&r.src, in, &report);
	PL_TRY(pl_grow(&et->file, &et->cap, et->n + 1, sizeof(*et->file), err));
	r.file = &et->file[et->n++];
	memset(r.file, 0, sizeof(*r.file));
	r.file->rank = pl_import_name_rank(report.file, &host, &n);
	rc = load(&r, err);
	if (rc < 0) { /* keep no half of a file */
		pl_free(r.file->pid);
		pl_free(r.file->node);
		et->n--;
	}
out:
	pl_import_src_fini(&r.src);
	pl_in_close(in);
	pl_buf_fini(&json);
	return rc;
}
