"""`sql/execute`: a YAML step's statement in the project's own database."""

from processors.adapters.postgres.project_sql.action import ProjectSql

__all__ = ["ProjectSql"]
