/* The importer of operation tables, from text in memory to rows. */
#include "import_fixture.h"

static void test_optable(void)
{
	static const char table[] =
		"dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,note\n"
		"0,0,0,5,forward-send,0.5,0.1,0,-1,-1,\n"
		"0,0,0,5,forward-compute,0.01,0.49,0,0,0,1.50\n"
		"0,1,4,5,forward-recv,0.3,0.31,0,-1,-1,hi\n"
		"0,1,4,5,grads-reduce-scatter,0.7,0.3,0,-1,-1,7\n"
		"0,0,0,9,forward-compute,0.02,0.5,0,0,0,\n"
		"0,1,4,9,oops,nope,0.5,0,0,0,\n";

	ok(import("t.csv", table, NULL) == 0 && st.bad == 1 && st.events == 8,
	   "an operation table");
	is_str(rows(),
	       "step 'step 5' t0 0 600000000 step<step>=5 inferred=1\n"
	       "kernel 'forward-compute' t1 10000000 490000000 step<step>=5 seq_id<seq>=0 "
	       "mc<chunk>=0 "
	       "mb_id<mb>=0 note=150e-2\n"
	       "send 'forward-send' t2 500000000 100000000 step<step>=5 seq_id<seq>=0 mc<chunk>=-1 "
	       "mb_id<mb>=-1 <coll>='send' <peer>=4\n"
	       "step 'step 5' t3 0 1000000000 step<step>=5 inferred=1\n"
	       "recv 'forward-recv' t4 300000000 310000000 step<step>=5 seq_id<seq>=0 mc<chunk>=-1 "
	       "mb_id<mb>=-1 <coll>='recv' <peer>=0 note='hi'\n"
	       "collective 'grads-reduce-scatter' t5 700000000 300000000 step<step>=5 "
	       "seq_id<seq>=0 "
	       "mc<chunk>=-1 mb_id<mb>=-1 <coll>='reduce_scatter' <group>='dp.s1' note=7\n"
	       "step 'step 9' t0 1000000000 520000000 step<step>=9 inferred=1\n"
	       "kernel 'forward-compute' t1 1020000000 500000000 step<step>=9 seq_id<seq>=0 "
	       "mc<chunk>=0 "
	       "mb_id<mb>=0\n",
	       "steps lie one after the other, peers and groups are named");
	ok(import("t.csv",
		  "rank,step,op,start_us,end_us,g\n0,1,all-reduce,1.5,7.25,tp0\n0,2,all_reduce,8,9,"
		  "tp0\n",
		  &(struct pl_import_opts){
			  .columns = "name=op,start=start_us:us,end=end_us:us,group=g" }) == 0,
	   "mapped columns");
	is_str(rows(),
	       "step 'step 1' t0 1500 5750 step<step>=1 inferred=1\n"
	       "collective 'all-reduce' t1 1500 5750 step<step>=1 <coll>='allreduce' "
	       "g<group>='tp0'\n"
	       "step 'step 2' t0 8000 1000 step<step>=2 inferred=1\n"
	       "collective 'all_reduce' t2 8000 1000 step<step>=2 <coll>='allreduce' "
	       "g<group>='tp0'\n",
	       "times that do not begin anew stay as they are");
	ok(import("t.csv", table, &(struct pl_import_opts){ .columns = "nonsense=1" }) == PL_EUSAGE,
	   "%s", err.msg);
	ok(import("t.csv", table, &(struct pl_import_opts){ .columns = "start=absent" }) ==
		   PL_EDATA,
	   "%s", err.msg);
	ok(import("t.csv", table, &(struct pl_import_opts){ .strict = true }) == PL_EDATA &&
		   strstr(err.msg, "line 7"),
	   "strict: %s", err.msg);
}

/* Ranks that differ in their tensor-parallel rank alone have peers and groups of their own. */
static void test_tensor_parallel(void)
{
	static const char head[] = "rank,step,optype,start_ts,duration,dp_rank,stage,tp_rank\n";
	char table[1024];

	snprintf(table, sizeof(table), "%s%s", head,
		 "0,1,forward-send,0,1,0,0,0\n1,1,forward-send,0,1,0,0,1\n"
		 "2,1,forward-recv,0,1,0,1,0\n3,1,forward-recv,0,1,0,1,1\n"
		 "1,1,grads-reduce-scatter,2,1,0,0,1\n3,1,embedding-grads-all-reduce,2,1,0,1,1\n");
	ok(import("t.csv", table, NULL) == 0 && st.events == 10, "a table with tensor parallelism");
	ok(strstr(rows(),
		  "send 'forward-send' t1 0 1000000000 step<step>=1 <coll>='send' <peer>=2"),
	   "each rank sends to the one with its tensor-parallel rank");
	ok(strstr(rows(), "<coll>='send' <peer>=3\n") &&
		   strstr(rows(), "<coll>='recv' <peer>=0\n") &&
		   strstr(rows(), "<coll>='recv' <peer>=1\n"),
	   "... all of them");
	ok(strstr(rows(), "<group>='dp.s0.t1'") && strstr(rows(), "<group>='emb.d0.t1'"),
	   "groups are those of one tensor-parallel rank");
	snprintf(table, sizeof(table), "%s%s", head, "1,1,grads-reduce-scatter,2,1,0,0,1\n");
	ok(import("t.csv", table, NULL) == 0 && strstr(rows(), "<group>='dp.s0'\n"),
	   "where there is one such rank, names do without it");
}

int main(void)
{
	test_optable();
	test_tensor_parallel();
	pl_buf_fini(&notes.text);
	return done_testing();
}
