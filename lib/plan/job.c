/*
 * Jobs: paceline-job(5), read, set by options, checked.
 *
 * A table has the statements of one value, with their bounds; the others have a function each. A
 * file says each statement once, options say it again. Linear.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"
#include "plan/job.h"

#define VERSION	  1
#define COUNT_MAX ((int64_t)1 << 40)
#define RANKS_MAX 65536
#define MS_MAX	  3.6e6

/* ---- statements of one value --------------------------------------------------------------------
 */

#define AT(m)  offsetof(struct pl_job, m)
#define CHOICE PL_JOB_CHOICE
#define STRING PL_JOB_STRING
#define INT    PL_JOB_INT
#define REAL   PL_JOB_REAL
#define TIME   PL_JOB_TIME

const struct pl_job_field pl_job_fields[] = {
	{ "name", STRING, AT(name), 0, 0, NULL },
	{ "model", STRING, AT(model), 0, 0, NULL },
	{ "data", STRING, AT(data), 0, 0, NULL },
	{ "split", REAL, AT(split), 0, 1, NULL },
	{ "precision", CHOICE, AT(precision), 0, 0, "fp32|tf32|bf16" },
	{ "device", STRING, AT(device), 0, 0, NULL },
	{ "batch", INT, AT(batch), 1, 1 << 24, NULL },
	{ "accumulate", INT, AT(accumulate), 1, 65536, NULL },
	{ "steps", INT, AT(steps), 1, COUNT_MAX, NULL },
	{ "epochs", INT, AT(epochs), 1, COUNT_MAX, NULL },
	{ "target-loss", REAL, AT(target_loss), 0, 1e30, NULL },
	{ "warmup", INT, AT(warmup), 0, COUNT_MAX, NULL },
	{ "seed", INT, AT(seed), 0, 0x1p63, NULL },
	{ "ranks", INT, AT(ranks), 1, RANKS_MAX, NULL },
	{ "hosts", INT, AT(hosts), 1, RANKS_MAX, NULL },
	{ "threads", INT, AT(threads), 1, 1024, NULL },
	{ "policy", CHOICE, AT(policy), 0, 0, "bsp" },
	{ "transport", CHOICE, AT(transport), 0, 0, "auto|shm|tcp|mpi|nccl" },
	{ "algorithm", CHOICE, AT(algorithm), 0, 0,
	  "auto|ring|tree|halving-doubling|hierarchical|direct" },
	{ "meet", STRING, AT(meet), 0, 0, NULL },
	{ "timeout", TIME, AT(timeout_ns), 1e6, 3.6e12, NULL },
	{ "bucket-mb", REAL, AT(bucket_mb), 0, 1e6, NULL },
	{ "checkpoint", STRING, AT(checkpoint), 0, 0, NULL },
	{ "checkpoint-every", INT, AT(checkpoint_every), 1, COUNT_MAX, NULL },
	{ "resume", STRING, AT(resume), 0, 0, NULL },
	{ "eval-every", INT, AT(eval_every), 1, COUNT_MAX, NULL },
};
const size_t pl_job_n_fields = PL_LEN(pl_job_fields);

void pl_job_init(struct pl_job *j)
{
	memset(j, 0, sizeof(*j));
	j->transport = "auto";
	j->algorithm = "auto";
	j->policy = "bsp";
	j->precision = "fp32";
	j->device = "cpu";
	j->optimizer = "sgd";
	j->schedule = "constant";
	j->split = 1;
	j->bucket_mb = 25;
	j->batch = 32;
	j->accumulate = j->ranks = j->hosts = j->seed = j->threads = 1;
	j->timeout_ns = (pl_ns)3000000000;
}

void pl_job_fini(struct pl_job *j)
{
	pl_arena_fini(&j->arena);
	pl_free(j->opt);
	pl_free(j->link);
	pl_free(j->pace);
	memset(j, 0, sizeof(*j));
}

static void *member(struct pl_job *j, const struct pl_job_field *f)
{
	return (char *)j + f->offset;
}

/* Is s one of "a|b|c"? */
static bool chosen(const char *choices, const char *s)
{
	size_t n = strlen(s);

	for (const char *c = choices; *c;) {
		size_t k = strcspn(c, "|");

		if (k == n && !memcmp(c, s, n))
			return true;
		c += k + (c[k] == '|');
	}
	return false;
}

static int set_string(struct pl_job *j, struct pl_text *t, const struct pl_job_field *f,
		      struct pl_err *err)
{
	const char **out = member(j, f), *s;
	int number, rc = pl_text_name(t, &s, f->key, err);
	bool cuda;

	if (rc < 0)
		return rc;
	if (!*s)
		return pl_text_fail(t, err, "%s is empty", f->key);
	if (f->choices && !chosen(f->choices, s))
		return pl_text_fail(t, err, "%s is one of %s, not \"%.100s\"", f->key, f->choices,
				    s);
	if (out == &j->device && !pl_job_device(s, &cuda, &number))
		return pl_text_fail(t, err, "%s is one of cpu|cuda|cuda:N, not \"%.100s\"", f->key,
				    s);
	return pl_plan_dup_str(&j->arena, s, strlen(s), out, err);
}

static int set_real(struct pl_job *j, struct pl_text *t, const struct pl_job_field *f,
		    struct pl_err *err)
{
	double v, *out = member(j, f);
	int rc = pl_text_real(t, &v, f->key, err);

	if (rc < 0)
		return rc;
	if (!(v > f->min && v <= f->max))
		return pl_text_fail(t, err, "%s is above %g and at most %g, not %g", f->key, f->min,
				    f->max, v);
	*out = v;
	return 0;
}

static int set_int(struct pl_job *j, struct pl_text *t, const struct pl_job_field *f,
		   struct pl_err *err)
{
	int64_t v, *out = member(j, f);
	int rc = pl_text_int(t, &v, (int64_t)f->min, f->key, err);

	if (rc < 0)
		return rc;
	/* as doubles: the largest of all is 2^63, which no v is */
	if ((double)v > f->max)
		return pl_text_fail(t, err, "%s is at most %.0f, not %lld", f->key, f->max,
				    (long long)v);
	*out = v;
	return 0;
}

static int set_time(struct pl_job *j, struct pl_text *t, const struct pl_job_field *f,
		    struct pl_err *err)
{
	struct pl_err why = { 0 };
	pl_ns v, *out = member(j, f);
	const char *s;
	int rc = pl_text_name(t, &s, f->key, err);

	if (rc < 0)
		return rc;
	if (pl_job_time(s, &v, &why) < 0)
		return pl_text_fail(t, err, "%s: %s", f->key, why.msg);
	if ((double)v < f->min || (double)v > f->max)
		return pl_text_fail(t, err, "%s is 1ms to 1h, not %.100s", f->key, s);
	*out = v;
	return 0;
}

static int set_field(struct pl_job *j, struct pl_text *t, const struct pl_job_field *f,
		     struct pl_err *err)
{
	switch (f->type) {
	case INT:
		return set_int(j, t, f, err);
	case REAL:
		return set_real(j, t, f, err);
	case TIME:
		return set_time(j, t, f, err);
	default:
		return set_string(j, t, f, err);
	}
}

/* ---- optimisers and schedules -------------------------------------------------------------------
 */

static const char *const kinds[] = {
	"sgd", "adam", "adamw", "constant", "step", "cosine", "linear"
};
enum { SGD = 1, ADAM = 2, ADAMW = 4, CONSTANT = 8, STEP = 16, COSINE = 32, LINEAR = 64 };
#define ANY_ADAM   (ADAM | ADAMW)
#define ANY	   (SGD | ANY_ADAM)
#define OPTIMIZERS "sgd, adam and adamw"
#define SCHEDULES  "constant, step, cosine and linear"

/* Keys, the kinds that have them, their bounds (all open but a minimum of 0), and defaults; where
 * the default depends on the kind, pl_job_number() knows better. */
static const struct key {
	const char *name;
	unsigned kinds;
	double min, max, value;
	bool zero, whole; /* may be the minimum; is a whole number */
} keys[] = {
	{ "lr", ANY, 0, 1e6, 0.001, false, false },
	{ "momentum", SGD, 0, 1, 0, true, false },
	{ "nesterov", SGD, 0, 1, 0, true, true },
	{ "b1", ANY_ADAM, 0, 1, 0.9, true, false },
	{ "b2", ANY_ADAM, 0, 1, 0.999, true, false },
	{ "eps", ANY_ADAM, 0, 1, 1e-8, false, false },
	{ "decay", ANY, 0, 1e6, 0, true, false },
	{ "clip", ANY, 0, 1e30, 0, true, false },
	{ "every", STEP, 0, 0x1p40, 0, false, true },
	{ "gamma", STEP, 0, 1, 0.1, false, false },
	{ "steps", COSINE | LINEAR, 0, 0x1p40, 0, false, true },
};

static int kind_of(const char *name, bool schedule)
{
	for (size_t i = schedule ? 3 : 0; i < (schedule ? PL_LEN(kinds) : 3); i++)
		if (!strcmp(kinds[i], name))
			return (int)i;
	return -1;
}

double pl_job_number(const struct pl_job *j, const char *key)
{
	for (size_t i = 0; i < j->n_opts; i++)
		if (!strcmp(j->opt[i].key, key))
			return j->opt[i].v;
	if (!strcmp(key, "decay") && !strcmp(j->optimizer, "adamw"))
		return 0.01;
	if (!strcmp(key, "lr") && !strcmp(j->optimizer, "sgd"))
		return 0.1;
	for (size_t i = 0; i < PL_LEN(keys); i++)
		if (!strcmp(keys[i].name, key))
			return keys[i].value;
	return NAN;
}

/* All keys of a kind, for messages. */
static const char *keys_of(unsigned kind, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < PL_LEN(keys); i++)
		if (keys[i].kinds & kind && n < size)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "",
					      keys[i].name);
	return n ? out : "none";
}

static int check_value(struct pl_text *t, const struct key *k, const char *s, double v,
		       struct pl_err *err)
{
	bool one = !strcmp(k->name, "nesterov"); /* the only one that may be its maximum */

	if (!isnan(v) && (v > k->min || (k->zero && v >= k->min)) &&
	    (v < k->max || (one && v <= k->max)) && (!k->whole || v == floor(v)))
		return 0;
	return pl_text_fail(t, err, "%s is a%s number %s %g and %s %g, not \"%.100s\"", k->name,
			    k->whole ? " whole" : "", k->zero ? "from" : "above", k->min,
			    one ? "at most" : "below", k->max, s);
}

static int read_opt(struct pl_job *j, struct pl_text *t, unsigned kind, struct pl_job_opt *o,
		    struct pl_err *err)
{
	const char *s = t->word[t->i++].s, *equal = strchr(s, '=');
	size_t n = equal ? (size_t)(equal - s) : strlen(s), i = 0;
	char all[128];
	int rc;

	while (i < PL_LEN(keys) && (!(keys[i].kinds & kind) || strlen(keys[i].name) != n ||
				    memcmp(keys[i].name, s, n) != 0))
		i++;
	if (i == PL_LEN(keys))
		return pl_text_fail(t, err, "%s has no \"%.*s\"; it has %s",
				    kinds[__builtin_ctz(kind)], (int)pl_min_size(n, 100), s,
				    keys_of(kind, all, sizeof(all)));
	if (!equal && strcmp(s, "nesterov") != 0)
		return pl_text_fail(t, err, "%s needs a value: %s=NUMBER", s, s);
	o->key = keys[i].name;
	o->v = 1;
	if (equal && !pl_decimal(equal + 1, &o->v))
		o->v = NAN;
	PL_TRY(check_value(t, &keys[i], equal ? equal + 1 : "1", o->v, err));
	rc = pl_plan_dup_str(&j->arena, equal ? equal + 1 : "1", equal ? strlen(equal + 1) : 1,
			     &o->text, err);
out:
	return rc;
}

/* "sgd lr=0.1 momentum=0.9": its options take the place of those that were there. */
static int set_kind(struct pl_job *j, struct pl_text *t, bool schedule, struct pl_err *err)
{
	const char *name;
	struct pl_job_opt fresh[PL_LEN(keys)];
	size_t n = 0, kept = 0;
	int kind, rc;

	PL_TRY(pl_text_name(t, &name, schedule ? "the schedule" : "the optimizer", err));
	kind = kind_of(name, schedule);
	if (kind < 0)
		return pl_text_fail(t, err, "there is no %s \"%.100s\"; there are %s",
				    schedule ? "schedule" : "optimizer", name,
				    schedule ? SCHEDULES : OPTIMIZERS);
	for (; t->i < t->n; n++) {
		struct pl_job_opt o = { .schedule = schedule };

		PL_TRY(read_opt(j, t, 1u << kind, &o, err));
		for (size_t i = 0; i < n; i++)
			if (fresh[i].key == o.key)
				return pl_text_fail(t, err, "%s is there twice; leave one", o.key);
		fresh[n] = o;
	}
	PL_TRY(pl_grow(&j->opt, &j->cap_opts, j->n_opts + n, sizeof(*j->opt), err));
	for (size_t i = 0; i < j->n_opts; i++)
		if (j->opt[i].schedule != schedule)
			j->opt[kept++] = j->opt[i];
	if (n)
		memcpy(j->opt + kept, fresh, n * sizeof(*fresh));
	j->n_opts = kept + n;
	*(schedule ? &j->schedule : &j->optimizer) = kinds[kind];
out:
	return rc;
}

/* ---- links and paces ----------------------------------------------------------------------------
 */

/* "rank=3" or "3" of a rank, "any" or "all": -1. */
static int rank_of(struct pl_text *t, const char *s, int *rank, struct pl_err *err)
{
	double v;

	*rank = -1;
	if (!strcmp(s, "any") || !strcmp(s, "all") || !strcmp(s, "*"))
		return 0;
	if (!pl_decimal(s, &v) || v < 0 || v >= RANKS_MAX || v != floor(v))
		return pl_text_fail(t, err, "\"%.100s\" is no rank; a rank is 0 to %d, or any", s,
				    RANKS_MAX - 1);
	*rank = (int)v;
	return 0;
}

/* Words that may be joined by commas, each KEY=VALUE; 1, or 0 at the end. */
static int next_pair(struct pl_text *t, char **at, const char **key, const char **value,
		     const char *what, struct pl_err *err)
{
	char *end, *equal;

	while (!*at || !**at) {
		if (t->i >= t->n)
			return 0;
		*at = t->word[t->i++].s;
	}
	*key = *at;
	end = *at + strcspn(*at, ",");
	*at = *end ? end + 1 : end;
	*end = '\0';
	equal = strchr(*key, '=');
	if (!equal)
		return pl_text_fail(t, err, "\"%.100s\" is no KEY=VALUE; write %s", *key, what);
	*equal = '\0';
	*value = equal + 1;
	return 1;
}

#define LINK "link rate=1Gbit latency=200us from=0 to=1"
#define PACE "pace RANK ms=5 or pace RANK factor=1.5"

static int link_value(struct pl_text *t, struct pl_job_link *l, const char *key, const char *value,
		      struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc = 0;

	if (!strcmp(key, "rate"))
		rc = pl_job_rate(value, &l->bytes_per_ns, &why);
	else if (!strcmp(key, "latency"))
		rc = pl_job_time(value, &l->latency_ns, &why);
	else if (!strcmp(key, "from"))
		return rank_of(t, value, &l->from, err);
	else if (!strcmp(key, "to"))
		return rank_of(t, value, &l->to, err);
	else if (!strcmp(key, "shared") && (!strcmp(value, "yes") || !strcmp(value, "no")))
		l->shared = value[0] == 'y';
	else if (!strcmp(key, "shared"))
		return pl_text_fail(t, err, "shared: yes or no, not \"%.100s\"", value);
	else
		return pl_text_fail(t, err, "a link has no \"%.100s\"; write %s", key, LINK);
	return rc < 0 ? pl_text_fail(t, err, "%s", why.msg) : 0;
}

static int set_link(struct pl_job *j, struct pl_text *t, struct pl_err *err)
{
	struct pl_job_link l = { .from = -1, .to = -1, .latency_ns = 0 };
	const char *key, *value;
	bool any = false;
	char *at = NULL;
	int rc;

	while ((rc = next_pair(t, &at, &key, &value, LINK, err)) > 0) {
		PL_TRY(link_value(t, &l, key, value, err));
		any = any || !strcmp(key, "rate") || !strcmp(key, "latency");
	}
	if (rc < 0)
		return rc;
	if (!any)
		return pl_text_fail(t, err, "a link needs a rate or a latency; write %s", LINK);
	if (l.from >= 0 && l.from == l.to)
		return pl_text_fail(t, err, "a link from rank %d to itself", l.from);
	PL_TRY(pl_grow(&j->link, &j->cap_links, j->n_links + 1, sizeof(*j->link), err));
	j->link[j->n_links++] = l;
out:
	return rc;
}

static int pace_value(struct pl_text *t, struct pl_job_pace *p, const char *key, const char *value,
		      struct pl_err *err)
{
	bool factor = !strcmp(key, "factor");
	double v;

	if (!factor && strcmp(key, "ms") != 0)
		return pl_text_fail(t, err, "a pace has no \"%.100s\"; write %s", key, PACE);
	if (!pl_decimal(value, &v) || v < (factor ? 1 : 0) || v > (factor ? 1000 : MS_MAX))
		return pl_text_fail(t, err, "\"%.100s\" is no %s", value,
				    factor ? "factor of 1 to 1000" : "time of 0 to 3600000 ms");
	*(factor ? &p->factor : &p->ms) = v;
	return 0;
}

/* "1 ms=5", or short "1:5"; "1 factor=2", or short "1:x2" */
static int set_pace(struct pl_job *j, struct pl_text *t, struct pl_err *err)
{
	struct pl_job_pace p = { .rank = -1, .factor = 1 };
	const char *word, *key, *value;
	char *colon, *at = NULL;
	bool any = false;
	int rc;

	PL_TRY(pl_text_name(t, &word, "the rank", err));
	colon = strchr(t->word[t->i - 1].s, ':');
	if (colon)
		*colon = '\0';
	PL_TRY(rank_of(t, word, &p.rank, err));
	if (colon)
		PL_TRY(colon[1] == 'x' && colon[2] ? pace_value(t, &p, "factor", colon + 2, err)
						   : pace_value(t, &p, "ms", colon + 1, err));
	for (any = colon; (rc = next_pair(t, &at, &key, &value, PACE, err)) > 0; any = true)
		PL_TRY(pace_value(t, &p, key, value, err));
	if (rc < 0)
		return rc;
	if (!any)
		return pl_text_fail(t, err, "the pace is missing; write %s", PACE);
	PL_TRY(pl_grow(&j->pace, &j->cap_paces, j->n_paces + 1, sizeof(*j->pace), err));
	j->pace[j->n_paces++] = p;
out:
	return rc;
}

/* ---- statements ---------------------------------------------------------------------------------
 */

/* Index of the statement, for `seen`; links and paces (which may be repeated) are the last two. */
enum { S_OPTIMIZER = PL_LEN(pl_job_fields), S_SCHEDULE, S_LINK, S_PACE, S_COUNT_ };
_Static_assert(S_COUNT_ <= 32, "a bit for each statement");

static int find(const char *key)
{
	static const char *const others[] = { "optimizer", "schedule", "link", "pace" };

	for (size_t i = 0; i < PL_LEN(pl_job_fields); i++)
		if (!strcmp(pl_job_fields[i].key, key))
			return (int)i;
	for (size_t i = 0; i < PL_LEN(others); i++)
		if (!strcmp(others[i], key))
			return (int)(S_OPTIMIZER + i);
	return -1;
}

static int statement(struct pl_job *j, struct pl_text *t, uint32_t *seen, struct pl_err *err)
{
	const char *key = t->word[0].s;
	int s = t->word[0].quoted ? -1 : find(key), rc;

	if (s < 0)
		return pl_text_fail(t, err,
				    "there is no statement \"%.100s\"; paceline-job(5) lists them",
				    key);
	if (s < S_LINK && *seen & 1u << s)
		return pl_text_fail(t, err, "%s is there twice; leave one", key);
	*seen |= 1u << s;
	j->line = t->line;
	t->i = 1;
	rc = s == S_OPTIMIZER  ? set_kind(j, t, false, err)
	     : s == S_SCHEDULE ? set_kind(j, t, true, err)
	     : s == S_LINK     ? set_link(j, t, err)
	     : s == S_PACE     ? set_pace(j, t, err)
			       : set_field(j, t, &pl_job_fields[s], err);
	return rc < 0 ? rc : pl_text_end(t, err);
}

static int read_all(struct pl_job *j, struct pl_text *t, struct pl_in *in, const char *name,
		    struct pl_err *err)
{
	uint32_t seen = 0;
	bool first = true;
	int rc;

	PL_TRY(pl_text_read(t, in, name, err));
	while ((rc = pl_text_next(t, err)) > 0) {
		if (first && pl_text_key(t, "paceline-job"))
			PL_TRY(pl_text_version(t, VERSION, err));
		else
			PL_TRY(statement(j, t, &seen, err));
		first = false;
	}
out:
	return rc;
}

int pl_job_read(struct pl_in *in, const char *name, struct pl_job *j, struct pl_err *err)
{
	struct pl_text t = { 0 };
	struct pl_err why = { 0 };
	int rc;

	pl_job_init(j);
	rc = read_all(j, &t, in, name, &why);
	pl_text_fini(&t);
	if (rc < 0) {
		pl_job_fini(j);
		if (err && !err->code)
			*err = why;
	}
	return rc < 0 ? rc : 0;
}

/* The text's first "=" in place of the blank behind the key: "batch=128". */
static int set_text(struct pl_buf *b, const char *s, struct pl_err *err)
{
	size_t n = strcspn(s, "= \t");
	int rc;

	PL_TRY(pl_buf_put(b, s, n, err));
	PL_TRY(pl_buf_put(b, " ", 1, err));
	if (s[n])
		PL_TRY(pl_buf_put(b, s + n + 1, strlen(s + n + 1), err));
out:
	return rc;
}

static int set_one(struct pl_job *j, struct pl_text *t, struct pl_err *err)
{
	uint32_t seen = 0;
	int rc = pl_text_next(t, err);

	if (rc > 0)
		return statement(j, t, &seen, err);
	return rc < 0 ? rc : pl_fail(err, PL_EUSAGE, "there is nothing in it");
}

int pl_job_set(struct pl_job *j, const char *statement, struct pl_err *err)
{
	struct pl_text t = { 0 };
	struct pl_buf b = { 0 };
	struct pl_job before = *j;
	struct pl_err why = { 0 };
	struct pl_in *in;
	char place[64];
	int rc;

	if (strchr(statement, '\n'))
		return pl_fail(err, PL_EUSAGE, "one statement, on one line");
	PL_TRY(set_text(&b, statement, err));
	in = pl_in_open_mem("set", b.p, b.n, err);
	if (!in) {
		rc = PL_ENOMEM;
		goto out;
	}
	rc = pl_text_read(&t, in, "set", &why);
	pl_in_close(in);
	if (rc >= 0)
		rc = set_one(j, &t, &why);
	if (rc < 0) {
		/* one line, whose number says nothing */
		size_t n = (size_t)snprintf(place, sizeof(place), "set: line %u: ", t.line);
		const char *msg = strncmp(why.msg, place, n) ? why.msg : why.msg + n;

		rc = pl_fail(err, rc == PL_EDATA ? PL_EUSAGE : rc, "%s", msg);
		/* arrays may have moved, what they hold has not changed; strings stay in the arena
		 */
		before.arena = j->arena;
		before.opt = j->opt;
		before.cap_opts = j->cap_opts;
		before.link = j->link;
		before.cap_links = j->cap_links;
		before.pace = j->pace;
		before.cap_paces = j->cap_paces;
		*j = before;
	}
out:
	pl_text_fini(&t);
	pl_buf_fini(&b);
	return rc < 0 ? rc : 0;
}
