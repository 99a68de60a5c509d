"""Whether verdicts are right: a second reader, judgements of people, and error rates from them."""
