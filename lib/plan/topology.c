/*
 * Topologies: paceline-topology(5), read, made from a short form or from nothing.
 *
 * Hosts are a table by first rank, so that the host of a rank is found by bisection.
 */
#include "core/words.h"
#include "plan/internal.h"

#define MAX_HOSTS 1048576
#define MAX_RANKS 16777216

/* ---- schema ---------------------------------------------------------------------------------- */

struct hosts { /* a statement */
	const char *name;
	int64_t n, ranks;
};

#define NEED	 (PL_LANG_NEED | PL_LANG_BOUND)
#define KEY	 (PL_LANG_KEY | PL_LANG_BOUND)
#define HOSTS(m) .offset = offsetof(struct hosts, m)
#define TLINK(m) .offset = offsetof(struct pl_tlink, m)
#define RANKS                                                                                      \
	PL_LANG_FIELD("ranks", INT, KEY | PL_LANG_NEED, "ranks of each", .word = "ranks",          \
		      .min = 1, .max = MAX_RANKS, HOSTS(ranks))

static const struct pl_lang_row rows[] = {
	{ PL_LANG_ROW("host", TIMING, "a host",
		      PL_LANG_FIELD("name", NAME, NEED, "what it is called", HOSTS(name)), RANKS) },
	{ PL_LANG_ROW(
		"hosts", TIMING, "several hosts with equally many ranks each",
		PL_LANG_FIELD("hosts", INT, NEED, "how many", .min = 1, .max = MAX_HOSTS, HOSTS(n)),
		RANKS,
		PL_LANG_FIELD("name", NAME, KEY, "what they are called; %d stands for their number",
			      .word = "name", .value = "node%d", HOSTS(name))) },
	{ PL_LANG_ROW("link", TIMING, "what a message takes inside a host or between hosts",
		      PL_LANG_FIELD("name", NAME, NEED, "what it is called", TLINK(name)),
		      PL_LANG_FIELD("scope", CHOICE, PL_LANG_KEY | PL_LANG_NEED,
				    "inside a host, or between hosts", .choices = "host|network",
				    .word = "scope"),
		      PL_LANG_FIELD("bandwidth", RATE, KEY | PL_LANG_NEED, "in one direction",
				    .word = "bandwidth", TLINK(bytes_per_ns)),
		      PL_LANG_FIELD("latency", TIME, KEY | PL_LANG_NEED, "of each message",
				    .word = "latency", .max = 3.6e12, TLINK(latency_ns)),
		      PL_LANG_FIELD("shared", FLAG, KEY,
				    "one for all ranks of a host; else each rank has its own",
				    TLINK(shared))) },
};
const struct pl_lang_schema pl_topology_schema = {
	.name = "topology", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

const char *pl_plan_algorithm_name(unsigned algo)
{
	static const char names[] = PL_WORDS_PLAN_ALGORITHM("\0") "\0";
	const char *s = pl_words_name(names, algo);

	return s ? s : "unknown";
}

int pl_plan_algorithm_find(const char *name)
{
	return pl_words_find(PL_WORDS_PLAN_ALGORITHM("|"), name);
}

void pl_topology_fini(struct pl_topology *t)
{
	pl_arena_fini(&t->arena);
	pl_free(t->host);
	pl_free(t->link);
	memset(t, 0, sizeof(*t));
}

const struct pl_tlink *pl_topology_link(const struct pl_topology *t, enum pl_scope scope)
{
	const struct pl_tlink *best = NULL;

	for (size_t i = 0; i < t->n_links; i++)
		if (t->link[i].scope == scope &&
		    (!best || t->link[i].bytes_per_ns > best->bytes_per_ns))
			best = &t->link[i];
	return best;
}

int pl_topology_check(const struct pl_topology *t, int64_t ranks, struct pl_err *err)
{
	static const char few[] =
		"--topology: %u ranks for a job of %lld; name hosts for all of them";

	return t->n_ranks >= ranks ? 0 : pl_fail(err, PL_EDATA, few, t->n_ranks, (long long)ranks);
}

uint32_t pl_topology_host(const struct pl_topology *t, uint32_t rank)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, t->n_hosts, t->host[i].first <= rank);
	return i ? (uint32_t)i - 1 : 0;
}

/* ---- building -------------------------------------------------------------------------------- */

static int add_host(struct pl_topology *t, const char *name, int64_t ranks, struct pl_err *err)
{
	struct pl_thost h = { .first = t->n_ranks };

	if (ranks > MAX_RANKS - (int64_t)t->n_ranks)
		return pl_fail(err, PL_EDATA, "more than %d ranks in all", MAX_RANKS);
	if (t->n_hosts >= MAX_HOSTS)
		return pl_fail(err, PL_EDATA, "more than %d hosts", MAX_HOSTS);
	PL_CHECK(pl_dup(&t->arena, &h.name, name, err));
	PL_CHECK(pl_grow(&t->host, &t->cap_hosts, t->n_hosts + 1, sizeof(*t->host), err));
	h.n = (uint32_t)ranks;
	t->host[t->n_hosts++] = h;
	t->n_ranks += h.n;
	return 0;
}

/* n hosts named by the format, in which "%d" stands for their number among all. */
static int add_hosts(struct pl_topology *t, const char *format, int64_t n, int64_t ranks,
		     struct pl_err *err)
{
	const char *at = strstr(format, "%d");
	int rc = 0;

	if (!at && n > 1)
		return pl_fail(err, PL_EDATA,
			       "\"%.100s\" would name %lld hosts alike; put %%d where their number "
			       "goes",
			       format, (long long)n);
	if (strlen(format) > 256)
		return pl_fail(err, PL_EDATA, "a name of hosts of more than 256 bytes");
	if (n > MAX_HOSTS)
		return pl_fail(err, PL_EDATA, "more than %d hosts", MAX_HOSTS);
	for (int64_t i = 0; i < n && rc >= 0; i++) {
		char name[300];

		if (at)
			snprintf(name, sizeof(name), "%.*s%zu%s", (int)(at - format), format,
				 t->n_hosts, at + 2);
		else
			snprintf(name, sizeof(name), "%s", format);
		rc = add_host(t, name, ranks, err);
	}
	return rc;
}

static int add_link(struct pl_topology *t, const struct pl_tlink *l, struct pl_err *err)
{
	struct pl_tlink copy = *l;

	for (size_t i = 0; i < t->n_links; i++)
		if (!strcmp(t->link[i].name, l->name))
			return pl_fail(err, PL_EDATA, "a second link \"%.200s\"", l->name);
	PL_CHECK(pl_dup(&t->arena, &copy.name, l->name, err));
	return pl_append(&t->link, &t->n_links, &t->cap_links, &copy, sizeof(copy), err);
}

/* Is it whole? */
static int check(const struct pl_topology *t, struct pl_err *err)
{
	const char **name = NULL, *twice;
	bool several = false;
	int rc;

	if (!t->n_hosts)
		return pl_fail(err, PL_EDATA, "there is no host; write: host NAME ranks=N");
	PL_TRY(pl_alloc(&name, t->n_hosts, sizeof(*name), err));
	for (size_t i = 0; i < t->n_hosts; i++) {
		name[i] = t->host[i].name;
		several |= t->host[i].n > 1;
	}
	twice = pl_sort_twice(name, t->n_hosts);
	if (twice)
		rc = pl_fail(err, PL_EDATA, "two hosts are named \"%.200s\"", twice);
	if (rc >= 0 && several && !pl_topology_link(t, PL_SCOPE_HOST))
		rc = pl_fail(err, PL_EDATA,
			     "no link inside a host of several ranks; write: link NAME scope=host "
			     "bandwidth=12GB/s latency=5us");
	if (rc >= 0 && t->n_hosts > 1 && !pl_topology_link(t, PL_SCOPE_NETWORK))
		rc = pl_fail(err, PL_EDATA,
			     "no link between the hosts; write: link NAME scope=network "
			     "bandwidth=10Gbit/s latency=30us");
out:
	pl_free(name);
	return rc;
}

/* ---- text ------------------------------------------------------------------------------------ */

static int read_statement(const struct pl_lang_statement *st, struct pl_topology *t,
			  struct pl_err *err)
{
	struct hosts h = { .n = 0 };
	struct pl_tlink l = { 0 };

	if (!strcmp(st->row->name, "link")) {
		PL_CHECK(pl_lang_bind(st, &l, &t->arena, err));
		l.scope = (uint8_t)pl_lang_get(st, "scope")->i;
		return add_link(t, &l, err);
	}
	pl_lang_defaults(st->row, NULL, &h);
	PL_CHECK(pl_lang_bind(st, &h, &t->arena, err));
	return h.n ? add_hosts(t, h.name, h.n, h.ranks, err) : add_host(t, h.name, h.ranks, err);
}

static int read_all(struct pl_lang_reader *r, struct pl_topology *t, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	while ((rc = pl_lang_next(r, err)) > 0) {
		rc = read_statement(&r->st, t, &why);
		if (rc == PL_EDATA)
			return pl_lang_fail(r, r->word[0].column, err, "%s", why.msg);
		if (rc < 0)
			return pl_fail(err, rc, "%s", why.msg);
	}
	if (rc == 0 && (rc = check(t, err)) < 0)
		pl_wrap(err, "%s", r->name);
	return rc;
}

int pl_topology_read(struct pl_in *in, const char *name, struct pl_topology *t, struct pl_err *err)
{
	struct pl_lang_reader r;
	int rc = pl_lang_open(&r, &pl_topology_schema, in, name, err);

	memset(t, 0, sizeof(*t));
	if (rc >= 0)
		rc = read_all(&r, t, err);
	pl_lang_close(&r);
	if (rc < 0)
		pl_topology_fini(t);
	return rc < 0 ? rc : 0;
}

/* ---- presets and the short form -------------------------------------------------------------- */

struct preset {
	const char *name;
	struct pl_tlink link[2];
};

/* Where the figures come from: paceline-topology(5). GB/s are bytes per ns. */
static const struct preset presets[] = {
	{ "pcie-eth10",
	  { { "pcie", PL_SCOPE_HOST, false, 15.75, 8000 },
	    { "nic", PL_SCOPE_NETWORK, true, 1.25, 30000 } } },
	{ "dgx-a100",
	  { { "nvlink", PL_SCOPE_HOST, false, 300, 3000 },
	    { "nic", PL_SCOPE_NETWORK, false, 25, 8000 } } },
	{ "dgx-h100",
	  { { "nvlink", PL_SCOPE_HOST, false, 450, 3000 },
	    { "nic", PL_SCOPE_NETWORK, false, 50, 8000 } } },
	{ "v100-100g",
	  { { "nvlink", PL_SCOPE_HOST, false, 150, 4000 },
	    { "nic", PL_SCOPE_NETWORK, true, 12.5, 12000 } } },
	{ "loopback",
	  { { "lo", PL_SCOPE_HOST, true, 4, 20000 },
	    { "veth", PL_SCOPE_NETWORK, true, 4, 25000 } } },
};

static int add_preset(const char *name, struct pl_topology *t, struct pl_err *err)
{
	for (size_t i = 0; i < PL_LEN(presets); i++) {
		if (strcmp(presets[i].name, name))
			continue;
		PL_CHECK(add_link(t, &presets[i].link[0], err));
		return add_link(t, &presets[i].link[1], err);
	}
	return pl_fail(err, PL_EUSAGE,
		       "there is no preset \"%.100s\"; there are pcie-eth10, dgx-a100, dgx-h100, "
		       "v100-100g and loopback",
		       name);
}

/* "16x8" or "16x8:dgx-a100"; *preset behind the colon, or the default. */
static bool is_short(const char *s, int64_t *hosts, int64_t *ranks, const char **preset)
{
	*hosts = pl_take_digits(&s);
	if (*hosts < 0 || *s++ != 'x')
		return false;
	*ranks = pl_take_digits(&s);
	*preset = *s == ':' ? s + 1 : presets[0].name;
	return *ranks >= 0 && (!*s || *s == ':');
}

int pl_topology_parse(const char *text, struct pl_topology *t, struct pl_err *err)
{
	int64_t hosts, ranks;
	const char *preset;
	struct pl_err why = { 0 };
	struct pl_in *in;
	int rc;

	memset(t, 0, sizeof(*t));
	if (!is_short(text, &hosts, &ranks, &preset)) {
		in = pl_in_open(text, &why);
		if (!in)
			return pl_fail(
				err, why.code,
				"%s (a topology is HOSTSxRANKS, HOSTSxRANKS:PRESET or a file)",
				why.msg);
		rc = pl_topology_read(in, pl_in_name(in), t, err);
		pl_in_close(in);
		return rc;
	}
	if (hosts < 1 || ranks < 1 || hosts > MAX_HOSTS || ranks > MAX_RANKS / hosts)
		return pl_fail(
			err, PL_EUSAGE,
			"topology %s: 1 to %d hosts with 1 or more ranks each, %d at most in "
			"all",
			text, MAX_HOSTS, MAX_RANKS);
	PL_TRY(add_hosts(t, "node%d", hosts, ranks, err));
	rc = add_preset(preset, t, err);
out:
	if (rc < 0)
		pl_topology_fini(t);
	return rc;
}

int pl_topology_default(uint32_t n, uint32_t per_host, struct pl_topology *t, struct pl_err *err)
{
	int rc = 0;

	memset(t, 0, sizeof(*t));
	if (!n || n > MAX_RANKS)
		return pl_fail(err, PL_EUSAGE, "a topology of %u ranks; there are 1 to %d", n,
			       MAX_RANKS);
	if (!per_host || per_host > n)
		per_host = n;
	PL_TRY(add_hosts(t, "node%d", n / per_host, per_host, err));
	if (n % per_host)
		PL_TRY(add_hosts(t, "node%d", 1, n % per_host, err));
	PL_TRY(add_preset(presets[0].name, t, err));
	t->assumed = true;
out:
	if (rc < 0)
		pl_topology_fini(t);
	return rc;
}
