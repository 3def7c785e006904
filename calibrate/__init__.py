"""What real engines did: read from files or recorded, fitted to, and compared with answers."""
