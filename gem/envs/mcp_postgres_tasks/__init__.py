"""Families of database tasks, each drawn from a seed: what is asked, what is there, and a hidden verifier."""

from __future__ import annotations

from gem.envs.mcp_postgres_tasks import data, programs, reports, structure
from gem.envs.mcp_postgres_tasks.base import GROUPS, Family, Judge, PostgresTask, Refused, Wrong

FAMILIES: dict[str, Family] = {
    "AuditLog": Family(programs.audit_log, "hard"),
    "Backfill": Family(data.backfill, "easy"),
    "Balances": Family(programs.balances, "hard"),
    "CarryForward": Family(reports.carry_forward, "hard"),
    "CompatibleView": Family(structure.compatible_view, "easy"),
    "Constraints": Family(structure.constraints, "easy"),
    "Deduplicate": Family(data.deduplicate, "hard"),
    "EnumColumn": Family(structure.enum_column, "easy"),
    "ForeignKeys": Family(structure.foreign_keys, "easy"),
    "FunctionContract": Family(programs.function_contract, "hard"),
    "Gaps": Family(reports.gaps, "easy"),
    "GeneratedColumn": Family(structure.generated_column, "easy"),
    "Grants": Family(programs.grants, "hard"),
    "GuardedFunction": Family(programs.guarded_function, "hard"),
    "Hierarchy": Family(reports.hierarchy, "hard"),
    "IndexPlan": Family(reports.index_plan, "hard"),
    "JsonColumns": Family(data.json_columns, "easy"),
    "MaskedView": Family(programs.masked_view, "easy"),
    "MaterializedView": Family(reports.materialized, "easy"),
    "MergeFeed": Family(data.merge_feed, "hard"),
    "MigrateColumn": Family(structure.migrate_column, "easy"),
    "NoOverlap": Family(structure.no_overlap, "hard"),
    "Normalise": Family(structure.normalise, "hard"),
    "Partition": Family(structure.partition, "hard"),
    "RepairLedger": Family(data.repair_ledger, "hard"),
    "RevenueView": Family(reports.revenue_view, "easy"),
    "RowSecurity": Family(programs.row_security, "hard"),
    "Sequences": Family(structure.sequences, "easy"),
    "SlowView": Family(reports.slow_view, "hard"),
}
"""Every family by name."""

__all__ = ["FAMILIES", "GROUPS", "Family", "Judge", "PostgresTask", "Refused", "Wrong"]
