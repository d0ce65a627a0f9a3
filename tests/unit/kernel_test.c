/*
 * Operations whose time is measured: expressions, data sheets, families, and work by hand.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernel/expr.h"
#include "kernel/feature.h"
#include "kernel/kernel.h"
#include "kernel_fixture.h"

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* ---- expressions ----------------------------------------------------------------------------- */

/* a = 2, b = 3, 'two words' = 5, x.y_1 = 7, none = NAN */
static const char *const names[] = { "a", "b", "two words", "x.y_1", "none", "min" };
static const double values[] = { 2, 3, 5, 7, NAN, 11 };

static uint32_t find_name(void *arg, const char *name)
{
	(void)arg;
	for (uint32_t i = 0; i < PL_LEN(names); i++)
		if (!strcmp(names[i], name))
			return i;
	return PL_NONE;
}

static void count_use(void *arg, uint32_t value)
{
	((int *)arg)[value]++;
}

static void test_expr(void)
{
	static const struct {
		const char *text;
		double want;
	} cases[] = {
		{ "1+2*3", 7 },
		{ "(1+2)*3", 9 },
		{ "10-4-3", 3 },
		{ "48/4/2*3", 18 },
		{ "17%5*2", 4 },
		{ "-2*-3", 6 },
		{ "2--3", 5 },
		{ "-(1+1)", -2 },
		{ "- - 4", 4 },
		{ "1.5e3 + .25", 1500.25 },
		{ "a + b*x.y_1", 23 },
		{ "'two words'/a", 2.5 },
		{ "min(a, b)+max(a,b)*10", 32 },
		{ "min(max(1, 5), 3+1)", 4 },
		{ "min+1", 12 },
		{ "ceil(7/a) - floor(7/a)", 1 },
		{ "ceil(-1.5)", -1 },
		{ "1+1==2", 1 },
		{ "a!=2", 0 },
		{ "a<b", 1 },
		{ "3<=b", 1 },
		{ "b<3", 0 },
		{ "b>=4", 0 },
		{ "(a>1)+(b>2)", 2 },
		{ "none", NAN },
		{ "0*none", NAN },
		{ "none==none", NAN },
		{ "none<1", NAN },
		{ "min(none, 1)", NAN },
		{ "max(1, none)", NAN },
		{ "  7\t", 7 },
		{ "1/0", INFINITY },
	};
	struct pl_err err = { 0 };
	struct pl_expr *e;

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		double v;

		if (!ok(pl_expr_new(cases[i].text, find_name, NULL, &e, &err) == 0, "\"%s\"",
			cases[i].text)) {
			printf("# %s\n", err.msg);
			continue;
		}
		v = pl_expr_eval(e, values);
		ok(isnan(cases[i].want) ? isnan(v) : v == cases[i].want, "is %g", v);
		pl_expr_free(e);
	}
	if (ok(pl_expr_new("a+a*x.y_1", find_name, NULL, &e, &err) == 0, "uses")) {
		int used[PL_LEN(names)] = { 0 };

		pl_expr_uses(e, count_use, used);
		ok(used[0] == 2 && used[3] == 1 && !used[1] && !used[2] && !used[4], "a, a, x.y_1");
	}
	pl_expr_free(e);
	pl_expr_free(NULL);
}

static void test_expr_errors(void)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "\"\": it ends at byte 1" },
		{ "1+", "it ends at byte 3" },
		{ "1 $ 2", "unexpected character at byte 3" },
		{ "(1+2", "\")\" is missing at byte 5" },
		{ "1+2)", "unexpected character at byte 4" },
		{ "min(1)", "a comma is missing at byte 6" },
		{ "ceil(1,2)", "\")\" is missing at byte 7" },
		{ "'two words", "a quote is missing at byte 2" },
		{ "a b", "unexpected character at byte 3" },
		{ "a=2", "unexpected character at byte 2" },
		{ "1<2<3", "unexpected character at byte 4" },
		{ ".", "not a number at byte 1" },
		{ "1e999", "not a number at byte 1" },
		{ "3*0x10", "not a number at byte 3" },
		{ "3*0X10", "not a number at byte 3" },
		{ "1.2.3", "unexpected character at byte 4" },
		{ "c*2", "there is no column or variable \"c\"" },
		{ "'A'", "there is no column or variable \"A\"" },
		{ "sqrt(4)", "there is no column or variable \"sqrt\"" },
	};
	char deep[4][800];
	struct pl_expr *e;

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_err err = { 0 };
		int rc = pl_expr_new(cases[i].text, find_name, NULL, &e, &err);

		says(rc, &err, cases[i].says, cases[i].text);
		ok(!e, "nothing to free");
	}
	/* what nests too deeply is refused, whatever nests */
	memset(deep[0], '(', sizeof(deep[0]) - 1);
	memset(deep[1], '-', sizeof(deep[1]) - 1);
	for (size_t i = 0; i < 798; i += 3)
		memcpy(deep[2] + i, "1+(", 3);
	for (size_t i = 0; i < 798; i += 6)
		memcpy(deep[3] + i, "floor(", 6);
	for (size_t i = 0; i < PL_LEN(deep); i++) {
		struct pl_err err = { 0 };

		deep[i][i < 2 ? 799 : 798] = '\0';
		says(pl_expr_new(deep[i], find_name, NULL, &e, &err), &err, "too ", "nested");
	}
}

/* A level of parentheses keeps three numbers on the stack. */
static void test_expr_deep(void)
{
	for (int levels = 20; levels <= 60; levels += 40) {
		struct pl_err err = { 0 };
		struct pl_buf b = { 0 };
		struct pl_expr *e;
		int rc = 0;

		for (int i = 0; i < levels && rc >= 0; i++)
			rc = pl_buf_printf(&b, &err, "0<1+1*(");
		rc = rc < 0 ? rc : pl_buf_printf(&b, &err, "1");
		for (int i = 0; i < levels && rc >= 0; i++)
			rc = pl_buf_printf(&b, &err, ")");
		if (rc < 0)
			ok(false, "%s", err.msg);
		rc = pl_expr_new((const char *)b.p, find_name, NULL, &e, &err);
		if (levels == 20)
			ok(rc == 0 && pl_expr_eval(e, values) == 1, "20 levels");
		else
			says(rc, &err, "too deep", "60 levels");
		pl_expr_free(e);
		pl_buf_fini(&b);
	}
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_devices(void)
{
	struct pl_devices d = { 0 }, e = { 0 };
	const struct pl_device *x;
	struct pl_err err = { 0 };
	uint32_t at = 7;

	ok(add(&d, "my_gpu", a100, &err) == 0, "a data sheet %s", err.msg);
	x = &d.v[0];
	is_str(x->name, "my_gpu", "its name");
	is_str(x->title, "NVIDIA A100-PCIE-40GB", "its title");
	ok(x->memory_bytes == 40e9 && x->bandwidth == 1555 && x->sms == 108 && x->lanes == 64,
	   "memory, bandwidth, multiprocessors");
	ok(near(x->clock_ghz, 1.41) && x->flops == 19500 && x->half_flops == 312000 &&
		   x->l2_bytes == 40 * 1048576.0,
	   "clock, operations, cache");
	ok(x->watts == 250 && x->capability == 8, "power and capability are known by the name");
	ok(add(&d, "Tesla_T4",
	       "{\"Mem_Bw\": 320, \"Num_Sm\": 40, \"SingleFLOPsMM\": 8000, \"SingleFLOPsVEC\": "
	       "4000, \"Power\": 60, \"Capability\": 7}",
	       &err) == 0,
	   "another %s", err.msg);
	x = &d.v[1];
	is_str(x->title, "Tesla_T4", "the title is the name");
	ok(x->flops == 8000 && x->lanes == 64 && near(x->clock_ghz, 8000.0 / 2 / 40 / 64),
	   "what is missing follows from the rest");
	ok(x->watts == 60 && x->capability == 7, "the sheet overrides what is known");
	ok(isnan(x->memory_bytes) && isnan(x->half_flops) && isnan(x->l2_bytes), "or is not known");
	ok(add(&d, "cpu_40GB",
	       "{\"Device\":\"a \\\"CPU\\\"\",\"Mem_Bw\":100,\"Num_Sm\":8,\"Core_Per_SM\":16,"
	       "\"Freq\":2500}",
	       &err) == 0 &&
		   near(d.v[2].flops, 2 * 8 * 16 * 2.5),
	   "operations follow from lanes and clock %s", err.msg);
	is_str(d.v[2].title, "a \"CPU\"", "quotes in a title");

	is_i64(pl_device_find(&d, "my_gpu"), 0, "by name");
	is_i64(pl_device_find(&d, "MY GPU"), 0, "case and blanks do not matter");
	is_i64(pl_device_find(&d, "nvidia_a100_pcie_40gb"), 0, "by title");
	is_i64(pl_device_find(&d, "T4"), 1, "by the end of the name");
	is_i64(pl_device_find(&d, "pcie-40GB"), 0, "by the end of the title");
	is_i64(pl_device_find(&d, "40GB"), PL_NONE, "two of them");
	is_i64(pl_device_find(&d, "4"), PL_NONE, "only whole words");
	is_i64(pl_device_find(&d, ""), PL_NONE, "nothing");
	says(pl_device_missing(&d, "H100", &err), &err,
	     "no data sheet of \"H100\"; there are my_gpu, Tesla_T4, cpu_40GB", "those there are");
	memset(&err, 0, sizeof(err));
	says(pl_device_missing(&d, "40GB", &err), &err,
	     "\"40GB\" may be my_gpu or cpu_40GB; give the whole name", "two that it may be");
	memset(&err, 0, sizeof(err));
	says(pl_device_missing(&e, "H100", &err), &err, "--devices", "no folder was named");

	memset(&err, 0, sizeof(err));
	ok(pl_device_copy(&e, &d.v[1], &at, &err) == 0 && at == 0 && e.n == 1, "a copy");
	pl_device_fini(&d);
	ok(!strcmp(e.v[0].name, "Tesla_T4") && e.v[0].flops == 8000, "lives by itself");
	pl_device_fini(&e);
}

static void test_device_errors(void)
{
	static const struct {
		const char *json, *says;
	} cases[] = {
		{ "", "is a JSON object" },
		{ "[1]", "is a JSON object" },
		{ "{}", "Mem_Bw is missing" },
		{ "{\"Mem_Bw\": 1, \"SingleFLOPs\": 1}", "Num_Sm is missing" },
		{ "{\"Mem_Bw\": 1, \"Num_Sm\": 1}", "SingleFLOPs is missing" },
		{ "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"Freq\": 1}", "SingleFLOPs is missing" },
		{ "{\"Mem_Bw\": 0}", "Mem_Bw must be a number above 0, not 0" },
		{ "{\"CPU\": -1}", "CPU must be a number from 0 on, not -1" },
		{ "{\"CPU\": \"no\"}", "CPU must be a number from 0 on, not no" },
		{ "{\"Mem_Bw\": -5}", "Mem_Bw must be a number above 0, not -5" },
		{ "{\"Mem_Bw\": \"fast\"}", "Mem_Bw must be a number above 0, not fast" },
		{ "{\"Mem_Bw\": null}", "Mem_Bw must be a number above 0" },
		{ "{\"Mem_Bw\": nan}", "Mem_Bw must be a number above 0" },
		{ "{\"Mem_Bw\": [1]}", "Mem_Bw must be a number above 0" },
		{ "{\"Device\": {\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1}}",
		  "Device must be a text" },
		{ "{\"Device\": 5}", "Device must be a text" },
		{ "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1} x", "follows" },
		{ "{\"Mem_Bw\" 1}", "not valid JSON at byte 10" },
		{ "{\"Mem_Bw\": 1", "not valid JSON at byte 12" },
		{ "{\"Mem_Bw\": ", "not valid JSON" },
		{ "{\"Other\": [1, ", "Other is not valid JSON" },
		{ "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1, \"Host_Launch\": 1e13}",
		  "Host_Launch 1e+13 must be below 1e+12 us" },
		{ "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1, \"Host_Launch\": 1,"
		  " \"Host_Launch_High\": 1e12}",
		  "Host_Launch_High 1e+12 must be below 1e+12 us" },
	};
	const size_t whole = strlen(a100);
	struct pl_devices d = { 0 };
	size_t refused = 0;

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_err err = { 0 };

		says(add(&d, "x", cases[i].json, &err), &err, cases[i].says, cases[i].json);
	}
	for (size_t n = 0; n < whole; n++) {
		char cut[sizeof(a100)];
		struct pl_err err = { 0 };

		snprintf(cut, sizeof(cut), "%.*s", (int)n, a100);
		refused += add(&d, "x", cut, &err) == PL_EDATA;
	}
	is_i64((long long)refused, (long long)whole, "each shorter sheet is refused");
	is_i64((long long)d.n, 0, "and none is added");
	pl_device_fini(&d);
}

/* 0 is that it is none. */
static void test_no_cpu(void)
{
	struct pl_devices d = { 0 };
	struct pl_err err = { 0 };

	ok(add(&d, "G", "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1, \"CPU\": 0}", &err) ==
		   0,
	   "a device that is no CPU %s", err.msg);
	ok(d.n == 1 && !(d.v[0].cpu > 0), "is none");
	ok(add(&d, "H", "{\"Mem_Bw\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": 1, \"CPU\": 1}", &err) ==
			   0 &&
		   d.v[1].cpu == 1,
	   "and one that is");
	pl_device_fini(&d);
}

static struct {
	int n;
	char text[400];
} said;

static void hear(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)level;
	said.n++;
	snprintf(said.text, sizeof(said.text), "%s", text);
}

/* Data sheets of a folder, and those by which a model was measured. */
static void test_measured(void)
{
	static const char *const sheets[] = {
		"{\"Mem_Bw\": 300, \"Num_Sm\": 58, \"SingleFLOPs\": 30300}",
		"{\"Mem_Bw\": 3000, \"Num_Sm\": 58, \"SingleFLOPs\": 30300, \"Host_Launch\": 7}",
		"{\"Mem_Bw\": 300, \"Num_Sm\": 58, \"SingleFLOPs\": 30300, \"Host_Launch\": 9}",
	};
	const struct pl_log log = { .say = hear };
	struct pl_devices d = { 0 }, model = { 0 };
	struct pl_err err = { 0 };

	ok(add(&model, "A", sheets[0], &err) == 0 && add(&model, "B", sheets[0], &err) == 0 &&
		   add(&model, "C", sheets[0], &err) == 0 && add(&d, "B", sheets[2], &err) == 0 &&
		   add(&d, "A", sheets[1], &err) == 0,
	   "sheets %s", err.msg);
	if (d.n == 2) {
		d.v[1].file = pl_arena_dup(&d.arena, "sheets/A.json", strlen("sheets/A.json"));
		ok(pl_device_add_measured(&d, &model, &log, &err) == 0, "and those of a model");
		ok(d.n == 3 && !strcmp(d.v[1].name, "A") && !strcmp(d.v[2].name, "C"),
		   "it adds one");
		ok(d.v[1].bandwidth == 300, "another sheet of a device that was measured: the "
					    "model's counts");
		ok(said.n == 1 && strstr(said.text, "sheets/A.json: its Mem_Bw is not that"),
		   "the file is named");
		ok(d.v[1].host_ns == 7e3 && d.v[0].host_ns == 9e3,
		   "the launch is that of the file");
	}
	pl_device_fini(&d);
	pl_device_fini(&model);
}

/* Names that are equal as names are compared, and titles. */
static void test_measured_alike(void)
{
	static const char sheet[] = "{\"Device\": \"Maker X 1\", \"Mem_Bw\": 300, \"Num_Sm\": 58, "
				    "\"SingleFLOPs\": 30300}";
	static const char other[] = "{\"Device\": \"Maker X 1\", \"Mem_Bw\": 9, \"Num_Sm\": 58, "
				    "\"SingleFLOPs\": 30300}";
	const struct pl_log log = { .say = hear };
	struct pl_devices d = { 0 }, model = { 0 };
	struct pl_err err = { 0 };

	said.n = 0;
	ok(add(&model, "X_1", sheet, &err) == 0 && add(&d, "big", other, &err) == 0 &&
		   add(&d, "x-1", other, &err) == 0 &&
		   pl_device_add_measured(&d, &model, &log, &err) == 0,
	   "sheets %s", err.msg);
	if (ok(d.n == 2, "a name that is equal is no other device")) {
		is_str(d.v[1].name, "X_1", "it has the name that the model knows");
		ok(d.v[1].bandwidth == 300 && d.v[0].bandwidth == 9, "the model's sheet counts");
		ok(said.n == 1 && strstr(said.text, "x-1: its Mem_Bw is not that"), "one warning");
		is_i64(pl_device_find(&d, "x 1"), 1, "by its name");
		is_i64(pl_device_find(&d, "maker x 1"), 1, "of equal titles the measured one");
		is_i64(pl_device_find(&d, "big"), 0, "the other by its name");
	}
	pl_device_fini(&d);
	ok(add(&d, "a-1", other, &err) == 0 && add(&d, "A_1", sheet, &err) == 0, "two spellings");
	is_i64(pl_device_find(&d, "A_1"), 1, "as it is written");
	is_i64(pl_device_find(&d, "A 1"), 0, "else the first");
	pl_device_fini(&d);
	pl_device_fini(&model);
}

static void write_text(const char *folder, const char *file, const char *text)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		ok(false, "writing %s", path);
}

static void test_device_folder(void)
{
	const char *tmp = getenv("TMP");
	char folder[4000];
	struct pl_devices d = { 0 };
	struct pl_err err = { 0 };

	snprintf(folder, sizeof(folder), "%s/sheetsXXXXXX", tmp ? tmp : "/tmp");
	if (!ok(mkdtemp(folder) != NULL, "a folder"))
		return;
	says(pl_device_read(&d, folder, &err), &err, "has no data sheet", "an empty folder");
	memset(&err, 0, sizeof(err));
	write_text(folder, "b.json", a100);
	write_text(folder, "a.json", a100);
	write_text(folder, "note.txt", "no sheet");
	ok(pl_device_read(&d, folder, &err) == 0 && d.n == 2, "two sheets %s", err.msg);
	ok(d.n == 2 && !strcmp(d.v[0].name, "a") && !strcmp(d.v[1].name, "b"), "in their order");
	ok(d.n == 2 && strstr(d.v[1].file, "/b.json"), "of their files");
	write_text(folder, "my_c.json", a100);
	for (int i = 0; i < 2; i++)
		ok(pl_device_read(&d, folder, &err) == 0 && d.n == 3, "one more, once %s", err.msg);
	is_i64(pl_device_find(&d, "c"), 2, "it is not two");
	write_text(folder, "c.json", "{\"Mem_Bw\": 1}");
	says(pl_device_read(&d, folder, &err), &err, "c.json: Num_Sm is missing",
	     "file and member");
	pl_remove_folder(folder);
	memset(&err, 0, sizeof(err));
	ok(pl_device_read(&d, folder, &err) == PL_EIO && strstr(err.msg, folder), "no folder");
	pl_device_fini(&d);
}

static void test_boards(void)
{
	static const struct {
		const char *title;
		double watts, capability;
	} cases[] = {
		{ "NVIDIA A100-SXM4-40GB", 400, 8 },
		{ "NVIDIA_A100_80GB_PCIe", 300, 8 },
		{ "Tesla P4", 75, 6.1 },
		{ "Tesla_P40", 250, 6.1 },
		{ "Tesla T4", 70, 7.5 },
		{ "NVIDIA L4", 72, 8.9 },
		{ "NVIDIA L40S", 350, 8.9 },
		{ "nvidia a40", 300, 8.6 },
		{ "Tesla V100-PCIE-32GB", 250, 7 },
		{ "NVIDIA H100 80GB HBM3", 700, 9 },
		{ "NVIDIA GeForce RTX 3090", 350, 8.6 },
		{ "NVIDIA H200", 700, 9 },
		{ "NVIDIA GH200 480GB", 900, 9 },
		{ "AMD Instinct MI210", 300, NAN },
	};
	double watts = 1, capability = 2;

	for (size_t i = 0; i < PL_LEN(cases); i++)
		ok(pl_device_board(cases[i].title, &watts, &capability) &&
			   watts == cases[i].watts &&
			   (capability == cases[i].capability ||
			    (isnan(capability) && isnan(cases[i].capability))),
		   "%s: %g W, %g", cases[i].title, watts, capability);
	watts = 1;
	ok(!pl_device_board("My CPU", &watts, &capability) && watts == 1, "an unknown board");
}

/* ---- families and work ----------------------------------------------------------------------- */

static void test_words(void)
{
	double otherwise = 0;
	int wrong = 0, begun = 0;

	for (unsigned f = 0; f < PL_KERNEL_FAMILIES_; f++) {
		wrong += pl_kernel_family_find(pl_kernel_family_word(f)) != (int)f;
		begun += pl_kernel_dim(f, 0, &otherwise) != NULL;
	}
	ok(wrong == 0 && begun == PL_KERNEL_FAMILIES_, "families and their words");
	is_i64(pl_kernel_family_find("gem"), -1, "no family");
	is_str(pl_kernel_family_word(99), "unknown", "nor that");
	is_str(pl_kernel_dim(PL_KERNEL_CONV, 5, &otherwise), "stride", "a dimension");
	ok(otherwise == 1, "its default");
	is_str(pl_kernel_dim(PL_KERNEL_GEMM, 3, &otherwise), "k", "the last one");
	ok(isnan(otherwise), "must be begun");
	ok(!pl_kernel_dim(PL_KERNEL_GEMM, 4, &otherwise) && !pl_kernel_dim(99, 0, &otherwise),
	   "there are no more");
	ok(pl_kernel_is_comm(PL_KERNEL_ALLREDUCE) && pl_kernel_is_comm(PL_KERNEL_SENDRECV) &&
		   !pl_kernel_is_comm(PL_KERNEL_EMBEDDING) && !pl_kernel_is_comm(PL_KERNEL_OTHER),
	   "communication");
	ok(pl_kernel_type_find("half") == PL_KERNEL_FLOAT16 &&
		   pl_kernel_type_find("bf16") == PL_KERNEL_BFLOAT16 &&
		   pl_kernel_type_find("float") == PL_KERNEL_FLOAT32 &&
		   pl_kernel_type_find("float64") == PL_KERNEL_FLOAT64 &&
		   pl_kernel_type_find("") == -1 && pl_kernel_type_find("int3") == -1,
	   "types and other words for them");
	for (unsigned t = 0; t < PL_KERNEL_TYPES_; t++)
		wrong += pl_kernel_type_find(pl_kernel_type_word(t)) != (int)t;
	ok(wrong == 0 && pl_kernel_type_bytes(PL_KERNEL_TF32) == 4 &&
		   pl_kernel_type_bytes(PL_KERNEL_FLOAT8) == 1,
	   "and their bytes");
}

static void test_work(void)
{
	static const struct {
		uint8_t family, type;
		double dim[PL_KERNEL_DIMS];
		double flops, bytes;
		const char *what;
	} cases[] = {
		/* 3 products of 4 x 6 and 6 x 5 */
		{ PL_KERNEL_GEMM,
		  PL_KERNEL_FLOAT32,
		  { 3, 4, 5, 6 },
		  3 * 4 * 5 * 6 * 2,
		  3 * (24 + 30 + 20) * 4,
		  "products" },
		/* 2 images 3 x 8 x 8, 4 filters 3 x 3 x 3, padded: 8 x 8 again */
		{ PL_KERNEL_CONV,
		  PL_KERNEL_FLOAT16,
		  { 2, 3, 4, 8, 3, 1, 1, 1 },
		  2 * 64 * 4 * 27 * 2,
		  (2 * 3 * 64 + 4 * 27 + 2 * 4 * 64) * 2,
		  "convolution" },
		/* each second pixel without padding: (9 - 3) / 2 + 1 = 4; 2 groups of 2 channels */
		{ PL_KERNEL_CONV,
		  PL_KERNEL_FLOAT32,
		  { 1, 4, 6, 9, 3, 2, 0, 2 },
		  16 * 6 * 18 * 2,
		  (4 * 81 + 6 * 18 + 6 * 16) * 4,
		  "convolution with groups" },
		/* the last column of pixels is not reached: floor((10 - 3) / 2) + 1 = 4 */
		{ PL_KERNEL_CONV,
		  PL_KERNEL_FLOAT32,
		  { 1, 1, 1, 10, 3, 2, 0, 1 },
		  16 * 9 * 2,
		  (100 + 9 + 16) * 4,
		  "convolution that leaves pixels" },
		{ PL_KERNEL_ELEMENTWISE,
		  PL_KERNEL_FLOAT32,
		  { 100, 2, 1, 0 },
		  100,
		  1200,
		  "addition" },
		{ PL_KERNEL_ELEMENTWISE,
		  PL_KERNEL_FLOAT16,
		  { 100, 1, 1, 0 },
		  100,
		  400,
		  "of halves" },
		{ PL_KERNEL_ELEMENTWISE,
		  PL_KERNEL_FLOAT32,
		  { 100, 1, 1, 77 },
		  100,
		  77,
		  "of bytes" },
		{ PL_KERNEL_SOFTMAX, PL_KERNEL_FLOAT32, { 10, 20 }, 1000, 1600, "softmax" },
		{ PL_KERNEL_NORM, PL_KERNEL_FLOAT16, { 10, 20 }, 1000, 800, "norm" },
		{ PL_KERNEL_MOVE, PL_KERNEL_FLOAT32, { 100, 2, 0 }, 0, 1200, "move" },
		{ PL_KERNEL_MOVE, PL_KERNEL_FLOAT32, { 100, 1, 33 }, 0, 33, "move of bytes" },
		{ PL_KERNEL_EMBEDDING, PL_KERNEL_FLOAT16, { 10, 20 }, 0, 800, "embedding" },
		{ PL_KERNEL_ALLREDUCE, PL_KERNEL_FLOAT32, { 4096, 4, 2 }, 0, 4096, "all-reduce" },
		{ PL_KERNEL_OTHER, PL_KERNEL_FLOAT32, { 1, 2, 3, 4 }, 0, 0, "others" },
	};
	struct pl_err err = { 0 };
	struct pl_kernel k = { .family = PL_KERNEL_CONV, .dim = { 1, 1, 1, 3, 3, 1, 0, 1 } };

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		struct pl_kernel_work w;

		k.family = cases[i].family;
		k.type = cases[i].type;
		memcpy(k.dim, cases[i].dim, sizeof(k.dim));
		ok(pl_kernel_check(&k, &err) == 0, "%s is possible %s", cases[i].what, err.msg);
		w = pl_kernel_work(&k);
		ok(near(w.flops, cases[i].flops) && near(w.bytes, cases[i].bytes),
		   "%s: %g operations, %g bytes", cases[i].what, w.flops, w.bytes);
	}
	k = (struct pl_kernel){ .family = PL_KERNEL_CONV, .dim = { 1, 1, 1, 3, 5, 1, 0, 1 } };
	says(pl_kernel_check(&k, &err), &err, "kernel of conv is 5, and the padded image has 3",
	     "a filter larger than the image");
	memset(&err, 0, sizeof(err));
	k.dim[6] = 1;
	ok(pl_kernel_check(&k, &err) == 0, "but not with padding");
	k.dim[5] = 0;
	says(pl_kernel_check(&k, &err), &err, "stride of conv is 0, and must be above 0", "stride");
	memset(&err, 0, sizeof(err));
	k.dim[5] = 1;
	k.dim[6] = -1;
	says(pl_kernel_check(&k, &err), &err, "padding of conv is -1, and must be 0 or more",
	     "padding");
	memset(&err, 0, sizeof(err));
	k = (struct pl_kernel){ .family = PL_KERNEL_GEMM, .dim = { 1, 2, NAN, 2 } };
	says(pl_kernel_check(&k, &err), &err, "n of gemm is not known, and must be a number",
	     "a number that is not known");
	memset(&err, 0, sizeof(err));
	k.dim[2] = INFINITY;
	says(pl_kernel_check(&k, &err), &err, "n of gemm is inf", "an infinite one");
}

/* Values of all sizes, beside 1, and those that have no logarithm. */
static void test_logs(void)
{
	enum { N = 4000 };
	static double v[N];
	static float x[N];
	const double none[] = { NAN, INFINITY, -1, 0 };
	double worst = 0;

	for (int i = 0; i < N; i++)
		v[i] = i % 2 ? exp((i - N / 2) / 30.) : 1 + (i - N / 2) * 1e-7;
	pl_feature_logs(v, N, x);
	for (int i = 0; i < N; i++) {
		float now = (float)log(fmax(v[i], 1e-30));

		worst = fmax(worst, fabs((double)x[i] - (double)now) /
					    ((double)nextafterf(fabsf(now), INFINITY) -
					     fabs((double)now)));
	}
	ok(worst <= 1, "logarithms are off by one unit in the last place (%.2g)", worst);
	pl_feature_logs(none, 4, x);
	ok(isnan(x[0]) && isnan(x[1]), "unknown values stay unknown");
	ok(x[2] == (float)log(1e-30) && x[3] == x[2], "too small ones have that of the least");
}

int main(void)
{
	test_expr();
	test_expr_errors();
	test_expr_deep();
	test_devices();
	test_device_errors();
	test_no_cpu();
	test_measured();
	test_measured_alike();
	test_device_folder();
	test_boards();
	test_words();
	test_work();
	test_logs();
	return done_testing();
}
