"""The Debian that a study of boots starts from the disk under test: built, booted, reported."""
