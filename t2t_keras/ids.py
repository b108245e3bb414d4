"""The two token ids that mean the same everywhere: in files, batches, masks and search."""

PAD_ID = 0
"""Padding. A position holding it is masked, weighs nothing in the loss and embeds to zeros."""

EOS_ID = 1
"""End of sentence. Ends every source and every target."""
