prefix=trained-93a84f-0001
submit train-rl
submit sample.000
submit sample.001
submit sample-rl-10.000 train-rl
submit sample-rl-10.001 train-rl
submit sample-rl-20.000 train-rl
submit sample-rl-20.001 train-rl
submit compact train-rl sample.000 sample.001 sample-rl-10.000 sample-rl-10.001 sample-rl-20.000 sample-rl-20.001
submit report compact
