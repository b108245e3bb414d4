"""Generation of shards from sentence pairs: cleaning, encoding in many processes, packing, counting."""
