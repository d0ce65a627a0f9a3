/* Report tables in all formats. */
#include <math.h>

#include "io/table.h"
#include "tap.h"

static const struct pl_column cols[] = {
	{ "name", "name", PL_CELL_STR, 9 },	  { "count", "count", PL_CELL_I64, 0 },
	{ "self_ns", "self", PL_CELL_NS, 0 },	  { "bytes", "size", PL_CELL_BYTES, 0 },
	{ "ratio", "ratio", PL_CELL_REAL, 0 },	  { "share", "share", PL_CELL_PERCENT, 0 },
	{ "note", "note, free", PL_CELL_STR, 0 },
};

static const char *print(const struct pl_table *t, enum pl_table_format f, const char *title)
{
	static struct pl_buf b;
	struct pl_err err = { 0 };
	struct pl_out *out;

	if (!t) {
		pl_buf_fini(&b);
		return NULL;
	}
	b.n = 0;
	out = pl_out_open_buf(&b, &err);
	if (pl_table_print(t, out, f, title, &err) < 0 || pl_out_close(out, &err) < 0 ||
	    pl_buf_put(&b, "", 1, &err) < 0)
		return err.msg[0] ? "failed" : NULL;
	return (const char *)b.p;
}

int main(void)
{
	struct pl_err err = { 0 };
	struct pl_table t = PL_TABLE(cols);
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	is_str(print(&t, PL_TABLE_TEXT, "Title"),
	       "Title\nname  count  self  size  ratio  share  note, free\n", "no rows, text");
	is_str(print(&t, PL_TABLE_JSON, NULL), "[]\n", "no rows, JSON");
	is_str(print(&t, PL_TABLE_JSONL, NULL), "", "no rows, JSON lines");
	pl_table_row(&t, "matmul", (int64_t)12, (int64_t)1500000, (int64_t)2048, 0.5, 0.25,
		     "a,b \"c\"\td\ne\\");
	pl_table_row(&t,
		     "gr\xc3\xbc\xc3\x9f"
		     "e-aus-\xc3\x9c"
		     "bersee",
		     INT64_MIN, INT64_MIN, INT64_MIN, (double)NAN, (double)NAN, NULL);
	ok(!t.fail.code, "a row, and an empty one");
	is_i64((long long)t.n_rows, 2, "rows");
	is_str(print(&t, PL_TABLE_TEXT, NULL),
	       "name       count     self     size  ratio  share  note, free\n"
	       "matmul        12  1.50 ms  2.0 KiB    0.5  25.0%  a,b \"c\"?d?e\\\n"
	       "gr\xc3\xbc\xc3\x9f\xe2\x80\xa6rsee\n",
	       "text: aligned, cut in the middle, no trailing spaces");
	is_str(print(&t, PL_TABLE_CSV, "not shown"),
	       "name,count,self_ns,bytes,ratio,share,note\n"
	       "matmul,12,1500000,2048,0.5,0.25,\"a,b \"\"c\"\"\td\ne\\\"\n"
	       "gr\xc3\xbc\xc3\x9f"
	       "e-aus-\xc3\x9c"
	       "bersee,,,,,,\n",
	       "CSV");
	is_str(print(&t, PL_TABLE_TSV, NULL),
	       "name\tcount\tself_ns\tbytes\tratio\tshare\tnote\n"
	       "matmul\t12\t1500000\t2048\t0.5\t0.25\ta,b \"c\"\\td\\ne\\\\\n"
	       "gr\xc3\xbc\xc3\x9f"
	       "e-aus-\xc3\x9c"
	       "bersee\t\t\t\t\t\t\n",
	       "TSV");
#define ROW1                                                                                       \
	"{\"name\":\"matmul\",\"count\":12,\"self_ns\":1500000,\"bytes\":2048,\"ratio\":0.5,"      \
	"\"share\":0.25,\"note\":\"a,b \\\"c\\\"\\td\\ne\\\\\"}"
#define ROW2                                                                                       \
	"{\"name\":\"gr\xc3\xbc\xc3\x9f"                                                           \
	"e-aus-\xc3\x9c"                                                                           \
	"bersee\",\"count\":null,"                                                                 \
	"\"self_ns\":null,\"bytes\":null,\"ratio\":null,\"share\":null,\"note\":null}"
	is_str(print(&t, PL_TABLE_JSONL, NULL), ROW1 "\n" ROW2 "\n", "JSON lines");
	is_str(print(&t, PL_TABLE_JSON, NULL), "[" ROW1 "," ROW2 "]\n", "JSON");
	pl_write_init(&w, out, 0);
	pl_json_open(&w, '{');
	pl_json_key(&w, "rows");
	pl_table_json(&t, &w);
	pl_json_int(&w, "n", 2);
	pl_json_close(&w);
	ok(!pl_write_end(&w, &err) && !pl_out_close(out, &err) && !pl_buf_put(&b, "", 1, &err),
	   "inside an object");
	is_str((const char *)b.p, "{\"rows\":[" ROW1 "," ROW2 "],\"n\":2}", "the same rows");
	print(NULL, PL_TABLE_TEXT, NULL);
	pl_buf_fini(&b);
	pl_table_fini(&t);
	return done_testing();
}
