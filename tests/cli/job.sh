# shellcheck shell=sh
# A job that run(1) does in an instant:
#
# tiny_job STEPS      into ./tiny.job
# losses FILE         of a log: those of training, one a line

tiny_job() {
	cat >tiny.job <<-END
	paceline-job 1
	model mlp:16-48-32-4
	data synthetic:samples=2000,dims=16,classes=4
	split 0.8
	batch 32
	optimizer sgd lr=0.05 momentum=0.9
	steps $1
	END
}

losses() {
	awk -F , 'NR > 1 && $4 != "" { print $4 }' "$1"
}
