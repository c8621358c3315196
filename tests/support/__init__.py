"""What several tests share: processes, Apache's Java side, recorded vectors."""
