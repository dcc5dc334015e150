"""What a run says: in the terminal, in files, and in the message of a failing check."""
