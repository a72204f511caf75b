"""Paper search: find the papers that answer a question, by keyword search and by following references."""
