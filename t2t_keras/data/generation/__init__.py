"""Generation of shards: cleaning, encoding in several processes, packing, counts."""
