"""Features of tables: a decision for each column, imputation, categories, dates and texts; saved as JSON and arrays."""
