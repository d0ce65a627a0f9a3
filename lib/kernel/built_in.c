/*
 * Schemas of published tables of measurements.
 *
 * neusight: kernels of PyTorch on GPUs in float32, one operation a row (NeuSight, ASPLOS 2025). N
 * is the dimension that is summed up. vidur: layers of language models in float16, one column for
 * each (Vidur, MLSys 2024). mist: operators of GPT in float16, forward and backward, a file for
 * each size of the model, microbatch and tensor-parallel degree (Mist, EuroSys 2025). run: layers
 * of networks of run(1), as its --bench kernels measures them.
 */
#include "kernel/internal.h"

static const char neusight[] =
	"paceline-schema 1\n"
	"latency Latency unit=ms\n"
	"operation OPName\n"
	"device column=Device\n"
	"kernel \"Kernel Name\"\n"
	"type float32\n"
	"op bmm family=gemm batch=B m=M k=N n=K\n"
	"op linear family=gemm batch=B m=M k=N n=K\n"
	"op conv family=conv batch=B in=Input_Channel out=Output_Channel size=Input_Size "
	"kernel=Kernel_Szie "
	"stride=Stride padding=Padding\n"
	"op \"add|mul|div|pow\" family=elementwise elements=B*H inputs=2\n"
	"op \"addu|mulu|divu|powu|relu|gelu|tanh\" family=elementwise elements=B*H\n"
	"op softmax family=softmax rows=B columns=H\n"
	"op ln family=norm rows=B columns=H\n";

static const char vidur[] =
	"paceline-schema 1\n"
	"latency time_stats.*.median unit=ms\n"
	"device from=folder\n"
	"model from=file\n"
	"type float16\n"
	"let head n_embd/n_head\n"
	"let tp num_tensor_parallel_workers\n"
	"let gates 1+use_gated_mlp\n"
	"op attn_pre_proj family=gemm m=num_tokens k=n_embd n=(n_head+2*n_kv_head)/tp*head\n"
	"op attn_post_proj family=gemm m=num_tokens k=n_embd/tp n=n_embd\n"
	"op mlp_up_proj family=gemm m=num_tokens k=n_embd n=gates*n_expanded_embd/tp\n"
	"op mlp_down_proj family=gemm m=num_tokens k=n_expanded_embd/tp n=n_embd\n"
	"op mlp_act family=elementwise elements=num_tokens*n_expanded_embd/tp inputs=gates\n"
	"op attn_rope family=elementwise elements=num_tokens*(n_head+n_kv_head)/tp*head\n"
	"op add family=elementwise elements=num_tokens*n_embd inputs=2\n"
	"op \"input_layernorm|post_attention_layernorm\" family=norm rows=num_tokens "
	"columns=n_embd\n"
	"op emb family=embedding rows=num_tokens columns=n_embd\n"
	"op all_reduce family=allreduce bytes=size ranks=num_workers local=devices_per_node\n"
	"op send_recv family=sendrecv bytes=size ranks=num_workers local=devices_per_node\n";

/* 52,000 words are padded and divided over the tensor-parallel ranks; a sequence has 2,048. */
static const char mist[] =
	"paceline-schema 1\n"
	"latency *-compute unit=us missing=1e9\n"
	"operation op_name\n"
	"model from=file\n"
	"type float16\n"
	"file gpt_{model_size}_mbs{mbs}_tp{tp}_algo{variant}\n"
	"let s 2048\n"
	"let h 2048 when=model_size=1_3B\n"
	"let heads 32 when=model_size=1_3B\n"
	"let h 2560 when=model_size=2_6B\n"
	"let heads 32 when=model_size=2_6B\n"
	"let h 4096 when=model_size=6_7B\n"
	"let heads 32 when=model_size=6_7B\n"
	"let h 5120 when=model_size=13B\n"
	"let heads 40 when=model_size=13B\n"
	"let h 6144 when=model_size=20B\n"
	"let heads 64 when=model_size=20B\n"
	"let h 6144 when=model_size=22B\n"
	"let heads 64 when=model_size=22B\n"
	"let h 8192 when=model_size=40B\n"
	"let heads 64 when=model_size=40B\n"
	"let t mbs*s\n"
	"let pairs mbs*heads/tp*s\n"
	"op encoder-embedding:* family=embedding when=tp==1 rows=t columns=h\n"
	"op \"*layernorm:*\" family=norm rows=t columns=h\n"
	"op enc-attention-qkv:forward family=gemm m=t k=h n=3*h/tp\n"
	"op enc-attention-qkv:backward family=gemm when=tp==1 batch=2 m=t k=3*h n=h\n"
	"op enc-attention-score:forward family=gemm batch=mbs*heads/tp m=s n=s k=h/heads\n"
	"op enc-attention-score:backward family=gemm batch=2*mbs*heads/tp m=s n=h/heads k=s\n"
	"op enc-attention-softmax:* family=softmax rows=pairs columns=s\n"
	"op enc-attention-dropout:* family=elementwise elements=pairs*s inputs=2\n"
	"op enc-attention-context:forward family=gemm batch=mbs*heads/tp m=s n=h/heads k=s\n"
	"op enc-attention-context:backward family=gemm batch=2*mbs*heads/tp m=s n=s k=h/heads\n"
	"op enc-attention-dense:forward family=gemm when=tp==1 m=t k=h n=h\n"
	"op enc-attention-dense:backward family=gemm batch=2 m=t k=h n=h/tp\n"
	"op \"enc-post-*-dropout:*\" family=elementwise elements=t*h inputs=2\n"
	"op enc-MLP-GEMM-1:forward family=gemm m=t k=h n=4*h/tp\n"
	"op enc-MLP-GEMM-1:backward family=gemm when=tp==1 batch=2 m=t k=4*h n=h\n"
	"op enc-MLP-gelu:* family=elementwise elements=4*t*h/tp\n"
	"op enc-MLP-GEMM-2:forward family=gemm when=tp==1 m=t k=4*h n=h\n"
	"op enc-MLP-GEMM-2:backward family=gemm batch=2 m=t k=h n=4*h/tp\n"
	"op gpt-post-process:forward family=gemm when=tp==1 m=t k=h n=51200\n"
	"op gpt-post-process:backward family=gemm when=tp==1 batch=2 m=t k=51200 n=h\n"
	/* the others also communicate among the tensor-parallel ranks */
	"op * family=other when=tp>1 a=t b=h c=tp d=heads\n";

static const char run[] =
	"paceline-schema 1\n"
	"latency time_ns unit=ns\n"
	"operation op\n"
	"device column=device\n"
	"model column=network\n"
	"type float32\n"
	"op \"dense*|attention*\" family=gemm batch=batch m=m n=n k=k\n"
	"op conv* family=conv batch=batch in=in out=n size=size kernel=kernel stride=stride "
	"padding=padding\n"
	"op \"layernorm*|batchnorm*\" family=norm rows=rows columns=columns\n"
	"op \"loss*\" family=softmax rows=rows columns=columns\n"
	"op \"embedding*|position*\" family=embedding rows=rows columns=columns\n"
	"op update.sgd family=elementwise elements=rows*columns bytes=20*rows*columns\n"
	"op update.* family=elementwise elements=rows*columns bytes=28*rows*columns\n"
	"op * family=elementwise elements=rows*columns\n";

const struct schema_built_in pl_schema_built_in[] = {
	{ "neusight", neusight }, { "vidur", vidur }, { "mist", mist }, { "run", run }, { 0 }
};
