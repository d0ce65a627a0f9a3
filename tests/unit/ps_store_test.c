/*
 * The vectors of a server: updates against a plain loop, and what is left of a server that is
 * killed.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ps/passes.h"
#include "ps/store.h"
#include "tap.h"

#define N 5000 /* more than a block, and no whole number of them */

static struct pl_err err;
static uint32_t bodies; /* of the stores */

static struct pl_ps_store *open_store(int fd, size_t n, bool *fresh)
{
	const struct pl_ps_store_opts o = { .fd = fd, .n = n, .workers = 3, .bodies = bodies };
	struct pl_ps_store *s = NULL;

	if (pl_ps_store_open(&o, &s, fresh, &err) < 0)
		printf("# %s\n", err.msg);
	return s;
}

/* ---- updates --------------------------------------------------------------------------------- */

struct plain {
	double w[N], s[N], v[N];
};

/* The formula of policy.h, for each number by itself. */
static void update_plainly(struct plain *p, const struct pl_policy_update *up, const float *u)
{
	for (int i = 0; i < N; i++) {
		double x = u ? u[i] : 0;

		p->s[i] += up->s_u * x;
		p->v[i] = up->v_v * p->v[i] + up->v_u * x + up->v_s * p->s[i];
		p->w[i] += up->w_u * x + up->w_s * p->s[i] + up->w_v * p->v[i];
		if (up->clear)
			p->s[i] = 0;
	}
}

static double one_of(uint64_t *r)
{
	static const double v[] = { 0, 0, 0, 1, 0.25, -0.5 };

	return v[pl_rng_next(r) % PL_LEN(v)];
}

static double greatest_error(struct pl_ps_store *s, struct plain *p, uint64_t *r, int updates)
{
	float u[N], from[N], sum[N];
	double worst = 0;

	for (int k = 0; k < updates; k++) {
		struct pl_policy_update up = { .s_u = one_of(r),
					       .v_v = pl_rng_next(r) % 2 ? 1 : 0.5,
					       .v_u = one_of(r),
					       .v_s = one_of(r),
					       .w_u = one_of(r),
					       .w_s = one_of(r),
					       .w_v = one_of(r),
					       .clear = pl_rng_next(r) % 3 == 0 };
		bool has_u = pl_rng_next(r) % 4 > 0;

		for (int i = 0; i < N; i++)
			u[i] = (float)((double)(pl_rng_next(r) % 2001) / 1000 - 1);
		update_plainly(p, &up, has_u ? u : NULL);
		for (int i = 0; i < N; i++) {
			from[i] = (float)(pl_rng_next(r) % 16) / 8;
			sum[i] = from[i] + u[i];
		}
		pl_ps_store_update(s, &up,
				   &(struct pl_ps_change){ .to = !has_u	 ? NULL
								 : k % 2 ? sum
									 : u,
							   .from = has_u && k % 2 ? from : NULL });
		if (pl_rng_next(r) % 2)
			pl_ps_store_commit(s);
		for (int i = 0; i < N; i++) {
			double d = pl_ps_store_weights(s)[i] - p->w[i],
			       size = 1 + (p->w[i] < 0 ? -p->w[i] : p->w[i]);

			worst = worse(worst, (d < 0 ? -d : d) / size);
		}
	}
	return worst;
}

static void test_updates(void)
{
	static struct plain p;
	uint64_t r = 7;
	double worst = 0;
	bool fresh;

	for (int k = 0; k < 40; k++) {
		struct pl_ps_store *s = open_store(-1, N, &fresh);

		memset(&p, 0, sizeof(p));
		worst = worse(worst, greatest_error(s, &p, &r, 8));
		pl_ps_store_close(s);
	}
	ok(worst < 1e-4, "updates are those of the formula (%.2g)", worst);
}

static void test_exact(void)
{
	const struct pl_policy_update third = { .v_v = 1, .w_u = 1 };
	struct pl_ps_store *s;
	float u[N], *w;
	double sum = 0;
	int wrong = 0;
	bool fresh;

	s = open_store(-1, N, &fresh);
	ok(fresh, "memory of its own is empty");
	w = pl_ps_store_begin(s);
	for (int i = 0; i < N; i++)
		w[i] = 3;
	pl_ps_store_commit(s);
	for (int k = 1; k <= 100; k++) {
		for (int i = 0; i < N; i++)
			u[i] = (float)(k % 7 - 3);
		sum += k % 7 - 3;
		pl_ps_store_update(s, &third, &(struct pl_ps_change){ .to = u });
		pl_ps_store_commit(s);
	}
	for (int i = 0; i < N; i++)
		wrong += pl_ps_store_weights(s)[i] != (float)(3 + sum);
	is_i64(wrong, 0, "the change of the weights is the sum of what was committed, exactly");
	is_i64((long long)pl_ps_store_progress(s)->version, 100, "each has a version");
	pl_ps_store_close(s);
}

/* ---- passes over memory ---------------------------------------------------------------------- */

#define ROOM 4200

/* Of each kind, at places that begin anywhere in a line of the cache, streamed or not. */
enum { COPY, ADD, SUBTRACT, ADVANCE, ADVANCE_OWN, SPLIT, KINDS };

static float expected(int kind, float a, float b, float c)
{
	switch (kind) {
	case COPY:
		return a;
	case ADD:
		return a + 0.25f * b;
	case SUBTRACT:
		return a - b;
	default:
		return a + 0.25f * (b - (kind == ADVANCE_OWN ? a : c));
	}
}

static int wrong_numbers(const float *a, const float *b, const float *c, size_t at, size_t also_at,
			 size_t n, bool stream)
{
	static float to[ROOM], also[ROOM];
	int wrong = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (int two = 0; two < 2; two++) {
			float *second = two ? also + also_at : NULL;
			const float *minus = kind == ADVANCE || kind == SPLIT ? c
					     : kind == ADVANCE_OWN	      ? a
									      : NULL;

			memset(to, 0, sizeof(to));
			memset(also, 0, sizeof(also));
			if (kind == COPY)
				pl_ps_pass_copy(to + at, second, a, n, stream);
			else if (kind == SUBTRACT)
				pl_ps_pass_subtract(to + at, second, a, b, n, stream);
			else if (kind == SPLIT && two)
				pl_ps_pass_split(to + at, second, a, 0.25f, b, c, n, stream);
			else
				pl_ps_pass_add(to + at, second, a, 0.25f, b, minus, n, stream);
			pl_ps_pass_end();
			for (size_t i = 0; i < ROOM; i++) {
				size_t k = i - at, m = i - also_at;
				float x = i >= at && k < n ? expected(kind, a[k], b[k], c[k]) : 0;
				float y = !two || i < also_at || m >= n ? 0
					  : kind == SUBTRACT		? a[m]
					  : kind == SPLIT		? b[m] - c[m]
							  : expected(kind, a[m], b[m], c[m]);

				wrong += to[i] != x;
				wrong += also[i] != y;
			}
		}
	return wrong;
}

static void test_passes(void)
{
	static float a[ROOM], b[ROOM], c[ROOM];
	uint64_t r = 11;
	int wrong = 0;
	float to[2] = { 5, 7 };

	for (int i = 0; i < ROOM; i++) {
		a[i] = (float)(pl_rng_next(&r) % 4000) / 64 - 30;
		b[i] = (float)(pl_rng_next(&r) % 4000) / 64 - 30;
		c[i] = (float)(pl_rng_next(&r) % 4000) / 64 - 30;
	}
	for (int k = 0; k < 40; k++)
		wrong += wrong_numbers(a + k % 3, b + k % 5, c + k % 7, pl_rng_next(&r) % 32,
				       pl_rng_next(&r) % 32,
				       k < 20 ? (size_t)k : 1000 + pl_rng_next(&r) % 3000, k % 2);
	is_i64(wrong, 0,
	       "a pass writes the numbers that it should, wherever they begin, and no others");
	pl_ps_pass_move(to, (const float[]){ 1, 2 }, (const float[]){ 10, 20 }, 2);
	ok(to[0] == 14 && to[1] == 25, "what was moved stays on top of the new base");
}

static void test_also(void)
{
	const struct pl_policy_update apply = { .v_v = 1, .w_u = 0.5 };
	const struct pl_policy_update sum = { .v_v = 1, .s_u = 1, .w_s = 0.5, .clear = true };
	const struct pl_policy_update collect = { .v_v = 1, .s_u = 1 };
	static float u[N], also[N];
	struct pl_ps_store *s;
	bool fresh;

	s = open_store(-1, N, &fresh);
	for (int i = 0; i < N; i++)
		u[i] = (float)i;
	pl_ps_store_also(s, also);
	for (int k = 0; k < 4; k++) {
		pl_ps_store_update(s, k % 2 ? &sum : &apply, &(struct pl_ps_change){ .to = u });
		pl_ps_store_commit(s);
		ok(!memcmp(also, pl_ps_store_weights(s), sizeof(also)) && also[2] == (float)(k + 1),
		   "update %d writes the weights of the reply, too", k + 1);
	}
	also[2] = -1;
	pl_ps_store_update(s, &collect, &(struct pl_ps_change){ .to = u });
	ok(also[2] == -1, "... but not if it leaves them as they are");
	pl_ps_store_also(s, NULL);
	pl_ps_store_update(s, &apply, &(struct pl_ps_change){ .to = u });
	ok(also[2] == -1, "... nor after that was ended");
	pl_ps_store_close(s);
}

/* ---- a server that is killed ----------------------------------------------------------------- */

/* Commits without end; the first one is told. */
static void add_ones(int fd, int told)
{
	const struct pl_policy_update collect = { .s_u = 1, .v_v = 1 };
	const struct pl_policy_update apply = { .v_v = 1, .w_s = 1, .clear = true };
	static float ones[N];
	bool fresh;
	struct pl_ps_store *s = open_store(fd, N, &fresh);

	for (int i = 0; i < N; i++)
		ones[i] = 0.5f;
	for (;;) { /* one event of a policy: two updates, one commit */
		pl_ps_store_update(s, &collect, &(struct pl_ps_change){ .to = ones });
		pl_ps_store_update(s, &collect, &(struct pl_ps_change){ .to = ones });
		if (bodies)
			pl_ps_store_aim(s, (pl_ps_store_in_body(s) + 1) % (int)bodies);
		pl_ps_store_update(s, &apply, &(struct pl_ps_change){ .to = NULL });
		pl_ps_store_applied(s, 1)->id++;
		pl_ps_store_commit(s);
		if (told >= 0 && write(told, "", 1) != 1)
			_exit(1);
		told = -1;
	}
}

static void test_killed(void)
{
	int fd = memfd_create("test", 0), wrong = 0, counts = 0, again = 0, told[2];
	uint64_t before = 0;
	bool fresh;
	char c;

	if (pipe(told)) {
		ok(false, "a pipe");
		return;
	}

	for (int k = 0; k < 60; k++) {
		pid_t pid = fork();
		struct pl_ps_store *s;
		uint64_t version;

		if (!pid)
			add_ones(fd, told[1]);
		again += read(told[0], &c, 1) == 1;
		pl_sleep_ns(k * 37000);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		s = open_store(fd, N, &fresh);
		wrong += fresh;
		version = pl_ps_store_progress(s)->version;
		for (int i = 0; i < N; i++)
			wrong += pl_ps_store_weights(s)[i] != (float)version;
		counts += pl_ps_store_applied(s, 1)->id != version || version < before;
		before = version;
		pl_ps_store_close(s);
	}
	is_i64(again, 60,
	       bodies ? "servers that write bodies are killed, too"
		      : "servers are killed after they have committed");
	ok(before >= 60, "... %llu times in all", (unsigned long long)before);
	is_i64(wrong, 0,
	       "the next server finds the memory of the last one, with all of each commit, or "
	       "nothing of it");
	is_i64(counts, 0, "... and no commit that was valid is lost");
	close(told[0]);
	close(told[1]);
	close(fd);
}

static bool all_are(const float *w, float v)
{
	for (int i = 0; i < N; i++)
		if (w[i] != v)
			return false;
	return true;
}

/* Weights that are sent as they are. */
static void test_bodies(void)
{
	const struct pl_policy_update at_once = { .v_v = 1, .w_u = 1 };
	int fd = memfd_create("test", 0);
	static float ones[N];
	struct pl_ps_store *s;
	const float *body[2];
	size_t bytes;
	bool fresh;
	void *p;

	for (int i = 0; i < N; i++)
		ones[i] = 1;
	s = open_store(fd, N, &fresh);
	for (uint32_t i = 0; i < 2; i++)
		body[i] = (const float *)(const void *)(pl_ps_store_body(s, i) + PL_PS_BODY);
	ok(pl_ps_store_file(s, &p, &bytes) == fd && (const char *)p < (const char *)body[0] &&
		   (const char *)(body[1] + N) <= (const char *)p + bytes,
	   "bodies are in the file");
	ok((uintptr_t)body[1] % (PL_PS_LINE * sizeof(float)) == 0, "... and aligned");
	is_i64(pl_ps_store_in_body(s), -1, "W begins in none");
	pl_ps_store_aim(s, 1);
	pl_ps_store_update(s, &at_once, &(struct pl_ps_change){ .to = ones });
	ok(pl_ps_store_in_body(s) == 1 && pl_ps_store_weights(s) == body[1] && all_are(body[1], 1),
	   "an update writes it to the body that was named");
	pl_ps_store_aim(s, 0);
	pl_ps_store_update(s, &at_once, &(struct pl_ps_change){ .to = ones });
	ok(pl_ps_store_moved(s) && pl_ps_store_in_body(s) == 1 && all_are(body[1], 2),
	   "... and another one before the commit to the same");
	pl_ps_store_commit(s);
	pl_ps_store_aim(s, 0);
	pl_ps_store_update(s, &at_once, &(struct pl_ps_change){ .to = ones });
	ok(pl_ps_store_in_body(s) == 0 && all_are(body[0], 3) && all_are(body[1], 2),
	   "... after the commit to another, and the first stays");
	pl_ps_store_close(s);
	s = open_store(fd, N, &fresh);
	ok(!fresh && pl_ps_store_in_body(s) == 1 && all_are(pl_ps_store_weights(s), 2),
	   "a store that is opened again has W of the last commit");
	pl_ps_store_aim(s, -1);
	pl_ps_store_update(s, &at_once, &(struct pl_ps_change){ .to = ones });
	pl_ps_store_commit(s);
	ok(pl_ps_store_in_body(s) == -1 && all_are(pl_ps_store_weights(s), 3),
	   "an update that names no body writes to none");
	pl_ps_store_close(s);
	close(fd);
	s = open_store(-1, N, &fresh);
	ok(pl_ps_store_file(s, &p, &bytes) >= 0, "a store without a file makes one for its bodies");
	pl_ps_store_close(s);
}

/* An update that was computed before it came: 7 stands in place of its numbers, to tell. */
static void test_guess(void)
{
	const struct pl_policy_update at_once = { .v_v = 1, .w_u = 1 },
				      sum = { .v_v = 1, .s_u = 1 };
	const struct pl_policy_update half = { .v_v = 1, .w_u = 0.5 };
	static float ones[N], twos[N], zeros[N], kept[N];
	const struct pl_ps_change u = { .to = twos, .from = ones }, own = { .to = kept };
	const struct pl_ps_change other = { .to = twos, .from = zeros };
	const struct {
		const char *what;
		const struct pl_policy_update *guess, *comes;
		const struct pl_ps_change *u;
		float *keep;
		float w;
		bool drops, another;
		int body;
	} c[] = {
		{ "an update takes the guess", &at_once, &at_once, &u, NULL, 7, .body = 1 },
		{ "... which kept U, too", &at_once, &at_once, &own, kept, 7, .body = 1 },
		{ "not when it was given up", &at_once, &at_once, &u, NULL, 5, .drops = true,
		  .body = 1 },
		{ "... after another update", &at_once, &at_once, &u, NULL, 5, .another = true,
		  .body = 1 },
		{ "... to another body", &at_once, &at_once, &u, NULL, 5, .body = 0 },
		{ "... with another factor", &at_once, &half, &u, NULL, 4.5f, .body = 1 },
		{ "... of another U", &at_once, &at_once, &other, NULL, 6, .body = 1 },
		{ "... nor is another vector guessed", &sum, &at_once, &u, NULL, 5, .body = 1 },
	};

	for (int i = 0; i < N; i++) {
		ones[i] = 1;
		twos[i] = 2;
	}
	for (size_t k = 0; k < PL_LEN(c); k++) {
		bool fresh, good = c[k].guess == &at_once;
		struct pl_ps_store *s = open_store(-1, N, &fresh);
		float *body = (float *)(void *)(pl_ps_store_body(s, 1) + PL_PS_BODY);

		for (int i = 0; i < N; i++)
			pl_ps_store_begin(s)[i] = 4;
		pl_ps_store_commit(s);
		ok(pl_ps_store_guess(s, c[k].guess, &u, c[k].keep, 1) == good &&
			   pl_ps_store_guessed(s) == (good ? 1 : -1) &&
			   (!good || all_are(body, 5)) && (!c[k].keep || all_are(kept, 1)),
		   "a guess: %s", c[k].what);
		for (int i = 0; i < N; i++)
			body[i] = 7;
		if (c[k].drops)
			pl_ps_store_guess_drop(s);
		if (c[k].another)
			pl_ps_store_update(s, &sum, &u);
		pl_ps_store_aim(s, c[k].body);
		pl_ps_store_update(s, c[k].comes, c[k].u);
		pl_ps_store_commit(s);
		ok(all_are(pl_ps_store_weights(s), c[k].w) && pl_ps_store_guessed(s) == -1,
		   "... %g", (double)c[k].w);
		pl_ps_store_close(s);
	}
}

static void test_refused(void)
{
	int fd = memfd_create("test", 0);
	const struct pl_ps_store_opts wrong = { .fd = fd, .n = N + 1, .workers = 3 };
	struct pl_ps_store *s, *other = NULL;
	bool fresh;

	s = open_store(fd, N, &fresh);
	ok(s && fresh, "an empty file is taken");
	pl_ps_store_begin(s)[0] = 1;
	pl_ps_store_progress(s)->steps = 5;
	pl_ps_store_close(s);
	s = open_store(fd, N, &fresh);
	ok(s && fresh, "... also if a server died before its first commit");
	is_i64((int64_t)pl_ps_store_progress(s)->steps, 0, "... without what it counted");
	pl_ps_store_commit(s);
	pl_ps_store_close(s);
	is_i64(pl_ps_store_open(&wrong, &other, &fresh, &err), PL_EDATA,
	       "a file with vectors of another length is refused");
	ok(strstr(err.msg, "another job") != NULL, "... and says why");
	ok(!other, "... without a store");
	close(fd);
}

int main(void)
{
	test_updates();
	test_exact();
	test_passes();
	test_also();
	test_killed();
	bodies = 3;
	test_killed();
	test_bodies();
	test_guess();
	bodies = 0;
	test_refused();
	return done_testing();
}
