"""From sentence pairs to shards: cleaned, encoded in many processes, packed, shuffled, counted."""
