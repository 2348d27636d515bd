"""Families of database tasks; a seed draws an instruction, the initial tables, and a hidden verifier."""

from __future__ import annotations

from gem.envs.database.mcp_tasks import data, programs, reports, structure
from gem.envs.database.mcp_tasks.base import GROUPS, Judge, PostgresFamily, PostgresTask, Refused, Wrong

FAMILIES: dict[str, PostgresFamily] = {
    "AuditLog": PostgresFamily(programs.audit_log, "hard"),
    "Backfill": PostgresFamily(data.backfill, "easy"),
    "Balances": PostgresFamily(programs.balances, "hard"),
    "CarryForward": PostgresFamily(reports.carry_forward, "hard"),
    "CompatibleView": PostgresFamily(structure.compatible_view, "easy"),
    "Constraints": PostgresFamily(structure.constraints, "easy"),
    "Deduplicate": PostgresFamily(data.deduplicate, "hard"),
    "EnumColumn": PostgresFamily(structure.enum_column, "easy"),
    "ForeignKeys": PostgresFamily(structure.foreign_keys, "easy"),
    "FunctionContract": PostgresFamily(programs.function_contract, "hard"),
    "Gaps": PostgresFamily(reports.gaps, "easy"),
    "GeneratedColumn": PostgresFamily(structure.generated_column, "easy"),
    "Grants": PostgresFamily(programs.grants, "hard"),
    "GuardedFunction": PostgresFamily(programs.guarded_function, "hard"),
    "Hierarchy": PostgresFamily(reports.hierarchy, "hard"),
    "IndexPlan": PostgresFamily(reports.index_plan, "hard"),
    "JsonColumns": PostgresFamily(data.json_columns, "easy"),
    "MaskedView": PostgresFamily(programs.masked_view, "easy"),
    "MaterializedView": PostgresFamily(reports.materialized_view, "easy"),
    "MergeFeed": PostgresFamily(data.merge_feed, "hard"),
    "MigrateColumn": PostgresFamily(structure.migrate_column, "easy"),
    "NoOverlap": PostgresFamily(structure.no_overlap, "hard"),
    "Normalise": PostgresFamily(structure.normalise, "hard"),
    "Partition": PostgresFamily(structure.partition, "hard"),
    "RepairLedger": PostgresFamily(data.repair_ledger, "hard"),
    "RevenueView": PostgresFamily(reports.revenue_view, "easy"),
    "RowSecurity": PostgresFamily(programs.row_security, "hard"),
    "Sequences": PostgresFamily(structure.sequences, "easy"),
    "SlowView": PostgresFamily(reports.slow_view, "hard"),
}
"""Every family by name."""

__all__ = ["FAMILIES", "GROUPS", "Judge", "PostgresFamily", "PostgresTask", "Refused", "Wrong"]
