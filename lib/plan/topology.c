/*
 * Topologies: paceline-topology(5), read and written, made from a short form or from nothing.
 *
 * Hosts are a table by first rank, so that the host of a rank is found by bisection.
 */
#include <stdlib.h>
#include <string.h>

#include "core/words.h"
#include "plan/internal.h"

#define MAX_HOSTS 1048576
#define MAX_RANKS 16777216
#define MAX_RATE  1e6 /* bytes per ns: 1 PB/s */
#define MAX_WAIT  (3600 * (pl_ns)1000000000)
#define VERSION	  1

static const char *const scopes[] = { [PL_SCOPE_HOST] = "host", [PL_SCOPE_NETWORK] = "network" };

const char *pl_algo_name(unsigned algo)
{
	static const char names[] = PL_WORDS_PLAN_ALGORITHM("\0") "\0";
	const char *s = pl_words_name(names, algo);

	return s ? s : "unknown";
}

int pl_algo_find(const char *name)
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

uint32_t pl_topology_host(const struct pl_topology *t, uint32_t rank)
{
	size_t lo = 0, hi = t->n_hosts;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->host[mid].first <= rank)
			lo = mid;
		else
			hi = mid;
	}
	return (uint32_t)lo;
}

/* ---- building -----------------------------------------------------------------------------------
 */

static int add_host(struct pl_topology *t, const char *name, int64_t ranks, struct pl_err *err)
{
	struct pl_thost h = { .first = t->n_ranks };
	int rc;

	if (ranks > MAX_RANKS - (int64_t)t->n_ranks)
		return pl_fail(err, PL_EDATA, "more than %d ranks in all", MAX_RANKS);
	if (t->n_hosts >= MAX_HOSTS)
		return pl_fail(err, PL_EDATA, "more than %d hosts", MAX_HOSTS);
	PL_TRY(pl_plan_dup_str(&t->arena, name, strlen(name), &h.name, err));
	PL_TRY(pl_grow(&t->host, &t->cap_hosts, t->n_hosts + 1, sizeof(*t->host), err));
	h.n = (uint32_t)ranks;
	t->host[t->n_hosts++] = h;
	t->n_ranks += h.n;
out:
	return rc;
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
	int rc;

	for (size_t i = 0; i < t->n_links; i++)
		if (!strcmp(t->link[i].name, l->name))
			return pl_fail(err, PL_EDATA, "a second link \"%.200s\"", l->name);
	PL_TRY(pl_plan_dup_str(&t->arena, l->name, strlen(l->name), &copy.name, err));
	PL_TRY(pl_grow(&t->link, &t->cap_links, t->n_links + 1, sizeof(*t->link), err));
	t->link[t->n_links++] = copy;
out:
	return rc;
}

/* Is it whole? */
static int check(const struct pl_topology *t, struct pl_err *err)
{
	const char **name = NULL;
	bool several = false;
	int rc;

	if (!t->n_hosts)
		return pl_fail(err, PL_EDATA, "there is no host; write: host NAME ranks N");
	PL_TRY(pl_alloc(&name, t->n_hosts, sizeof(*name), err));
	for (size_t i = 0; i < t->n_hosts; i++) {
		name[i] = t->host[i].name;
		several |= t->host[i].n > 1;
	}
	pl_sort(name, t->n_hosts, sizeof(*name), pl_compare_str);
	for (size_t i = 1; i < t->n_hosts && rc >= 0; i++)
		if (!strcmp(name[i - 1], name[i]))
			rc = pl_fail(err, PL_EDATA, "two hosts are named \"%.200s\"", name[i]);
	if (rc >= 0 && several && !pl_topology_link(t, PL_SCOPE_HOST))
		rc = pl_fail(err, PL_EDATA,
			     "no link inside a host of several ranks; write: link NAME scope host "
			     "bandwidth 12GB/s latency 5us");
	if (rc >= 0 && t->n_hosts > 1 && !pl_topology_link(t, PL_SCOPE_NETWORK))
		rc = pl_fail(err, PL_EDATA,
			     "no link between the hosts; write: link NAME scope network bandwidth "
			     "10Gbit/s latency 30us");
out:
	pl_free(name);
	return rc;
}

/* ---- the text form: numbers with units ----------------------------------------------------------
 */

/* "300GB/s" in bytes per ns, which is GB/s. False: it is none. */
bool pl_text_rate(const char *s, double *v)
{
	static const char prefix[] = "kMGT";
	double f = 1, unit;
	const char *p;
	char *end;

	if (!*s || s[0] == '-' || strspn(s, "0123456789.eE+-") == 0)
		return false;
	*v = strtod(s, &end);
	p = *end ? strchr(prefix, *end) : NULL;
	if (p) {
		bool binary = end[1] == 'i';

		for (ptrdiff_t i = p - prefix; i >= 0; i--)
			f *= binary ? 1024 : 1000;
		end += binary ? 2 : 1;
	} else if (end[0] == 'K' && end[1] == 'i') {
		f = 1024;
		end += 2;
	}
	unit = !strcmp(end, "bit/s") ? 8 : !strcmp(end, "B/s") ? 1 : 0;
	if (unit == 0)
		return false;
	/* a GB/s is itself, so that what is written so reads back exactly */
	*v = f == 1e9 && unit == 1 ? *v : *v * (f / 1e9) / unit;
	return *v > 0 && *v <= MAX_RATE;
}

bool pl_text_wait(const char *s, pl_ns *ns)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	char *end;
	double v;

	if (!*s || s[0] == '-' || strspn(s, "0123456789.eE+") == 0)
		return false;
	v = strtod(s, &end);
	for (size_t i = 0; i < PL_LEN(unit); i++) {
		if (strcmp(end, unit[i].name))
			continue;
		v *= unit[i].ns;
		if (!(v >= 0 && v <= (double)MAX_WAIT))
			return false;
		*ns = (pl_ns)(v + 0.5);
		return true;
	}
	return false;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

static int expect(struct pl_text *x, const char *key, struct pl_err *err)
{
	return pl_text_key(x, key) ? 0 : pl_text_fail(x, err, "\"%s\" is missing here", key);
}

static int read_hosts(struct pl_text *x, struct pl_topology *t, bool many, struct pl_err *err)
{
	const char *name = "node%d";
	struct pl_err why = { 0 };
	int64_t n = 1, ranks;
	int rc;

	if (many)
		PL_TRY(pl_text_int(x, &n, 1, "the number of hosts", err));
	else
		PL_TRY(pl_text_name(x, &name, "the host's name", err));
	PL_TRY(expect(x, "ranks", err));
	PL_TRY(pl_text_int(x, &ranks, 1, "the number of ranks", err));
	if (many && pl_text_key(x, "name"))
		PL_TRY(pl_text_name(x, &name, "the hosts' name", err));
	PL_TRY(pl_text_end(x, err));
	if (!name[0])
		return pl_text_fail(x, err, "the host's name is empty");
	rc = many ? add_hosts(t, name, n, ranks, &why) : add_host(t, name, ranks, &why);
	if (rc == PL_EDATA)
		return pl_text_fail(x, err, "%s", why.msg);
	if (rc < 0)
		return pl_fail(err, rc, "%s", why.msg);
out:
	return rc;
}

static int read_link(struct pl_text *x, struct pl_topology *t, struct pl_err *err)
{
	struct pl_tlink l = { 0 };
	struct pl_err why = { 0 };
	const char *s;
	int rc;

	PL_TRY(pl_text_name(x, &l.name, "the link's name", err));
	if (!l.name[0])
		return pl_text_fail(x, err, "the link's name is empty");
	PL_TRY(expect(x, "scope", err));
	if (pl_text_key(x, "network"))
		l.scope = PL_SCOPE_NETWORK;
	else if (!pl_text_key(x, "host"))
		return pl_text_fail(x, err, "a link is of scope host or network");
	PL_TRY(expect(x, "bandwidth", err));
	PL_TRY(pl_text_name(x, &s, "the bandwidth", err));
	if (!pl_text_rate(s, &l.bytes_per_ns))
		return pl_text_fail(x, err,
				    "\"%s\" is no bandwidth above 0 and up to 1 PB/s, like "
				    "100Gbit/s, 12.5GB/s or 12GiB/s",
				    s);
	PL_TRY(expect(x, "latency", err));
	PL_TRY(pl_text_name(x, &s, "the latency", err));
	if (!pl_text_wait(s, &l.latency_ns))
		return pl_text_fail(x, err, "\"%s\" is no time of at most an hour, like 8us", s);
	l.shared = pl_text_key(x, "shared");
	PL_TRY(pl_text_end(x, err));
	rc = add_link(t, &l, &why);
	if (rc == PL_EDATA)
		return pl_text_fail(x, err, "%s", why.msg);
	if (rc < 0)
		return pl_fail(err, rc, "%s", why.msg);
out:
	return rc;
}

static int read_all(struct pl_text *x, struct pl_in *in, const char *name, struct pl_topology *t,
		    struct pl_err *err)
{
	bool first = true;
	int rc;

	PL_TRY(pl_text_read(x, in, name, err));
	while ((rc = pl_text_next(x, err)) > 0) {
		if (first && pl_text_key(x, "paceline-topology"))
			PL_TRY(pl_text_version(x, VERSION, err));
		else if (pl_text_key(x, "host"))
			PL_TRY(read_hosts(x, t, false, err));
		else if (pl_text_key(x, "hosts"))
			PL_TRY(read_hosts(x, t, true, err));
		else if (pl_text_key(x, "link"))
			PL_TRY(read_link(x, t, err));
		else
			return pl_text_fail(x, err,
					    "there is no statement \"%s\"; a topology has host, "
					    "hosts and link",
					    x->word[0].s);
		first = false;
	}
	if (rc >= 0 && (rc = check(t, err)) < 0)
		pl_wrap(err, "%s", name);
out:
	return rc;
}

int pl_topology_read(struct pl_in *in, const char *name, struct pl_topology *t, struct pl_err *err)
{
	struct pl_text x = { 0 };
	struct pl_err why = { 0 };
	int rc;

	memset(t, 0, sizeof(*t));
	rc = read_all(&x, in, name, t, &why);
	pl_text_fini(&x);
	if (rc < 0) {
		pl_topology_fini(t);
		if (err && !err->code)
			*err = why;
	}
	return rc < 0 ? rc : 0;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static int put_link(struct pl_buf *b, const struct pl_tlink *l, struct pl_err *err)
{
	char real[40];
	int rc;

	PL_TRY(pl_buf_printf(b, err, "link"));
	PL_TRY(pl_text_put_name(b, l->name, strlen(l->name), err));
	rc = pl_buf_printf(b, err, " scope %s bandwidth %sGB/s latency %lldns%s\n",
			   scopes[l->scope == PL_SCOPE_NETWORK],
			   pl_text_real_str(real, sizeof(real), l->bytes_per_ns),
			   (long long)l->latency_ns, l->shared ? " shared" : "");
out:
	return rc;
}

int pl_topology_write(const struct pl_topology *t, struct pl_out *out, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "paceline-topology %d\n", VERSION));
	for (size_t i = 0; i < t->n_hosts; i++) {
		PL_TRY(pl_buf_printf(&b, err, "host"));
		PL_TRY(pl_text_put_name(&b, t->host[i].name, strlen(t->host[i].name), err));
		PL_TRY(pl_buf_printf(&b, err, " ranks %u\n", t->host[i].n));
	}
	for (size_t i = 0; i < t->n_links; i++)
		PL_TRY(put_link(&b, &t->link[i], err));
	rc = pl_out_write(out, b.p, b.n, err);
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- presets and the short form -----------------------------------------------------------------
 */

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

int pl_topology_preset(const char *name, struct pl_topology *t, struct pl_err *err)
{
	for (size_t i = 0; i < PL_LEN(presets); i++) {
		int rc;

		if (strcmp(presets[i].name, name))
			continue;
		rc = add_link(t, &presets[i].link[0], err);
		return rc < 0 ? rc : add_link(t, &presets[i].link[1], err);
	}
	return pl_fail(err, PL_EUSAGE,
		       "there is no preset \"%.100s\"; there are pcie-eth10, dgx-a100, dgx-h100, "
		       "v100-100g and loopback",
		       name);
}

/* "16x8" or "16x8:dgx-a100"; *preset behind the colon, or the default. */
static bool is_short(const char *s, int64_t *hosts, int64_t *ranks, const char **preset)
{
	size_t a = strspn(s, "0123456789"), b;

	if (!a || a > 18 || s[a] != 'x')
		return false;
	b = strspn(s + a + 1, "0123456789");
	if (!b || b > 18 || (s[a + 1 + b] && s[a + 1 + b] != ':'))
		return false;
	*hosts = strtoll(s, NULL, 10);
	*ranks = strtoll(s + a + 1, NULL, 10);
	*preset = s[a + 1 + b] ? s + a + b + 2 : presets[0].name;
	return true;
}

int pl_topology_parse(const char *text, struct pl_topology *t, struct pl_err *err)
{
	int64_t hosts, ranks;
	const char *preset;
	struct pl_in *in;
	int rc;

	memset(t, 0, sizeof(*t));
	if (!is_short(text, &hosts, &ranks, &preset)) {
		in = pl_in_open(text, err);
		if (!in)
			return err ? err->code : PL_EIO;
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
	rc = pl_topology_preset(preset, t, err);
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
	PL_TRY(pl_topology_preset(presets[0].name, t, err));
	t->assumed = true;
out:
	if (rc < 0)
		pl_topology_fini(t);
	return rc;
}
