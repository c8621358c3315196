"""Settings of a broker under Apache's names: values, texts and files."""
