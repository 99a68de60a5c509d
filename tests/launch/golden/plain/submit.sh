prefix=sampled-9eeb42-0001
submit sample
submit compact sample
submit report compact
