/*
 * What several recorders wrote of one process is one process in a graph: a thread is one thread,
 * and an operation that one of them saw contains the calls that another one saw.
 *
 * runner: threads
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/rec.h"
#include "tap.h"

static char folder[64];

static struct pl_recorder *open_file(const char *kind, char *path, size_t size)
{
	struct pl_rec_opts o = { .rank = 0,
				 .size = 1,
				 .host = "box",
				 .format = "paceline-record",
				 .flush_ns = 1000000000 };
	struct pl_err err = { 0 };
	struct pl_recorder *r = NULL;

	snprintf(path, size, "%s/rank0.%s.trace", folder, kind);
	o.path = path;
	ok(pl_rec_open(&o, &r, &err) == 0, "%s: %s", kind, err.msg);
	return r;
}

static void put(struct pl_recorder *r, pl_id track, uint8_t kind, const char *name, pl_ns at,
		pl_ns lasts, int64_t corr)
{
	struct pl_rec_event e = pl_rec_event(track, kind, pl_rec_name(r, name), at, at + lasts);

	e.corr = corr;
	e.step = kind == PL_K_STEP ? 0 : -1;
	pl_rec(r, &e);
}

/* The first line of the output of BIN/ARGUMENTS that begins with `what`. */
static void line_of(const char *arguments, const char *what, char *line, size_t size)
{
	const char *bin = getenv("BIN");
	char command[1200];
	FILE *f;

	snprintf(command, sizeof(command), "%s/%s", bin ? bin : "bin", arguments);
	f = popen(command, "r");
	while (f && fgets(line, (int)size, f))
		if (!strncmp(line, what, strlen(what)))
			break;
	if (f)
		pclose(f);
	line[strcspn(line, "\n")] = '\0';
}

int main(void)
{
	char a[128], b[128], c[128], arguments[800], line[400] = "";
	struct pl_recorder *host, *device, *late;
	struct pl_err err = { 0 };
	pl_ns t = pl_now_ns();
	pl_id thread;

	snprintf(folder, sizeof(folder), "/tmp/record_files_test.XXXXXX");
	if (!ok(mkdtemp(folder) != NULL, "a folder"))
		return done_testing();
	host = open_file("torch", a, sizeof(a));
	device = open_file("cuda", b, sizeof(b));
	late = open_file("mpi", c, sizeof(c));
	thread = pl_rec_thread(host, 77, NULL);
	put(host, thread, PL_K_STEP, "step", t, 100000, -1);
	put(host, thread, PL_K_HOST_OP, "forward", t + 1000, 50000, -1);
	thread = pl_rec_thread(device, 77, NULL);
	put(device, thread, PL_K_RUNTIME, "cudaLaunchKernel", t + 2000, 3000, 1);
	put(device, pl_rec_stream(device, 0, 7, "stream 7"), PL_K_KERNEL, "gemm", t + 8000, 20000,
	    1);
	/* a third one, which begins when the others have ended */
	put(late, pl_rec_thread(late, 77, NULL), PL_K_COLLECTIVE, "MPI_Barrier", t + 500000, 1000,
	    -1);
	ok(pl_rec_close(host, NULL, &err) == 0 && pl_rec_close(device, NULL, &err) == 0 &&
		   pl_rec_close(late, NULL, &err) == 0,
	   "written: %s", err.msg);
	/* in the order of names: one behind the other are of one process */
	snprintf(arguments, sizeof(arguments), "merge -v -o %s/merged %s %s %s 2>&1", folder, b, c,
		 a);
	line_of(arguments, "merge: clock 0 box, rank 0:", line, sizeof(line));
	ok(strstr(line, "clock 0 box"), "one rank with one clock: %s", line);
	snprintf(arguments, sizeof(arguments), "graph -q -O stat %s/merged", folder);
	line_of(arguments, "resources", line, sizeof(line));
	is_str(line, "resources         2", "a thread and a stream, not two threads");
	pl_remove_folder(folder);
	return done_testing();
}
