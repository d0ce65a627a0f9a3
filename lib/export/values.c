/* Names and values in the forms of other tools: keys of roles, JSON of a value, process numbers. */
#include "export/internal.h"

const char *pl_export_role_key(unsigned role)
{
	switch (role) {
	case PL_R_MB:
		return "microbatch";
	case PL_R_COLL:
		return "Collective name";
	default:
		return pl_trace_role_key(role);
	}
}

void pl_export_string_json(struct pl_writer *t, const struct pl_segment *s, pl_id id)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, id, &n);

	pl_write_json_str(t, p, n);
}

void pl_export_key_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			const char *fallback)
{
	if (c->key == PL_NONE)
		pl_write_json_text(t, fallback);
	else
		pl_export_string_json(t, s, c->key);
	pl_write_char(t, ':');
}

void pl_export_member_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_meta *m)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, m->value, &n);

	pl_export_string_json(t, s, m->key);
	pl_write_char(t, ':');
	pl_write_json(t, p, n);
}

void pl_export_members_json(struct pl_writer *t, const struct pl_segment *s)
{
	pl_write_char(t, '{');
	for (uint32_t i = 0; i < s->n_meta; i++) {
		if (i)
			pl_write_char(t, ',');
		pl_export_member_json(t, s, &s->meta[i]);
	}
	pl_write_char(t, '}');
}

void pl_export_value_json(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
			  uint32_t k)
{
	size_t n;
	const char *p;

	switch (c->type) {
	case PL_V_INT:
		pl_write_int(t, c->val[k]);
		break;
	case PL_V_DEC:
		pl_write_decimal(t, c->val[k], c->scale ? c->scale[k] : 0);
		break;
	case PL_V_STR:
		pl_export_string_json(t, s, (pl_id)c->val[k]);
		break;
	case PL_V_JSON:
		p = pl_trace_segment_str(s, (pl_id)c->val[k], &n);
		pl_write_json(t, p, n);
		break;
	case PL_V_BOOL:
		pl_write_text(t, c->val[k] ? "true" : "false");
		break;
	default:
		pl_write_text(t, "null");
	}
}

/* ---- process numbers ------------------------------------------------------------------------- */

#define FIRST_FREE 5000000 /* above the largest process id of Linux, 2^22 */

bool pl_export_number(const char *s, size_t n, int64_t *v)
{
	return n && pl_json_i64(s, n, v) && *v >= 0 && *v <= INT32_MAX;
}

/* The next number that no process has, neither as its own nor from here. */
static int free_number(struct pl_export_pids *p, int64_t *num, struct pl_err *err)
{
	size_t taken;
	pl_id id;

	do {
		char text[24];
		int n;

		p->next = p->next < FIRST_FREE ? FIRST_FREE : p->next + 1;
		n = snprintf(text, sizeof(text), "%lld", (long long)p->next);
		taken = p->used.n;
		PL_CHECK(pl_intern_add(&p->used, text, (size_t)n, &id, err));
	} while (id < taken);
	*num = p->next;
	return 0;
}

int pl_export_pid(struct pl_export_pids *p, uint32_t segment, const char *pid, size_t len,
		  int64_t *num, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	pl_id key, used;
	size_t before = p->key.n, taken = p->used.n;
	int rc;

	/* allocate before adding the key, because a known key must have a number */
	PL_TRY(pl_grow(&p->num, &p->cap, before + 1, sizeof(*p->num), err));
	PL_TRY(pl_buf_put(&b, &segment, sizeof(segment), err));
	PL_TRY(pl_buf_put(&b, pid, len, err));
	PL_TRY(pl_intern_add(&p->key, (const char *)b.p, b.n, &key, err));
	if (key < before) {
		*num = p->num[key];
		goto out;
	}
	p->num[key] = INT64_MIN;
	PL_TRY(pl_intern_add(&p->used, pid, len, &used, err));
	if (used < taken)
		PL_TRY(free_number(p, &p->num[key], err));
	*num = p->num[key];
out:
	pl_buf_fini(&b);
	return rc;
}

void pl_export_pids_fini(struct pl_export_pids *p)
{
	pl_intern_fini(&p->used);
	pl_intern_fini(&p->key);
	pl_free(p->num);
}

/* A process of a trace that was exported before has its rank and labels in its name. */
static bool names_rank(const char *name, size_t n, int32_t rank)
{
	char text[24];
	size_t k = (size_t)snprintf(text, sizeof(text), "rank %d", rank);

	return n >= k && !memcmp(name, text, k) && (n == k || name[k] == ' ');
}

static bool names_labels(const char *name, size_t n, const char *labels, size_t m)
{
	bool open = n > m + 1 && name[n - 1] == ')';

	name += n > m ? n - m - open : 0; /* where the labels would begin */
	return n > m && !memcmp(name, labels, m) && name[-1] == (open ? '(' : ' ');
}

void pl_export_process_title(struct pl_writer *t, const struct pl_segment *s,
			     const struct pl_track *k, bool rank)
{
	const char *name, *labels;
	size_t n, m;

	name = pl_trace_segment_str(s, k->process, &n);
	labels = pl_trace_segment_str(s, k->labels, &m);
	rank = rank && k->rank >= 0;
	if (rank && !names_rank(name, n, k->rank)) {
		pl_write_text(t, "rank ");
		pl_write_int(t, k->rank);
		if (n || m)
			pl_write_char(t, ' ');
	}
	pl_write(t, name, n);
	if (m && !names_labels(name, n, labels, m)) {
		pl_write_text(t, n ? " (" : "");
		pl_write(t, labels, m);
		pl_write_text(t, n ? ")" : "");
	}
	if (!n && !m && !rank) {
		pl_write_text(t, "process ");
		name = pl_trace_segment_str(s, k->pid, &n);
		pl_write(t, name, n);
	}
}
