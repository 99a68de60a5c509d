prefix=sampled-f30b5b-0001
submit sample
submit compact sample
submit report compact
