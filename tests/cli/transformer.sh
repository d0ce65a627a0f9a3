# transformer.sh - a cost model of two devices, k.model, and graphs of jobs with its times. For tests that divide the layers of
# transformers; the working folder is $TMP.
# shellcheck shell=sh disable=SC2016,SC2154  # awk programs are quoted so; variables of the runner

# ---- two devices, whose operations take a floor and the sum of two bounds --------------------------------

mkdir sheets
for d in one two; do
	f=$([ $d = one ] && echo 1 || echo 2)
	cat >sheets/$d.json <<END
{ "Device": "Test $d", "Dev_Mem": 16, "Mem_Bw": $((400 * f)), "Num_Sm": 40, "Core_Per_SM": 64, "Freq": 1400,
  "SingleFLOPs": $((8000 * f)), "HalfTensorFLOPs": $((32000 * f)), "L2Cache": 6 }
END
	awk -v name=$d -v f="$f" '
	function pick(low, high) { return int(low * exp(rand() * log(high / low)) + 0.5) }
	function row(op, ns, B, M, N, K, H) {
		printf "%s,%.7f,Test %s,%s,%s,%s,%s,%s\n", op, (5000 + ns / f) / 1e6, name, B, M, N, K, H
	}
	BEGIN {
		srand(3)
		print "OPName,Latency,Device,B,M,N,K,H"
		for (i = 0; i < 60; i++) {
			b = i % 2 ? 1 : pick(4, 64); m = pick(16, 1024); k = pick(8, 512); n = pick(16, 1024)
			row(b > 1 ? "bmm" : "linear", 2 * b * m * n * k / 6000 + 4 * b * (m * k + k * n + m * n) / 300, b, m, n, k, "")
			for (j = split("ln softmax gelu add div", op, " "); j; j--) {
				r = pick(32, 4096); h = pick(16, 1024)
				row(op[j], (op[j] == "add" || op[j] == "div" ? 12 : 8) * r * h / 300, r, "", "", "", h)
			}
		}
	}' >$d.csv
done
sed -i 's/^div,/divu,/' one.csv two.csv
cat >own.schema <<'END'
paceline-schema 1
latency Latency unit=ms
operation OPName
device column=Device
type float32
op "bmm|linear" family=gemm batch=B m=M k=K n=N
op add family=elementwise elements=B*H inputs=2
op divu family=elementwise as=div elements=B*H
op gelu family=elementwise elements=B*H
op softmax family=softmax rows=B columns=H
op ln family=norm rows=B columns=H
END
"$BIN/predict" -q --train --no-intervals --schema=own.schema --devices=sheets -o k.model one.csv two.csv

# job NAME MODEL BATCH RANKS: its graph, with times
job() {
	printf 'paceline-job 1\nmodel %s\ndata synthetic:samples=1000,dims=64,classes=64\nbatch %s\nranks %s\n' "$2" "$3" "$4" >"$1.job"
	case $2 in gpt*) sed -i 's/^data.*/data synthetic:tokens=100000,vocab=512/' "$1.job" ;; esac
	"$BIN/graph" -q --operators "$1.job" |
		"$BIN/predict" -q -m k.model --devices=sheets --device=one --host-us=0 -O graph -o "$1.graph"
}
