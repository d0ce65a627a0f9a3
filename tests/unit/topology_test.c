/* Topologies: text, errors with their lines, short forms, defaults, lookups. */
#include <stdlib.h>
#include <unistd.h>

#include "plan/topology.h"
#include "tap.h"

static struct pl_err err;

static int read_str(const char *s, struct pl_topology *t)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test", s, strlen(s), &err);
	rc = pl_topology_read(in, "test", t, &err);
	pl_in_close(in);
	return rc;
}

#define LINKS                                                                                      \
	"link nvlink scope host bandwidth 300GB/s latency 3us\n"                                   \
	"link nic scope network bandwidth 100Gbit/s latency 8us shared\n"

static void text(void)
{
	struct pl_topology t;

	is_i64(read_str("host \"big one\" ranks 6 # fast\nhosts 2 ranks 2\n" LINKS, &t), 0, "read");
	is_str(t.host[0].name, "big one", "a quoted name");
	is_str(t.host[2].name, "node2", "names by number");
	ok(t.n_links == 2 && t.link[0].bytes_per_ns == 300 && t.link[0].latency_ns == 3000 &&
		   !t.link[0].shared && t.link[1].bytes_per_ns == 12.5 &&
		   t.link[1].latency_ns == 8000,
	   "links");
	ok(t.n_hosts == 3 && t.n_ranks == 10 && !t.assumed, "hosts and ranks");
	ok(t.host[0].first == 0 && t.host[1].first == 6 && t.host[2].first == 8, "first ranks");
	ok(pl_topology_host(&t, 0) == 0 && pl_topology_host(&t, 5) == 0 &&
		   pl_topology_host(&t, 6) == 1 && pl_topology_host(&t, 9) == 2,
	   "hosts of ranks");
	is_str(pl_topology_link(&t, PL_SCOPE_HOST)->name, "nvlink", "link inside a host");
	ok(pl_topology_link(&t, PL_SCOPE_NETWORK)->shared, "link between hosts");
	pl_topology_fini(&t);
	is_i64(read_str("paceline-topology 1\nhost a ranks=1\n", &t), 0, "a header, and keys");
	pl_topology_fini(&t);
	is_i64(read_str("host a ranks 1\n", &t), 0, "one rank needs no link");
	ok(!pl_topology_link(&t, PL_SCOPE_HOST), "and has none");
	pl_topology_fini(&t);
}

static void units(void)
{
	static const struct {
		const char *text;
		double want;
	} rate[] = {
		{ "8bit/s", 1e-9 },	   { "1kbit/s", 125e-9 },
		{ "100Mbit/s", 0.0125 },   { "10Gbit/s", 1.25 },
		{ "1.6Tbit/s", 200 },	   { "1000B/s", 1e-6 },
		{ "1kB/s", 1e-6 },	   { "5MB/s", 5e-3 },
		{ "15.75GB/s", 15.75 },	   { "2TB/s", 2000 },
		{ "2TB", 2000 },	   { "1KiB/s", 1.024e-6 },
		{ "1MiB/s", 1.048576e-3 }, { "12GiB/s", 12.884901888 },
		{ "1GiB/s", 1.073741824 }, { "1Gibit/s", 0.134217728 },
	};

	for (size_t i = 0; i < PL_LEN(rate); i++) {
		struct pl_topology t;
		char s[128];
		double got;

		snprintf(s, sizeof(s),
			 "hosts 1 ranks 2\nlink l scope host bandwidth %s latency 0ns\n",
			 rate[i].text);
		if (read_str(s, &t) < 0) {
			ok(false, "%s: %s", rate[i].text, err.msg);
			continue;
		}
		got = t.link[0].bytes_per_ns / rate[i].want;
		ok(got > 1 - 1e-12 && got < 1 + 1e-12, "%s", rate[i].text);
		pl_topology_fini(&t);
	}
}

static void errors(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "there is no host" },
		{ "paceline-topology 2\n", "line 1, column 19: version 2 is newer" },
		{ "host a ranks 1\npaceline-topology 1\n",
		  "line 2, column 1: there is no statement" },
		{ "host a ranks 0\n", "line 1, column 14: host: ranks must be at least 1" },
		{ "host a\n", "ranks is missing; write: host NAME ranks=N" },
		{ "host a ranks 2\n", "no link inside a host" },
		{ "host a ranks 1\nhost b ranks 1\n", "no link between the hosts" },
		{ "host a ranks 1\nhost a ranks 1\n" LINKS, "two hosts are named \"a\"" },
		{ "hosts 2 ranks 1 name n\n", "line 1, column 1: \"n\" would name 2 hosts alike" },
		{ "hosts 4000000000 ranks 1\n",
		  "line 1, column 7: hosts must be at least 1 and at most 1048576" },
		{ "hosts 1 ranks 99999999\n", "ranks must be at least 1 and at most 16777216" },
		{ "hosts 2 ranks 16777216\n", "line 1, column 1: more than 16777216 ranks" },
		{ "host a ranks 1\n" LINKS LINKS, "line 4, column 1: a second link \"nvlink\"" },
		{ "link l scope wire bandwidth 1B/s latency 1us\n",
		  "scope must be one of host|network, not \"wire\"" },
		{ "link l scope host bandwidth 1 latency 1us\n", "link: bandwidth must be a rate" },
		{ "link l scope host bandwidth 0GB/s latency 1us\n",
		  "link: bandwidth must be a rate" },
		{ "link l scope host bandwidth 0.0000000001bit latency 1us\n",
		  "bandwidth must be a rate of 1 B/s to 1 PB/s" },
		{ "link l scope host bandwidth -1GB/s latency 1us\n",
		  "link: bandwidth must be a rate" },
		{ "link l scope host bandwidth 1GBs latency 1us\n",
		  "link: bandwidth must be a rate" },
		{ "link l scope host bandwidth 1GB/s latency 2h\n",
		  "latency must be a time of at most an hour" },
		{ "link l scope host bandwidth 1GB/s latency 1us mine\n",
		  "\"mine\" is too much here" },
		{ "link l scope host bandwidht=1GB/s latency=1us\n",
		  "line 1, column 19: link has no \"bandwidht\"; did you mean bandwidth?" },
	};
	struct pl_topology t;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(bad[i].text, &t);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s", bad[i].says))
			printf("# %d %s\n", rc, err.msg);
	}
}

static int parse(const char *s, struct pl_topology *t)
{
	memset(&err, 0, sizeof(err));
	return pl_topology_parse(s, t, &err);
}

static void short_forms(void)
{
	static const char *const preset[] = { "dgx-a100", "dgx-h100", "v100-100g", "pcie-eth10",
					      "loopback" };
	char path[] = "/tmp/topology.XXXXXX", s[64];
	struct pl_topology t;
	int fd;

	is_i64(parse("16x8", &t), 0, "16x8");
	ok(t.n_hosts == 16 && t.n_ranks == 128 && !strcmp(t.host[15].name, "node15"), "its hosts");
	ok(t.link[0].bytes_per_ns > 15.7 && t.link[1].latency_ns == 30000, "its links");
	pl_topology_fini(&t);
	for (size_t i = 0; i < PL_LEN(preset); i++) {
		snprintf(s, sizeof(s), "2x4:%s", preset[i]);
		ok(parse(s, &t) == 0 && pl_topology_link(&t, PL_SCOPE_HOST) &&
			   pl_topology_link(&t, PL_SCOPE_NETWORK),
		   "%s", s);
		pl_topology_fini(&t);
	}
	is_i64(parse("2x4:abacus", &t), PL_EUSAGE, "no such preset");
	is_i64(parse("0x4", &t), PL_EUSAGE, "no hosts");
	is_i64(parse("1000000x1000000", &t), PL_EUSAGE, "too many ranks");
	is_i64(parse("/no/such/file", &t), PL_EIO, "no such file");
	fd = mkstemp(path);
	ok(fd >= 0 && write(fd, "host a ranks 1\n", 15) == 15 && parse(path, &t) == 0 &&
		   t.n_ranks == 1,
	   "a file");
	close(fd);
	unlink(path);
	pl_topology_fini(&t);
}

static void defaults(void)
{
	struct pl_topology t;

	ok(pl_topology_default(10, 4, &t, &err) == 0 && t.n_hosts == 3 && t.host[2].n == 2 &&
		   t.assumed,
	   "ten ranks, four a host");
	pl_topology_fini(&t);
	ok(pl_topology_default(10, 0, &t, &err) == 0 && t.n_hosts == 1 && t.n_ranks == 10,
	   "all on one host");
	pl_topology_fini(&t);
	is_i64(pl_topology_default(0, 0, &t, &err), PL_EUSAGE, "no ranks");
}

int main(void)
{
	bool all = true;

	text();
	units();
	errors();
	short_forms();
	defaults();
	for (int i = 0; i < PL_ALGO_COUNT_; i++)
		all &= pl_plan_algorithm_find(pl_plan_algorithm_name((unsigned)i)) == i;
	ok(all && pl_plan_algorithm_find("star") == -1, "names of algorithms");
	return done_testing();
}
