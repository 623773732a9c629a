"""SQL expressions with generated parts, compared with DuckDB: values, types, errors and refusals."""
