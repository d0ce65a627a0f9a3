/*
 * The files to read: operands in their order, and the traces in a folder, with rank2 before rank10.
 * The first kilobytes of each file in a folder show whether it is a trace.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/progress.h"
#include "derive/layers.h"
#include "derive/opgraph.h"
#include "inputs/inputs.h"
#include "io/container.h"
#include "plan/job.h"
#include "trace/chakra.h"

#define LOOK   ((size_t)64 << 10) /* bytes that a probe wants */
#define PACKED ((size_t)16 << 10) /* ... and of a gzip that hold about as many */

static const char digits[] = "0123456789";

/* Runs of digits compare as numbers, the rest byte by byte. */
static int natural(const char *a, const char *b)
{
	const char *a0 = a, *b0 = b;

	while (*a && *b) {
		if (strchr(digits, *a) && strchr(digits, *b)) {
			size_t na, nb;
			int c;

			a += strspn(a, "0");
			b += strspn(b, "0");
			na = strspn(a, digits);
			nb = strspn(b, digits);
			c = na == nb ? memcmp(a, b, na) : PL_COMPARE(na, nb);
			if (c)
				return c;
			a += na;
			b += nb;
		} else if (*a != *b) {
			return PL_COMPARE((unsigned char)*a, (unsigned char)*b);
		} else {
			a++;
			b++;
		}
	}
	if (*a || *b)
		return *a ? 1 : -1;
	return strcmp(a0, b0);
}

static int by_path(const void *pa, const void *pb)
{
	const struct pl_input *a = pa, *b = pb;

	return natural(a->path, b->path);
}

/* The first bytes of an input, inflated. `held` is what must stay open while they are looked at. */
struct look {
	const uint8_t *p;
	size_t n;
	struct pl_in *held;
};

static int look_into(struct pl_in *in, struct look *l, struct pl_err *err)
{
	struct pl_err ignored = { 0 };
	struct pl_in *mem;
	int64_t n = pl_in_peek(in, LOOK, &l->p, err);

	l->held = NULL;
	if (n < 0)
		return (int)n;
	l->n = (size_t)n;
	if (l->n < 2 || l->p[0] != 0x1f || l->p[1] != 0x8b || pl_container_probe(l->p, l->n))
		return 0;
	mem = pl_in_open_mem(pl_in_name(in), l->p, pl_min_size(l->n, PACKED), err);
	l->held = mem ? pl_import_open(mem, NULL, err) : NULL;
	if (!l->held)
		return err->code;
	/* The piece ends within the file, which is no error here: the first peek reports it, and
	 * the second gives what could be inflated. A damaged file fails when it is read. */
	n = pl_in_peek(l->held, LOOK, &l->p, &ignored);
	if (n < 0)
		n = pl_in_peek(l->held, LOOK, &l->p, &ignored);
	l->n = n < 0 ? 0 : (size_t)n;
	return 0;
}

/* Does a file of a folder belong to the inputs? A stream that was cut in its head (PL_NONE) may be
 * a trace. */
static bool belongs(const struct pl_inputs_opts *o, const struct pl_input *i)
{
	if (i->kind)
		return i->kind == PL_KIND_TRACE || i->kind == PL_NONE || o->every_kind;
	return i->et || i->chakra || (i->known && !i->layers);
}

/* Find out what the input is, from its first bytes. */
static int recognise(const struct pl_inputs_opts *o, struct pl_input *i, struct pl_err *err)
{
	struct look l = { 0 };
	const struct pl_importer *format;
	int rc = look_into(i->in, &l, err);

	if (rc >= 0 && l.n)
		rc = pl_container_kind(i->in, &i->kind, err);
	if (rc >= 0 && i->kind) {
		i->merged = i->kind == PL_KIND_TRACE && pl_trace_is_merged(i->in);
	} else if (rc >= 0) {
		i->et = !o->forced && l.n && pl_import_et_probe(l.p, l.n);
		format = pl_import_probe(l.p, l.n);
		i->known = !l.n || format;
		i->xla =
			format && (!strcmp(format->name, "xla") || !strcmp(format->name, "xplane"));
		i->layers = l.n && pl_derive_is_layers(l.p, l.n);
		i->operations = l.n && !i->known && pl_derive_is_opgraph(l.p, l.n);
		i->chakra = !o->forced && !i->known && pl_trace_is_chakra(l.p, l.n);
		i->job = l.n && !i->known && !i->layers && pl_job_probe(l.p, l.n);
	}
	pl_in_close(l.held);
	return rc;
}

static bool is_file(const char *path, struct stat *st)
{
	return stat(path, st) == 0 && S_ISREG(st->st_mode);
}

/* Is the file among the inputs already, under this name or another? */
static bool is_known(const struct pl_inputs *v, const struct pl_inputs_opts *o, struct pl_input *i)
{
	struct stat st;

	i->file = is_file(i->path, &st);
	if (!i->file)
		return false;
	i->dev = st.st_dev;
	i->ino = st.st_ino;
	for (size_t k = 0; k < v->n; k++)
		if (v->v[k].ino == i->ino && v->v[k].dev == i->dev &&
		    !(o->pairs &&
		      (v->v[k].kind == PL_KIND_GRAPH || v->v[k].merged || v->v[k].layers)))
			return true;
	return false;
}

/* Takes the path. `found`: it comes from a folder and need not be a trace. */
static int add(struct pl_inputs *v, const struct pl_inputs_opts *o, char *path, bool found,
	       struct pl_err *err)
{
	struct pl_input i = { .path = path };
	char name[8];
	bool use = true;
	int rc = 0;

	if (!path)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	if (is_known(v, o, &i)) {
		pl_say(o->log, PL_LOG_WARN, "%s is given twice: it is read once", path);
		pl_free(path);
		v->twice++;
		return 0;
	}
	i.in = pl_in_open(path, err);
	rc = i.in ? recognise(o, &i, err) : err->code;
	if (rc >= 0) {
		use = !found || belongs(o, &i);
		if (!use && i.kind)
			pl_say(o->log, PL_LOG_WARN, "%s: this is a %s, no trace; left out", path,
			       pl_container_kind_name(i.kind, name));
		else if (!use)
			pl_say(o->log, PL_LOG_NOTE, "%s: not a known trace format; left out", path);
	}
	if (rc >= 0 && use)
		rc = pl_grow(&v->v, &v->cap, v->n + 1, sizeof(*v->v), err);
	/* a file is opened again when its turn comes; a pipe, with a name or without, stays open */
	if (rc < 0 || !use || i.file) {
		pl_in_close(i.in);
		i.in = NULL;
	}
	if (rc < 0 || !use)
		pl_free(path);
	else
		v->v[v->n++] = i;
	return rc;
}

/* The length of a path before this ending, or before this ending and ".gz"; 0: it has another. */
static size_t before_ending(const char *path, const char *ending)
{
	size_t n = strlen(path), k = strlen(ending);

	n -= n > 3 && !strcmp(path + n - 3, ".gz") ? 3 : 0;
	return n > k && !strncmp(path + n - k, ending, k) ? n - k : 0;
}

/* The profiler of JAX and TensorFlow writes one profile in two forms; XPlane has more. */
static void drop_twins(struct pl_inputs *v, const struct pl_inputs_opts *o, size_t first)
{
	for (size_t i = first; i < v->n; i++) {
		size_t n = before_ending(v->v[i].path, ".trace.json"), k = first;

		while (n && k < v->n &&
		       (before_ending(v->v[k].path, ".xplane.pb") != n ||
			memcmp(v->v[i].path, v->v[k].path, n) != 0))
			k++;
		if (!n || k == v->n)
			continue;
		pl_say(o->log, PL_LOG_NOTE, "%s: left out, because %s has the same profile",
		       v->v[i].path, v->v[k].path);
		pl_in_close(v->v[i].in);
		pl_free(v->v[i].path);
		memmove(&v->v[i], &v->v[i + 1], (v->n-- - i - 1) * sizeof(*v->v));
		i--;
	}
}

static int add_folder(struct pl_inputs *v, const struct pl_inputs_opts *o, const char *folder,
		      struct pl_err *err)
{
	size_t first = v->n, twice = v->twice;
	struct dirent *e;
	DIR *d = opendir(folder);
	int rc = 0;

	if (!d)
		return pl_fail_sys(err, "%s", folder);
	while (errno = 0, (e = readdir(d))) {
		size_t n = strlen(folder) + strlen(e->d_name) + 2;
		struct stat st;
		char *path;

		if (e->d_name[0] == '.')
			continue;
		rc = pl_alloc(&path, n, 1, err);
		if (rc < 0)
			break;
		snprintf(path, n, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/",
			 e->d_name);
		if (!is_file(path, &st)) {
			pl_free(path);
			continue;
		}
		rc = add(v, o, path, true, err);
		if (rc < 0)
			break;
		errno = 0;
	}
	closedir(d);
	if (rc < 0)
		return rc;
	if (v->n == first && v->twice == twice)
		return pl_fail(err, PL_EDATA,
			       "%s: no file in this folder is a trace; name the folder that the "
			       "profiler wrote its files into (*.pt.trace.json.gz)",
			       folder);
	drop_twins(v, o, first);
	qsort(v->v + first, v->n - first, sizeof(*v->v), by_path);
	return 0;
}

bool pl_inputs_is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Beside profiles, execution traces of Chakra add sizes to them, as those of PyTorch do. */
static void settle_chakra(struct pl_inputs *in)
{
	size_t profiles = 0;

	for (size_t i = 0; i < in->n; i++)
		profiles += in->v[i].known;
	for (size_t i = 0; i < in->n && profiles; i++) {
		in->v[i].et |= in->v[i].chakra;
		in->v[i].chakra = false;
	}
}

static size_t folder_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* Is it a profile of XLA without a rank in its name, in the folder of `with`? */
static bool is_process(const struct pl_input *i, const struct pl_input *with)
{
	size_t n = folder_length(with->path), host_len;
	const char *host;

	return i->xla && folder_length(i->path) == n && !memcmp(i->path, with->path, n) &&
	       pl_import_name_rank(i->path, &host, &host_len) < 0;
}

/* Each process of a job of JAX or TensorFlow writes a profile into the same folder, under the name
 * of its host. They are numbered in natural order; importers know better where a profile tells its
 * number. */
static void number_processes(struct pl_inputs *in, const struct pl_inputs_opts *o)
{
	for (size_t i = 0; i < in->n; i++) {
		struct pl_input *x = &in->v[i];
		int32_t before = 0, all = 0;

		if (!is_process(x, x))
			continue;
		for (size_t k = 0; k < in->n; k++) {
			bool other = is_process(&in->v[k], x);

			all += other;
			before += other && natural(in->v[k].path, x->path) < 0;
		}
		if (all < 2)
			continue;
		x->process = before + 1;
		pl_say(o->log, PL_LOG_NOTE,
		       "%s: its name tells no rank: process %d of the %d in this folder, by name",
		       x->path, before, all);
	}
}

static int find(struct pl_inputs *in, const struct pl_inputs_opts *o, int argc, char **argv,
		struct pl_err *err)
{
	bool stdin_used = false;

	pl_progress("looking at the inputs");
	if (!argc)
		return add(in, o, pl_strdup("-"), false, err);
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "-")) {
			if (stdin_used)
				return pl_fail(err, PL_EUSAGE,
					       "standard input can be read only once");
			stdin_used = true;
		} else if (!argv[i][0]) {
			return pl_fail(err, PL_EUSAGE, "a file name is empty");
		} else if (pl_inputs_is_folder(argv[i])) {
			in->folder = argc == 1 ? argv[i] : NULL;
			PL_CHECK(add_folder(in, o, argv[i], err));
			continue;
		}
		PL_CHECK(add(in, o, pl_strdup(argv[i]), false, err));
	}
	return 0;
}

int pl_inputs_find(struct pl_inputs *in, const struct pl_inputs_opts *o, int argc, char **argv,
		   struct pl_err *err)
{
	int rc = find(in, o, argc, argv, err);

	settle_chakra(in);
	number_processes(in, o);
	return rc;
}

const char *pl_inputs_name(const struct pl_input *i)
{
	return strcmp(i->path, "-") ? i->path : "stdin";
}

struct pl_in *pl_inputs_open(struct pl_input *i, struct pl_err *err)
{
	struct pl_in *in = i->in;

	i->in = NULL;
	return in ? in : pl_in_open(i->path, err);
}

int pl_inputs_job(struct pl_input *i, struct pl_job *j, struct pl_model *m, struct pl_err *err)
{
	struct pl_in *in = pl_inputs_open(i, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_job_read(in, pl_in_name(in), j, err);
	pl_in_close(in);
	PL_CHECK(rc);
	PL_CHECK(pl_job_check(j, err));
	return pl_job_model(j, i->path, m, err);
}

const char *pl_inputs_all(const struct pl_inputs *in)
{
	if (in->folder)
		return in->folder;
	return in->n == 1 ? pl_inputs_name(&in->v[0]) : "these files";
}

void pl_inputs_fini(struct pl_inputs *in)
{
	for (size_t i = 0; i < in->n; i++) {
		pl_in_close(in->v[i].in);
		pl_free(in->v[i].path);
	}
	pl_free(in->v);
}
