/*
 * Finding an MPI library and its functions.
 *
 * A process can only take part in a job of the type of MPI whose launcher started it; with another
 * type it would be a job with one rank. The variables of the launchers show the type. Under srun
 * both types work if Slurm's plugin is the right one (pmix for Open MPI, pmi2 for MPICH), so the
 * other type is tried next. Nothing is initialised here.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "comm/mpi_lib.h"

#define MPICH_GPU_CUDA 0

#define OPENMPI_ERR_TRUNCATE 15
#define MPICH_ERR_TRUNCATE   14
#define MPICH_ERR_CLASS	     0x7f

static const char *const openmpi_files[] = { "libmpi.so.40", NULL };
/* Debian's name, that of MPICH and Intel MPI, Cray's */
static const char *const mpich_files[] = { "libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12",
					   NULL };

const char *pl_comm_mpi_kind_name(enum pl_mpi_kind kind)
{
	return kind == PL_MPI_OPENMPI ? "Open MPI" : kind == PL_MPI_MPICH ? "MPICH" : "MPI";
}

int pl_comm_mpi_tag_of(const struct pl_mpi_lib *lib, const struct pl_mpi_status *s)
{
	return pl_mpi_tag(lib->kind, s);
}

bool pl_comm_mpi_truncated(const struct pl_mpi_lib *lib, int code)
{
	return lib->kind == PL_MPI_OPENMPI ? code == OPENMPI_ERR_TRUNCATE
					   : (code & MPICH_ERR_CLASS) == MPICH_ERR_TRUNCATE;
}

/* MPICH has both, and in some versions an assertion in the second fails. */
bool pl_comm_mpi_takes_cuda(const struct pl_mpi_lib *lib)
{
	int yes = 0;

	if (lib->gpu_support)
		return lib->gpu_support(MPICH_GPU_CUDA, &yes) == 0 && yes;
	return lib->cuda_support && lib->cuda_support() == 1;
}

static bool is_set(const char *name)
{
	const char *v = getenv(name);

	return v && *v;
}

/* The type of MPI whose launcher started this process; *sure: no other type can work. */
static enum pl_mpi_kind launcher_kind(bool *sure)
{
	bool step = is_set("SLURM_STEP_ID") || is_set("SLURM_STEPID");

	*sure = true;
	if (is_set("OMPI_COMM_WORLD_SIZE"))
		return PL_MPI_OPENMPI;
	*sure = false;
	if (is_set("PMIX_RANK"))
		return PL_MPI_OPENMPI;
	if (!is_set("PMI_RANK"))
		return PL_MPI_ANY;
	*sure = !step && !is_set("FLUX_JOB_ID");
	return PL_MPI_MPICH;
}

extern char **environ;

/* Without --mpi srun sets no PMI variable: ranks find no others, and Open MPI ends the process. */
static bool lacks_pmi(void)
{
	if (!is_set("SLURM_PROCID") || is_set("OMPI_COMM_WORLD_SIZE"))
		return false;
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, "PMI", 3))
			return false;
	return is_set("SLURM_STEP_ID") || is_set("SLURM_STEPID");
}

/* ---- symbols ---- */

static int lacks(const struct pl_mpi_lib *lib, const char *name, struct pl_err *err)
{
	return pl_fail(err, PL_EABSENT,
		       "%s has no %s: it is no library of MPI 3 whose binary interface is known "
		       "(Open MPI's or MPICH's)",
		       lib->name, name);
}

static int take_functions(struct pl_mpi_lib *lib, void *dl, struct pl_err *err)
{
#define TAKE(member, symbol, args)                                                                 \
	if (!pl_symbol(dl, symbol, &lib->member))                                                  \
		return lacks(lib, symbol, err);
	PL_MPI_FUNCTIONS(TAKE)
#undef TAKE
	pl_symbol(dl, "MPIX_GPU_query_support", &lib->gpu_support);
	pl_symbol(dl, "MPIX_Query_cuda_support", &lib->cuda_support);
	return 0;
}

static int take_handles(struct pl_mpi_lib *lib, void *dl, struct pl_err *err)
{
	lib->kind = dlsym(dl, "ompi_mpi_comm_world") ? PL_MPI_OPENMPI : PL_MPI_MPICH;
	if (lib->kind == PL_MPI_MPICH) {
		lib->world = PL_MPICH_COMM_WORLD;
		lib->byte = PL_MPICH_BYTE;
		lib->errors_return = PL_MPICH_ERRORS_RETURN;
		return 0;
	}
	lib->world = (pl_mpi_handle)dlsym(dl, "ompi_mpi_comm_world");
	lib->byte = (pl_mpi_handle)dlsym(dl, "ompi_mpi_byte");
	lib->errors_return = (pl_mpi_handle)dlsym(dl, "ompi_mpi_errors_return");
	return lib->byte && lib->errors_return ? 0 : lacks(lib, "ompi_mpi_byte", err);
}

/* "MPICH Version:\t4.0.2\nMPICH Release ..." or "Open MPI v4.1.4, package: ..." */
static void take_version(struct pl_mpi_lib *lib)
{
	char text[8193] = "", *to = lib->version;
	int n = 0;

	if (lib->library_version(text, &n) != 0)
		n = 0;
	text[n > 0 && (size_t)n < sizeof(text) ? n : 0] = '\0';
	for (const char *s = text; *s && *s != '\n' && *s != ','; s++) {
		if (to - lib->version >= (ptrdiff_t)sizeof(lib->version) - 1)
			break;
		if (!strncmp(s, "Version:\t", 9))
			s += 9;
		*to++ = *s == '\t' ? ' ' : *s;
	}
	*to = '\0';
}

/* 1: opened; 0: there is none of that name. */
static int try_file(struct pl_mpi_lib *lib, const char *name, struct pl_err *err)
{
	/* plugins of Open MPI look for its symbols among all; it is never closed, for it leaves
	 * threads and handlers behind */
	void *dl = pl_fail_now() ? NULL : dlopen(name, RTLD_NOW | RTLD_GLOBAL);

	if (!dl)
		return 0;
	snprintf(lib->name, sizeof(lib->name), "%s", name);
	PL_CHECK(take_functions(lib, dl, err));
	PL_CHECK(take_handles(lib, dl, err));
	take_version(lib);
	return 1;
}

static int try_files(struct pl_mpi_lib *lib, const char *const *name, struct pl_err *err)
{
	int rc = 0;

	while (*name && rc == 0)
		rc = try_file(lib, *name++, err);
	return rc;
}

int pl_comm_mpi_lib_open(struct pl_mpi_lib *lib, struct pl_err *err)
{
	const char *named = getenv("PACELINE_MPI");
	bool sure, mpich_first;
	enum pl_mpi_kind want = launcher_kind(&sure);
	int rc;

	memset(lib, 0, sizeof(*lib));
	if (lacks_pmi())
		return pl_fail(
			err, PL_EUSAGE,
			"srun does not connect MPI processes: use srun --mpi=pmix for Open MPI, "
			"--mpi=pmi2 for MPICH and Intel MPI (srun --mpi=list: what there is)");
	if (named && *named) {
		rc = try_file(lib, named, err);
		if (rc == 0)
			rc = pl_fail(err, PL_EABSENT,
				     "PACELINE_MPI names %.100s, which cannot be opened (%.200s)",
				     named, dlerror());
		else if (rc > 0 && sure && lib->kind != want)
			rc = pl_fail(err, PL_EABSENT,
				     "%s is %s, but the launcher of %s started this process; take "
				     "the launcher and the library of one MPI",
				     lib->name,
				     lib->version[0] ? lib->version
						     : pl_comm_mpi_kind_name(lib->kind),
				     pl_comm_mpi_kind_name(want));
		return rc < 0 ? rc : 0;
	}
	mpich_first = want == PL_MPI_MPICH;
	rc = try_files(lib, mpich_first ? mpich_files : openmpi_files, err);
	if (rc == 0 && !sure)
		rc = try_files(lib, mpich_first ? openmpi_files : mpich_files, err);
	if (rc == 0)
		rc = pl_fail(err, PL_EABSENT,
			     "no MPI library is found (%s); install %s, or say where it is: "
			     "LD_LIBRARY_PATH or PACELINE_MPI=FILE; without MPI: transport tcp",
			     sure && mpich_first ? "libmpich.so.12, libmpi.so.12"
			     : sure		 ? "libmpi.so.40"
						 : "libmpi.so.40, libmpich.so.12, libmpi.so.12",
			     sure ? pl_comm_mpi_kind_name(want) : "Open MPI or MPICH");
	return rc < 0 ? rc : 0;
}
