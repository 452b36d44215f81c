"""What happens by itself: compaction, keeping up with commits made elsewhere, tags and expiry."""
