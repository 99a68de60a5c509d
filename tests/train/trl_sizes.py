"""What `test_trl` and the process that it starts agree on; imports neither TRL nor DeepSpeed."""

STEPS, GROUP, PROMPTS, LONGEST = 5, 4, 4, 24
# Adam divides each gradient by its own size: where one is nothing but rounding, weights part by up
# to the rate.
RATE = 3e-5
